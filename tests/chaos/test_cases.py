"""Cases from the field that only real processes show: named after their number."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise

import pytest

from tests.e2e.shell import Shell, committed

FOO = """
import asyncio
import os
from flowpoint import END, Job, Source, SourceReader, Split
from flowpoint.connectors import FileSink

# Every process that executes this file tells how it salts.
open("salts", "a").write(f"{hash('foo')}\\n")


class Reader(SourceReader):
    def __init__(self, position):
        self._given = position or 0

    async def read(self, n):
        if self._given == 15:
            return END
        if self._given == 10 and not os.path.exists("more"):
            await asyncio.sleep(0.01)
            return []
        self._given += 5
        return ["foo"] * 5

    def position(self):
        return self._given

    async def close(self):
        pass


class Twenty(Source):
    def splits(self):
        return [Split(str(i), {}) for i in range(20)]

    async def open(self, split, position, ctx):
        return Reader(position)


job = Job("foo")
(
    job.source(Twenty(), uid="words")
    .key_by(lambda word: word)
    .count(uid="counts")
    .sink(FileSink("out", format="jsonl"), uid="out")
)
"""


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_ac01_salted_hashes_do_not_route_keys(shell: Shell, backend: str) -> None:
    shell.write("job.py", FOO)
    # Without a seed each process draws its own.
    shell.environment.pop("PYTHONHASHSEED", None)
    command = ("run", "job.py", "-p", "4", "--json", "--set", "checkpoint.interval=100ms")
    command += ("--set", f"state.backend={backend}")

    first = shell.start(*command)
    first.wait_until(lambda: len(committed(shell.folder / "out")) == 200, "count of 200")
    assert sorted(committed(shell.folder / "out")) == [["foo", count] for count in range(1, 201)]
    first.kill()
    shell.write("more", "")
    second = shell.start(*command)
    done = second.wait()

    assert done.code == 0, done
    assert second.events("restored")
    assert sorted(committed(shell.folder / "out")) == [["foo", count] for count in range(1, 301)]
    salts = lines_of(shell, "salts")
    assert len(set(salts)) == len(salts) == 10


SPLITS = """
import asyncio
from pathlib import Path

from flowpoint import END, Job, Source, SourceReader, Split
from flowpoint.connectors import FileSink


class Reader(SourceReader):
    def __init__(self, position):
        self._read = position or 0

    async def read(self, n):
        if self._read == 15:
            return END
        if self._read == 10 and not Path("more").exists():
            await asyncio.sleep(0.01)
            return []
        self._read += 1
        return ["foo"]

    def position(self):
        return self._read

    async def close(self):
        pass


class Twenty(Source):
    def splits(self):
        return [Split(str(number), {}) for number in range(20)]

    async def open(self, split, position, ctx):
        return Reader(position)


job = Job("foo")
(
    job.source(Twenty(), uid="splits")
    .key_by(lambda word: word)
    .count(uid="counts")
    .sink(FileSink("out", format="jsonl"), uid="out")
)
"""


def test_ac01_a_key_from_20_splits_stays_one_key_through_a_savepoint_other_salts_and_another_parallelism(
    shell: Shell,
) -> None:
    shell.write("job.py", SPLITS)
    # Each process draws its own salt.
    shell.environment["PYTHONHASHSEED"] = "random"
    running = shell.start("run", "job.py", "-p", "4", "--json", "--set", "checkpoint.interval=100ms")
    running.wait_until(lambda: len(committed(shell.folder / "out")) == 200, "200 rows")
    workers = len(shell.worker_pids("foo"))
    savepoint = shell.run_ok("stop", "foo", "--to", "saved", "--json").json()["path"]
    before = sorted(committed(shell.folder / "out"))
    (shell.folder / "more").touch()

    shell.run_ok("run", "job.py", "-p", "3", "--from", savepoint)

    assert workers == 4
    assert before == [["foo", count] for count in range(1, 201)]
    assert sorted(committed(shell.folder / "out")) == [["foo", count] for count in range(1, 301)]


ORDERED = """
from flowpoint import Job, KeyedProcessFunction, ValueState
from flowpoint.connectors import FileSink, SequenceSource


class Number(KeyedProcessFunction):
    last = ValueState("last", default=-1)

    def process(self, n, ctx):
        yield ctx.key, self.last.value, n
        self.last.value = n


job = Job("ordered")
(
    job.source(SequenceSource(0, 30_000), uid="numbers", parallelism=1)
    .key_by(lambda n: n % 100)
    .process(Number(), uid="order")
    .sink(FileSink("out", format="jsonl"), uid="out")
)
"""


def test_ac02_batches_flushed_by_time_beside_checkpoints_drop_nothing_and_keep_the_order(shell: Shell) -> None:
    shell.write("job.py", ORDERED)
    settings = ("buffer_timeout=1ms", "batch_size=7", "checkpoint.interval=10ms", "state.backend=heap")

    shell.run_ok("run", "job.py", "-p", "2", *(word for setting in settings for word in ("--set", setting)))

    steps = defaultdict(dict)
    for key, last, n in committed(shell.folder / "out"):
        assert last not in steps[key], f"key {key}: {last} was followed twice"
        steps[key][last] = n
    for key, following in steps.items():
        n, seen = -1, []
        while n in following:
            n = following[n]
            seen.append(n)
        # One split after the other, each of them in order.
        assert sorted(seen) == list(range(key, 30_000, 100))
        assert sum(after < before for before, after in pairwise(seen)) < 16
    assert len(steps) == 100


LOG = """
import asyncio
from flowpoint import END, Job, Source, SourceReader, Split
from flowpoint.connectors import FileSink


class Reader(SourceReader):
    def __init__(self, position):
        self._position = position or 0

    async def read(self, n):
        lines = open("log").read().splitlines()[self._position :]
        if not lines:
            await asyncio.sleep(0.01)
            return []
        self._position += 1
        open("read", "a").write(lines[0] + "\\n")
        return END if lines[0] == "end" else [int(lines[0])]

    def position(self):
        return self._position

    async def close(self):
        pass


class Log(Source):
    def splits(self):
        return [Split("log", {})]

    async def open(self, split, position, ctx):
        return Reader(position)


job = Job("log")
(
    job.source(Log(), uid="log", parallelism=1)
    .key_by(lambda n: 0)
    .sum(lambda n: n, uid="sum")
    .sink(FileSink("out", format="jsonl"), uid="out")
)
"""


def lines_of(shell: Shell, name: str) -> list[str]:
    """The lines of a file in the working directory; none when it is not there yet."""
    path = shell.folder / name
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_ac05_after_a_kill_only_what_no_checkpoint_covers_is_read_again(shell: Shell, backend: str) -> None:
    shell.write("job.py", LOG)
    shell.write("log", "1\n2\n3\n")
    command = ("run", "job.py", "-p", "1", "--json", "--set", f"state.backend={backend}")
    first = shell.start(*command, "--set", "checkpoint.interval=0")
    first.wait_until(lambda: lines_of(shell, "read") == ["1", "2", "3"], "reading of the whole log")
    shell.run_ok("checkpoint", "log")
    first.kill()

    shell.write("log", "1\n2\n3\n4\nend\n")
    done = shell.run(*command)

    assert done.code == 0, done
    assert lines_of(shell, "read") == ["1", "2", "3", "4", "end"]
    assert sorted(committed(shell.folder / "out")) == [[0, 1], [0, 3], [0, 6], [0, 10]]


@pytest.mark.parametrize("ending", ["stop", "interrupt"])
def test_ac12_after_a_graceful_stop_nothing_is_read_again(shell: Shell, ending: str) -> None:
    shell.write("job.py", LOG)
    shell.write("log", "1\n2\n3\n")
    command = ("run", "job.py", "-p", "2", "--json")
    first = shell.start(*command)
    first.wait_until(lambda: lines_of(shell, "read") == ["1", "2", "3"], "reading of the whole log")
    if ending == "stop":
        shell.run_ok("stop", "log")
    else:
        first.interrupt()
    assert first.wait().code == (0 if ending == "stop" else 130)
    assert sorted(committed(shell.folder / "out")) == [[0, 1], [0, 3], [0, 6]]

    shell.write("log", "1\n2\n3\n4\nend\n")
    shell.run_ok(*command)

    assert lines_of(shell, "read") == ["1", "2", "3", "4", "end"]
    assert sorted(committed(shell.folder / "out")) == [[0, 1], [0, 3], [0, 6], [0, 10]]


TAIL = """
from flowpoint import Job
from flowpoint.connectors import FileSink, SequenceSource

job = Job("tail")
(
    job.source(SequenceSource(0, 1000), uid="numbers")
    .key_by(lambda n: n)
    .count(uid="counts")
    .sink(FileSink("out", format="jsonl"), uid="out")
)
"""


def test_ac24_the_end_of_input_commits_the_tail(shell: Shell) -> None:
    shell.write("job.py", TAIL)

    shell.run_ok("run", "job.py", "-p", "2", "--set", "checkpoint.interval=1h")

    assert sorted(committed(shell.folder / "out")) == [[n, 1] for n in range(1000)]
    assert not [path for path in (shell.folder / "out").iterdir() if path.name.startswith(".part")]


UNHEARD = """
import os
from flowpoint import Job
from flowpoint.connectors import FileSink, SequenceSource


class Unheard(FileSink):
    async def commit(self, committable, ctx):
        await super().commit(committable, ctx)
        mark = f"unheard-{ctx.subtask}"
        times = os.path.getsize(mark) if os.path.exists(mark) else 0
        if times < 2:
            open(mark, "a").write("x")
            raise ConnectionError(f"the answer of commit {times} was lost")


job = Job("unheard")
(
    job.source(SequenceSource(0, 100_000, rate=50_000), uid="ids")
    .key_by(lambda n: n)
    .count(uid="counts")
    .sink(Unheard("out", format="jsonl"), uid="out")
)
"""


def test_ac27_a_commit_whose_answer_is_lost_twice_in_a_row_doubles_nothing(shell: Shell) -> None:
    shell.write("job.py", UNHEARD)

    settings = ("checkpoint.interval=200ms", "restart.delay=100ms", "state.backend=heap")
    done = shell.run(
        *("run", "job.py", "-p", "6", "--workers", "2"),
        *(word for one in settings for word in ("--set", one)),
        timeout=60,
    )

    assert done.code == 0, done
    assert Counter(map(json.dumps, committed(shell.folder / "out"))) == Counter(f"[{n}, 1]" for n in range(100_000))
    assert [len(path.read_text()) for path in shell.folder.glob("unheard-*")] == [2] * 6
