"""A job with the smallest source and sink there are, for tests of the plan."""

from __future__ import annotations

import pytest

from flowpoint.api.job import Job
from flowpoint.runtime.contracts import Sink, Source


class Numbers(Source):
    """A source by shape only: planning never opens it."""


class Nowhere(Sink):
    """A sink by shape only."""


@pytest.fixture
def source() -> Source:
    return Numbers()


@pytest.fixture
def sink() -> Sink:
    return Nowhere()


@pytest.fixture
def job() -> Job:
    return Job("demo")
