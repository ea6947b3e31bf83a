"""Named cases about what a job starts from: its saved state, its position in the input, and nothing else."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.chaos.jobs import is_all_local, said_of_opening
from tests.e2e.shell import Running, Shell, committed

LOG = """
import asyncio
import json
from flowpoint import END, Job, KeyedProcessFunction, Source, SourceReader, Split, ValueState
from flowpoint.connectors import FileSink
from flowpoint.errors import LostInputError


class Reader(SourceReader):
    def __init__(self, position):
        self._position = position

    async def read(self, n):
        log = json.load(open("log"))
        values = log["values"][self._position - log["low"] :][:n]
        self._position += len(values)
        if not values and log["ended"]:
            return END
        if not values:
            await asyncio.sleep(0.01)
        return values

    def position(self):
        return self._position

    async def close(self):
        pass


class Log(Source):
    def splits(self):
        return [Split("log", {})]

    async def open(self, split, position, ctx):
        low = json.load(open("log"))["low"]
        if position is not None and position < low:
            text = f"cannot read split {split.id} from offset {position}: the log begins at offset {low} now"
            if not ctx.skip_lost_input:
                raise LostInputError(f"{text}; pass --skip-lost-input to go on there")
            ctx.log(text)
        return Reader(max(position or 0, low))


def see(value):
    open("seen", "a").write(f"{value}\\n")
    return value

"""
"""A log of which the oldest values may be gone: the file `log` holds those from offset `low` on."""


def write_log(shell: Shell, *values: int, low: int = 0, ended: bool = False) -> None:
    """The log has these values, the first of them at offset `low`. A reader never sees half of it."""
    shell.write("log.new", f'{{"low": {low}, "values": {list(values)}, "ended": {str(ended).lower()}}}')
    os.replace(shell.folder / "log.new", shell.folder / "log")


def seen(shell: Shell) -> list[str]:
    """What came by `see`, in order."""
    path = shell.folder / "seen"
    return path.read_text().splitlines() if path.exists() else []


def start(shell: Shell, job: str, *options: str) -> Running:
    """Run a job on LOG; the same command continues it."""
    shell.write("job.py", LOG + job)
    return shell.start("run", "job.py", "-p", "1", "--json", *options)


# ---------------------------------------------------------------------------------------------------- AC-09 and AC-19

CHANGES = """
class Changes(KeyedProcessFunction):
    last = ValueState("last")

    def process(self, n, ctx):
        if self.last.value != n:
            self.last.value = n
            yield see(n)


job = Job("changes")
(
    job.source(Log(), uid="log", parallelism=1)
    .key_by(lambda n: n)
    .process(Changes(), uid="changes")
    .sink(FileSink("out", format="jsonl"), uid="out")
)
"""


def test_ac09_what_is_in_the_live_database_and_in_no_checkpoint_is_gone_with_its_worker(shell: Shell) -> None:
    numbers = range(3000)
    write_log(shell, *numbers)
    # So little memory that most of it goes out to RocksDB long before any checkpoint.
    running = start(shell, CHANGES, "--set", "checkpoint.interval=0", "--set", "state.cache_bytes=8KB")
    running.wait_until(lambda: len(seen(shell)) == len(numbers), "reading of the whole log")
    assert list((shell.home.root / "work").rglob("rocksdb/CURRENT"))

    os.kill(shell.recorded_workers("changes")[0], signal.SIGKILL)
    running.wait_for("running", 2)
    write_log(shell, *numbers, ended=True)
    done = running.wait()

    assert done.code == 0, done
    assert len(seen(shell)) == 2 * len(numbers)
    assert sorted(committed(shell.folder / "out")) == list(numbers)


SAME_NAME = """
class Counts(KeyedProcessFunction):
    total = ValueState("total", default=0)

    def process(self, n, ctx):
        self.total.value += 1
        yield self.total.value


class Sums(KeyedProcessFunction):
    total = ValueState("total", default=0)

    def process(self, count, ctx):
        self.total.value += 10
        yield count, self.total.value


job = Job("same")
(
    job.source(Log(), uid="log", parallelism=1)
    .key_by(lambda n: "a")
    .process(Counts(), uid="op1")
    .key_by(lambda n: "a")
    .process(Sums(), uid="op2")
    .sink(FileSink("out", format="jsonl"), uid="out")
)
"""


# With next to no memory both of them go out to RocksDB.
@pytest.mark.parametrize("cache", ["100", "64MB"])
def test_ac19_two_chained_operators_whose_states_have_one_name_keep_them_apart(shell: Shell, cache: str) -> None:
    write_log(shell, 1, 1, 1)
    settings = ("--set", "checkpoint.interval=50ms", "--set", f"state.cache_bytes={cache}")
    running = start(shell, SAME_NAME, *settings)
    running.wait_until(lambda: len(committed(shell.folder / "out")) == 3, "three rows")

    os.kill(shell.recorded_workers("same")[0], signal.SIGKILL)
    running.wait_for("running", 2)
    write_log(shell, 1, 1, 1, 1, ended=True)
    done = running.wait()

    assert done.code == 0, done
    assert sorted(committed(shell.folder / "out")) == [[1, 10], [2, 20], [3, 30], [4, 40]]
    assert any(map(is_all_local, said_of_opening(shell, "same")))


# -------------------------------------------------------------------------------------------------------------- AC-11

ROWS = """
job = Job("rows")
job.source(Log(), uid="log", parallelism=1).map(see, uid="see").sink(FileSink("out", format="jsonl"), uid="out")
"""


def stop_at(shell: Shell, count: int) -> None:
    """Run ROWS over a log of so many values, and stop it behind the last of them."""
    write_log(shell, *range(count))
    running = start(shell, ROWS)
    running.wait_until(lambda: len(seen(shell)) == count, "reading of the whole log")
    shell.run_ok("stop", "rows")
    assert running.wait().code == 0


def test_ac11_when_the_position_is_gone_then_the_job_fails_with_the_offsets_and_jumps_only_when_told_to(
    shell: Shell,
) -> None:
    stop_at(shell, 10)
    write_log(shell, 50, 51, low=50, ended=True)

    refused = start(shell, ROWS).wait()
    assert refused.code == 1, refused
    for words in ("split log", "offset 10", "begins at offset 50", "--skip-lost-input"):
        assert words in refused.sentence
    assert len(seen(shell)) == 10

    told = start(shell, ROWS, "--skip-lost-input").wait()
    assert told.code == 0, told
    assert sorted(committed(shell.folder / "out")) == [*range(10), 50, 51]


def test_ac11_a_position_at_the_end_of_an_emptied_log_waits_for_what_comes(shell: Shell) -> None:
    stop_at(shell, 5)
    write_log(shell, low=5)

    running = start(shell, ROWS)
    running.wait_for("running")
    assert shell.run_ok("checkpoint", "rows", "--json").json()["state"] == "completed"
    write_log(shell, 5, low=5, ended=True)
    done = running.wait()

    assert done.code == 0, done
    assert seen(shell) == ["0", "1", "2", "3", "4", "5"]


FILE = """
import time
from flowpoint import Job
from flowpoint.connectors import FileSink, FileSource


def slowly(line):
    time.sleep(0.001)
    return line


job = Job("file")
job.source(FileSource("input"), uid="lines").map(slowly, uid="slowly").sink(FileSink("out"), uid="out")
"""


def test_ac11_a_file_that_has_become_shorter_than_its_position_is_named_with_both(shell: Shell) -> None:
    shell.write("job.py", FILE)
    # It takes ten seconds to read, and is stopped in the middle.
    path = shell.write("input", "".join(f"{n:05}\n" for n in range(10_000)))
    command = ("run", "job.py", "-p", "1", "--json", "--set", "batch_size=16", "--set", "checkpoint.interval=50ms")
    running = shell.start(*command)
    running.wait_until(lambda: parts(shell), "output")
    running.interrupt()
    assert running.wait().code == 130
    before = parts(shell)
    path.write_text("00000\n")

    refused = shell.run(*command)
    assert refused.code == 1, refused
    for words in (str(path), "from position", "it ends at byte 6 now", "--skip-lost-input"):
        assert words in refused.sentence
    assert parts(shell) == before

    assert shell.run(*command, "--skip-lost-input").code == 0
    assert parts(shell) == before


def parts(shell: Shell) -> list[Path]:
    """The committed files."""
    return sorted((shell.folder / "out").glob("part-*"))


# -------------------------------------------------------------------------------------------------------------- AC-50

TWO = """
job = Job("two")
keyed = job.source(Log(), uid="log", parallelism=1).key_by(lambda n: "a")
keyed.count(uid="u1").sink(FileSink("out", format="jsonl"), uid="out")
"""
U2 = 'keyed.sum(lambda n: n, uid="u2").sink(FileSink("sums", format="jsonl"), uid="sums")\n'


def test_ac50_a_job_without_an_operator_of_the_snapshot_is_refused_until_that_is_allowed(shell: Shell) -> None:
    write_log(shell, 7, 7, 7)
    running = start(shell, TWO + U2)
    running.wait_until(lambda: shell.run("checkpoint", "two").code == 0 and parts(shell), "a checkpoint with output")
    shell.run_ok("stop", "two")
    assert running.wait().code == 0
    write_log(shell, 7, 7, 7, 7, ended=True)

    refused = start(shell, TWO).wait()
    assert refused.code == 1, refused
    assert "'u2'" in refused.sentence and "--allow-non-restored" in refused.sentence
    assert "'u1'" not in refused.sentence

    allowed = start(shell, TWO, "--allow-non-restored").wait()
    assert allowed.code == 0, allowed
    assert sorted(committed(shell.folder / "out")) == [["a", 1], ["a", 2], ["a", 3], ["a", 4]]


def test_ac50_two_operators_with_one_uid_are_refused_before_anything_starts(shell: Shell) -> None:
    refused = start(shell, TWO + U2.replace('"u2"', '"u1"')).wait()

    assert refused.code == 2, refused
    assert "'u1'" in refused.sentence
    assert not (shell.folder / "out").exists()
