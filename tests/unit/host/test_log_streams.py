"""What the disk under a log refuses is lost and told, and whoever prints hears nothing of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from flowpoint.host.log_streams import lossy
from tests.unit.host.full_disk import file_size_limit


@pytest.fixture
def log(tmp_path: Path) -> Iterator[TextIO]:
    with (tmp_path / "log").open("a") as file:
        yield file


def written(log: TextIO) -> list[str]:
    return Path(log.name).read_text().splitlines()


def test_lines_come_whole_and_at_once(log: TextIO) -> None:
    stream = lossy(log, str)

    print("one", "\udce4", file=stream)

    assert written(log) == ["one \\udce4"]


def test_what_a_full_disk_refuses_is_counted_and_told_before_the_next_line(log: TextIO) -> None:
    stream = lossy(log, "said: {}\n".format)
    print("one", file=stream)

    with file_size_limit(7):
        print("two", file=stream)
        print("three", file=stream)
    print("four", file=stream)
    print("five", file=stream)

    assert written(log) == [
        "one",
        "two",
        "said: 7 bytes that were printed here could not be written and are lost: File too large",
        "four",
        "five",
    ]


def test_a_stream_that_a_function_has_closed_is_an_error_as_everywhere(log: TextIO) -> None:
    stream = lossy(log, str)
    spare = os.dup(log.fileno())
    os.close(log.fileno())

    with pytest.raises(OSError, match="Bad file descriptor"):
        print("one", file=stream)

    os.dup2(spare, log.fileno())
    os.close(spare)
