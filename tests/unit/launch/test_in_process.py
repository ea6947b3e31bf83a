"""`Job.run()`: a job in the calling process."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import uvloop

from flowpoint import Job
from flowpoint.connectors import CallbackSink, CollectionSource, FileSink, SequenceSource
from flowpoint.coordinator.job import Wishes
from flowpoint.errors import FlowPointError, ForeignOutputError, StorageError, UserCodeError
from flowpoint.host.system import SystemHost
from flowpoint.launch import in_process
from flowpoint.launch.keyboard import Keyboard


def doubling(values: list[int], out: list[Any], **config: Any) -> Job:
    job = Job("doubling", config=config)
    job.source(CollectionSource(values), uid="in").map(lambda n: 2 * n).sink(CallbackSink(out.append), uid="out")
    return job


def test_a_job_runs_to_its_end_and_closures_work() -> None:
    out: list[int] = []

    doubling([1, 2, 3], out).run()

    assert out == [2, 4, 6]


def test_a_job_runs_inside_a_running_loop_as_in_a_notebook() -> None:
    out: list[int] = []

    async def cell() -> None:
        doubling([1, 2, 3], out).run()

    asyncio.run(cell())

    assert out == [2, 4, 6]


def test_several_workers_in_one_process_count_as_a_plain_loop_does() -> None:
    out: list[tuple[int, int]] = []
    job = Job("counting", config={"parallelism": 3})
    keyed = job.source(SequenceSource(0, 300), uid="in").key_by(lambda n: n % 7)
    keyed.count(uid="counts").sink(CallbackSink(out.append), uid="out")

    job.run()

    assert sorted(out) == sorted((n % 7, n // 7 + 1) for n in range(300))


def test_checkpoints_can_be_in_memory(capsys: pytest.CaptureFixture[str]) -> None:
    out: list[int] = []

    doubling(list(range(100)), out, checkpoint={"storage": "memory", "interval": "10ms"}).run()

    assert sorted(out) == list(range(0, 200, 2))
    assert capsys.readouterr().out == ""


def test_a_job_outlives_the_heartbeat_timeout() -> None:
    out: list[int] = []
    job = Job("slow", config={"heartbeat": {"interval": "50ms", "timeout": "100ms"}})
    job.source(SequenceSource(0, 50, rate=100), uid="in").sink(CallbackSink(out.append), uid="out")

    job.run()

    assert sorted(out) == list(range(50))


def test_an_error_of_the_authors_own_function_is_raised_with_its_trace() -> None:
    job = Job("failing", config={"restart": {"strategy": "none"}})
    out: list[Any] = []
    job.source(CollectionSource([1, 0]), uid="in").map(lambda n: 1 / n, uid="invert").sink(
        CallbackSink(out.append), uid="out"
    )

    with pytest.raises(UserCodeError, match=r"'invert' \(map\) failed on record 0: ZeroDivisionError") as caught:
        job.run()

    assert "1 / n" in "".join(caught.value.__notes__)
    assert caught.value.__context__ is None


def writing(folder: Path, **config: Any) -> Job:
    job = Job("writing", config=config)
    job.source(SequenceSource(0, 10), uid="in").sink(FileSink(folder / "out", format="jsonl"), uid="out")
    return job


def written(folder: Path) -> list[int]:
    return sorted(int(line) for part in (folder / "out").glob("part-*") for line in part.read_text().splitlines())


def test_a_second_call_is_refused_the_output_of_the_first_until_it_is_told_to_take_it(tmp_path: Path) -> None:
    writing(tmp_path).run()

    with pytest.raises(ForeignOutputError, match=r"in Python: .*job.run\(take_output=True\)\)$"):
        writing(tmp_path).run()
    writing(tmp_path).run(take_output=True)

    assert written(tmp_path) == sorted([*range(10), *range(10)])


def test_a_job_with_a_storage_is_done_when_it_has_finished_and_can_start_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = {"storage": str(tmp_path / "checkpoints")}
    writing(tmp_path, checkpoint=storage).run()

    writing(tmp_path, checkpoint=storage).run()
    told = capsys.readouterr()
    assert written(tmp_path) == list(range(10))
    assert "had finished before" in told.err and "job.run(fresh=True)" in told.err
    assert told.out == ""

    shutil.rmtree(tmp_path / "out")
    writing(tmp_path, checkpoint=storage).run(fresh=True)
    assert written(tmp_path) == list(range(10))


def test_a_worker_that_ends_by_an_error_of_its_own_has_failed_the_job_and_has_closed_its_links(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed: list[str] = []
    close = SystemHost.close

    async def broken(*_: Any) -> None:
        raise RuntimeError("nobody expected this")

    async def seen_closing(host: SystemHost) -> None:
        closed.append(host.name)
        await close(host)

    monkeypatch.setattr(in_process, "worker_main", broken)
    monkeypatch.setattr(SystemHost, "close", seen_closing)

    with pytest.raises(FlowPointError, match="worker 0"):
        doubling([1], [], restart={"strategy": "none"}).run()

    assert closed == ["worker-0", "coordinator"]
    assert "nobody expected this" in capsys.readouterr().err


def test_what_keeps_the_coordinator_from_beginning_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise StorageError("the disk says no")

    monkeypatch.setattr(in_process, "open_place", refused)

    with pytest.raises(StorageError, match="the disk says no"):
        doubling([1], []).run()


def interrupted_after(out: list[Any], count: int = 3) -> Job:
    """A job that never ends by itself, and is interrupted once it has written `count` records."""
    job = Job("endless")

    def note(n: int) -> None:
        out.append(n)
        if n == count:
            signal.raise_signal(signal.SIGINT)

    job.source(SequenceSource(0, 10_000_000, rate=200), uid="in").sink(CallbackSink(note), uid="out")
    return job


def running_jobs() -> list[str]:
    """The threads that jobs run in."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("flowpoint job")]


def test_an_interrupt_ends_the_job_after_a_last_checkpoint(capfd: pytest.CaptureFixture[str]) -> None:
    out: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interrupted_after(out).run()

    said = capfd.readouterr().err.splitlines()
    assert said == [
        "flowpoint: interrupted: ending the job after a last checkpoint (interrupt once more to end it without one)"
    ]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_in_a_notebook_ends_the_job_and_its_thread(capfd: pytest.CaptureFixture[str]) -> None:
    job = Job("endless")
    flowing = threading.Event()
    job.source(SequenceSource(0, 10_000_000, rate=200), uid="in").sink(CallbackSink(lambda _: flowing.set()), uid="out")

    def interrupt() -> None:
        assert flowing.wait(30)
        os.kill(os.getpid(), signal.SIGINT)

    async def cell() -> None:
        with ThreadPoolExecutor(1) as person:
            person.submit(interrupt)
            job.run()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(cell())

    assert not running_jobs()
    assert "Traceback" not in capfd.readouterr().err


async def test_a_job_that_does_not_end_is_left_at_the_third_interrupt() -> None:
    asked: list[str] = []

    with Keyboard() as keyboard, keyboard.telling(lambda: asked.append("end")):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)

    assert asked == ["end", "end"]


def test_a_job_that_is_abandoned_says_nothing_of_its_workers(capfd: pytest.CaptureFixture[str]) -> None:
    """An error out of the loop itself, as the last interrupt is one: nobody is left to hear that workers end."""
    out: list[Any] = []
    job = doubling(list(range(10)), out, parallelism=2)
    loops: list[asyncio.AbstractEventLoop] = []
    job.source(SequenceSource(0, 10_000_000, rate=200), uid="more").sink(
        CallbackSink(lambda _: loops.append(asyncio.get_running_loop())), uid="there"
    )

    async def abandoned() -> None:
        run = asyncio.ensure_future(in_process._run(job, Wishes(), Keyboard()))
        while not loops:
            await asyncio.sleep(0.01)
        run.cancel()
        await asyncio.wait([run])

    uvloop.run(abandoned())

    assert capfd.readouterr().err == ""
