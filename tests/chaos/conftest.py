"""Chaos happens in the same shell as the end-to-end tests: real processes, nothing left behind."""

from tests.e2e.conftest import shell

__all__ = ["shell"]
