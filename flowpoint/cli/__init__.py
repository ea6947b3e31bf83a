"""The `flowpoint` command: one file per command. Everything about a running job goes over its HTTP interface."""
