"""For all tests.

What is there once all tests are collected stays to the end: modules and the tests themselves, a few hundred thousand
objects. It is taken out of the garbage collector's sight, since every simulated world ends with a full collection, which
would otherwise look at all of it again.
"""

from __future__ import annotations

import gc

import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    """All tests are known, and none has run."""
    gc.collect()
    gc.freeze()
