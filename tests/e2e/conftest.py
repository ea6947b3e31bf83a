"""Each test gets a shell of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """An empty working directory, an empty home, and `flowpoint`."""
    shell = Shell(tmp_path)
    yield shell
    shell.close()
