"""Keyed state of one operator in one subtask: tables, backends, the files they become, and what users declare."""
