"""The only place where things are put together: job file, settings, plan, coordinator and worker processes."""
