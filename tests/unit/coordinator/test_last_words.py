"""What a worker printed last is found also when the log was put aside meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowpoint.coordinator.last_words import LastWords
from flowpoint.host.log_files import turn
from tests.unit.coordinator.test_workers import FakeDisk

EVENT = "2026-09-21T14:13:20.000Z running: records flow\n"


@pytest.mark.parametrize(
    ("late", "early", "said"), [("", "its last word\n", "its last word"), ("new\n", "old\n", "new")]
)
async def test_the_last_line_is_that_of_both_files(tmp_path: Path, late: str, early: str, said: str) -> None:
    path = tmp_path / "log"
    path.write_text(EVENT * 10)
    words = LastWords(FakeDisk(), str(path))
    before = await words.size()
    with path.open("a") as file:
        file.write(early)
    turn(path, 1)
    with path.open("a") as file:
        file.write(EVENT + late)

    assert await words.since(before) == said
