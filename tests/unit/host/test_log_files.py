"""A log is turned over while others write into it, and no line of theirs is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flowpoint.host.log_files import files_of, open_log, turn


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_text("first\n")
    return path


def contents(path: Path) -> list[str]:
    return [file.read_text() for file in files_of(path)]


def test_each_turn_puts_the_log_aside_and_the_oldest_file_goes(path: Path) -> None:
    for number in range(1, 5):
        turn(path, backups=2)
        path.write_text(f"after turn {number}\n")

    assert contents(path) == ["after turn 4\n", "after turn 3\n", "after turn 2\n"]


def test_files_are_told_newest_first_and_others_are_none_of_them(path: Path) -> None:
    for name in ("log.10", "log.2", "log.1", "log.old", "catalog.3", ".log.new"):
        (path.parent / name).write_text("")

    assert [file.name for file in files_of(path)] == ["log", "log.1", "log.2", "log.10"]


BREAKS = [
    ("open", ".log.new"),
    ("link", ".log.old"),
    *(("replace", name) for name in ("log.3", "log.2", "log.1", "log")),
]


@pytest.mark.parametrize(("call", "name"), BREAKS)
def test_a_turn_that_breaks_off_loses_no_file_however_often_it_is_tried(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str, name: str
) -> None:
    for number in (1, 2):
        path.with_name(f"log.{number}").write_text(f"aside {number}\n")

    for _ in range(5):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="no space left"):
            patch.setattr(os, call, refusing(getattr(os, call), path.with_name(name)))
            turn(path, backups=3)
    assert path.read_text() == "first\n"
    turn(path, backups=3)

    assert contents(path) == ["", "first\n", "aside 1\n", "aside 2\n"]


def refusing(call: Callable[..., Any], path: Path) -> Callable[..., Any]:
    """The same call, which does not work where it would make this path."""
    made = 0 if call is os.open else 1

    def refuse(*args: Any, **more: Any) -> Any:
        if args[made] == path:
            raise OSError("no space left")
        return call(*args, **more)

    return refuse


def test_a_pipe_in_the_place_of_a_log_is_refused_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")

    with pytest.raises(OSError, match="a pipe is no log"):
        open_log(tmp_path / "log")


def test_who_writes_on_into_the_old_file_loses_nothing(path: Path) -> None:
    writer = open_log(path)
    turn(path, backups=1)
    os.write(writer, b"second\n")
    os.close(writer)

    assert contents(path) == ["", "first\nsecond\n"]


FOLLOWING = """
import os, sys
from pathlib import Path
from flowpoint.host.log_files import Follower
follower = Follower(Path(sys.argv[1]))
for line in sys.stdin:
    if line.startswith("elsewhere"):
        os.dup2(os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT), 2)
    elif line.startswith("close"):
        os.close(2)
    else:
        follower.follow()
        os.write(1, line.encode())
        if line != "four\\n":
            os.write(2, b"error " + line.encode())
    os.write(int(sys.argv[3]), b".")
"""


def test_a_process_goes_over_to_the_new_file_but_leaves_alone_what_was_sent_elsewhere_or_closed(path: Path) -> None:
    told, tells = os.pipe()
    log = open_log(path)
    process = subprocess.Popen(
        [sys.executable, "-c", FOLLOWING, str(path), str(path.parent / "aside"), str(tells)],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        pass_fds=[tells],
    )
    assert process.stdin is not None

    def say(line: bytes) -> None:
        assert process.stdin is not None
        process.stdin.write(line)
        process.stdin.flush()
        assert os.read(told, 1) == b"."

    say(b"one\n")
    turn(path, backups=3)
    say(b"two\n")
    say(b"elsewhere\n")
    turn(path, backups=3)
    say(b"three\n")
    say(b"close\n")
    turn(path, backups=3)
    say(b"four\n")
    process.stdin.close()
    assert process.wait(10) == 0

    assert contents(path) == ["four\n", "three\n", "two\nerror two\n", "first\none\nerror one\n"]
    assert (path.parent / "aside").read_text() == "error three\n"
    for descriptor in (told, tells, log):
        os.close(descriptor)


def test_a_turn_removes_what_is_more_than_the_backups_that_are_wanted_by_now(path: Path) -> None:
    for number in range(6):
        path.write_text(f"{number}\n")
        turn(path, 5)
    (path.parent / "log.old").touch()
    (path.parent / "log.01").touch()

    turn(path, 2)

    assert sorted(os.listdir(path.parent)) == ["log", "log.01", "log.1", "log.2", "log.old"]
