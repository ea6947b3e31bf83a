"""One job's life: workers, attempts, checkpoints, failover, requests from the shell."""
