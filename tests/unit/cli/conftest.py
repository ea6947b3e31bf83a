"""Every test has a home of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowpoint.launch.home import Home


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """An empty home with a short path, which `$FLOWPOINT_HOME` names."""
    with tempfile.TemporaryDirectory(prefix="fp") as folder:
        monkeypatch.setenv("FLOWPOINT_HOME", str(Path(folder) / "home"))
        yield Home.from_environment()
