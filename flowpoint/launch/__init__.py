"""Puts a job together and looks after it from outside: job folders, the HTTP interface, events, the start of a run."""
