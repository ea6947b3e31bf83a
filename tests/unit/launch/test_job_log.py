"""The log of a job: what FlowPoint says in it, and what was printed between."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from flowpoint.errors import StorageError
from flowpoint.host import log_files
from flowpoint.host.log_files import files_of
from flowpoint.launch import job_log
from flowpoint.launch.control import Event, EventKind
from flowpoint.launch.job_log import JobLog, Printed, line_of
from flowpoint.model.settings import LogSettings

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
    log = JobLog(path, LogSettings())

    log.write(FAILED, 1_790_000_000_000)
    log.close()

    assert path.read_text().splitlines()[1:] == [
        "2026-09-21T14:13:20.000Z failed: it broke",
        "Traceback",
        "  boom",
    ]


def test_what_was_printed_is_neither_ours_nor_of_an_earlier_run(path: Path) -> None:
    log = JobLog(path, LogSettings())

    log.write(RUNNING, 1)
    by_worker(path, "one\n")
    by_worker(path, line_of("worker", "0: an attempt did not end in order", 2))
    log.write(FAILED, 3)
    by_worker(path, "two\n")

    assert log.printed() == Printed(2, ("one", "two"))
    log.close()


def test_nothing_printed_is_nothing(path: Path) -> None:
    log = JobLog(path, LogSettings())
    log.write(RUNNING, 1)

    assert log.printed() == Printed(0, ())
    log.close()


def test_of_many_lines_the_last_ones_are_kept(path: Path) -> None:
    log = JobLog(path, LogSettings())
    by_worker(path, "".join(f"{n}\n" for n in range(100)))

    assert log.printed() == Printed(100, tuple(map(str, range(90, 100))))
    log.close()


def test_more_than_can_be_looked_at_is_not_counted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_log, "LOOKED_AT_BYTES_MAX", 25)
    log = JobLog(path, LogSettings())
    by_worker(path, "0123456789\n" * 3)

    assert log.printed() == Printed(None, ("0123456789", "0123456789"))
    log.close()


def test_a_log_that_cannot_be_written_is_told_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(
        StorageError, match=rf"cannot write the log of the job, {tmp_path}: Is a directory; .*: remove it"
    ):
        JobLog(tmp_path, LogSettings())


SHORT = LogSettings(max_bytes=100, backups=2)


def by_workers_line(path: Path, text: str) -> None:
    by_worker(path, f"{text}{'.' * 100}\n")


def test_a_log_that_is_too_long_is_turned_over_no_more_often_than_others_can_follow(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = JobLog(path, SHORT, apart_seconds=10)

    for now, text in ((0, "a"), (5, "b"), (9, "c"), (10, "d"), (20, "e")):
        by_workers_line(path, text)
        log.look_after(now)
    log.write(RUNNING, 1)

    assert [[line[0] for line in file.read_text().splitlines()] for file in files_of(path)] == [
        ["1"],
        ["e"],
        ["b", "c", "d"],
    ]
    log.close()


@pytest.mark.parametrize(("max_bytes", "files"), [(0, 1), (1000, 1), (10, 2)])
def test_what_earlier_runs_have_left_is_put_aside_where_it_is_too_long(path: Path, max_bytes: int, files: int) -> None:
    JobLog(path, LogSettings(max_bytes=max_bytes)).close()

    assert len(files_of(path)) == files


def test_what_was_printed_is_told_across_a_turn_with_what_came_late_into_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = JobLog(path, SHORT)
    log.write(RUNNING, 1)
    by_workers_line(path, "early")
    old = path.open("a")
    log.look_after(0)
    print("late", file=old, flush=True)
    by_worker(path, "new\n")

    assert log.printed() == Printed(3, ("early" + "." * 100, "late", "new"))
    old.close()
    log.close()


def test_what_is_in_files_that_are_not_looked_at_any_more_is_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = JobLog(path, SHORT)
    for number in range(4):
        by_workers_line(path, str(number))
        log.look_after(number)

    printed = log.printed()

    assert printed.lines is None
    assert [line[0] for line in printed.last] == ["3"]
    log.close()


def test_a_log_that_cannot_be_turned_over_goes_on_in_the_same_file_and_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    log = JobLog(path, SHORT)
    by_workers_line(path, "a")
    with monkeypatch.context() as patch:
        patch.setattr(log_files.os, "link", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no space")))
        trouble = log.look_after(0)
    log.write(RUNNING, 1)

    assert re.match(rf"cannot write the log of the job, {path}, or put it aside: no space; .*; see that ", trouble)
    assert len(path.read_text().splitlines()) == 2
    assert log.look_after(1) == ""
    assert path.read_text() == ""
    log.close()


def remove(path: Path) -> None:
    path.unlink()


def move(path: Path) -> None:
    path.rename(path.with_name("log.gz"))


def put_another_there(path: Path) -> None:
    path.unlink()
    path.write_text("")


@pytest.mark.parametrize("take_away", [remove, move, put_another_there])
def test_a_log_that_somebody_has_taken_away_is_begun_anew_and_both_files_count_as_printed(
    path: Path, take_away: Callable[[Path], None]
) -> None:
    log = JobLog(path, LogSettings())
    by_worker(path, "one\n")
    old = path.open("a")
    take_away(path)
    print("two", file=old, flush=True)

    told = log.look_after(0)
    by_worker(path, "three\n")
    log.write(RUNNING, 1)

    assert told == f"the log of the job, {path}, was removed or replaced; it is begun anew"
    assert log.look_after(1) == ""
    assert path.read_text().splitlines()[0] == "three"
    assert len(path.read_text().splitlines()) == 2
    assert log.printed() == Printed(3, ("one", "two", "three"))
    old.close()
    log.close()


def test_while_something_else_is_in_the_place_of_the_log_that_is_told_and_then_it_goes_on(path: Path) -> None:
    log = JobLog(path, LogSettings())
    path.unlink()
    path.mkdir()

    told = [log.look_after(0), log.look_after(1)]
    path.rmdir()

    assert told[0].startswith(f"cannot write the log of the job, {path}, or put it aside: Is a directory; ")
    assert told[0] == told[1]
    assert "begun anew" in log.look_after(2)
    log.close()
