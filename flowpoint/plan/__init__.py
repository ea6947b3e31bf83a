"""The stream graph a job's author describes, and its compilation into a job plan. Pure: no clock, no I/O."""
