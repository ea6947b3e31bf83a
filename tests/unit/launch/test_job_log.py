"""The log of a job: what FlowPoint says in it, and what was printed between."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowpoint.errors import StorageError
from flowpoint.launch import job_log
from flowpoint.launch.control import Event, EventKind
from flowpoint.launch.job_log import JobLog, Printed, line_of

RUNNING = Event(EventKind.RUNNING, "records flow")
FAILED = Event(EventKind.FAILED, "it broke", {"trace": "Traceback\n  boom\n"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log that an earlier run has left."""
    path = tmp_path / "log"
    path.write_text("printed by an earlier run\n")
    return path


def by_worker(path: Path, text: str) -> None:
    """Append as a worker does."""
    with path.open("a") as file:
        file.write(text)


def test_an_event_is_a_line_with_time_and_kind_and_its_traceback(path: Path) -> None:
    log = JobLog(path)

    log.write(FAILED, 1_790_000_000_000)
    log.close()

    assert path.read_text().splitlines()[1:] == [
        "2026-09-21T14:13:20.000Z failed: it broke",
        "Traceback",
        "  boom",
    ]


def test_what_was_printed_is_neither_ours_nor_of_an_earlier_run(path: Path) -> None:
    log = JobLog(path)

    log.write(RUNNING, 1)
    by_worker(path, "one\n")
    by_worker(path, line_of("worker", "0: an attempt did not end in order", 2))
    log.write(FAILED, 3)
    by_worker(path, "two\n")

    assert log.printed() == Printed(2, ("one", "two"))
    log.close()


def test_nothing_printed_is_nothing(path: Path) -> None:
    log = JobLog(path)
    log.write(RUNNING, 1)

    assert log.printed() == Printed(0, ())
    log.close()


def test_of_many_lines_the_last_ones_are_kept(path: Path) -> None:
    log = JobLog(path)
    by_worker(path, "".join(f"{n}\n" for n in range(100)))

    assert log.printed() == Printed(100, tuple(map(str, range(90, 100))))
    log.close()


def test_more_than_can_be_looked_at_is_not_counted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_log, "LOOKED_AT_BYTES_MAX", 25)
    log = JobLog(path)
    by_worker(path, "0123456789\n" * 3)

    assert log.printed() == Printed(None, ("0123456789", "0123456789"))
    log.close()


def test_a_log_that_cannot_be_written_is_told_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(
        StorageError, match=rf"cannot write the log of the job, {tmp_path}: Is a directory; .*: remove it"
    ):
        JobLog(tmp_path)
