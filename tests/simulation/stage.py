"""A simulated machine with one job on it, for named cases: a short script starts, waits, kills and looks.

    stage = Stage(JOB, settings(parallelism=2))

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.completed(1))
        stage.kill(run)
        ...

    stage.play(script())

All checkers watch, and whatever they find fails the test.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from flowpoint.coordinator.job import Wishes
from flowpoint.launch.jobfile import JobSource
from flowpoint.model import messages
from flowpoint.model.settings import CheckpointSettings, HeartbeatSettings, RestartSettings, Settings, StateSettings
from flowpoint.sim.checkers import StorageChecker
from flowpoint.sim.faults import FaultKind
from flowpoint.sim.job import ROOT, install
from flowpoint.sim.jobs import JOB_FILE, OUTPUT, STORAGE
from flowpoint.sim.message_checker import MessageChecker
from flowpoint.sim.network import SimLink
from flowpoint.sim.output_checkers import OutputChecker
from flowpoint.sim.scenario import read_output
from flowpoint.sim.topologies import Row
from flowpoint.sim.world import Point, SimProcess, SimWorld
from flowpoint.transport.control import decode_message, encode_message
from tests.simulation.witness import LOG, witness

HEAD = """\
from flowpoint import Job, KeyedProcessFunction, MapState, ValueState
from flowpoint.connectors import CollectionSource, FileSink, FileSource, SequenceSource
from flowpoint.runtime.contracts import Split
from tests.simulation.witness import CommitFailsSink, CommitNotHeardSink, HangingSink, LogSource, RefusingSink, see
from tests.simulation.witness import LateSink, PreparedRowsSink, SlowlyRefusingSink

job = Job("simulated")
"""
SINK = f'FileSink("{OUTPUT}", format="jsonl"), uid="out"'


def settings(
    parallelism: int = 1, *, workers: int = 0, restart_strategy: str = "exponential", **checkpoint: Any
) -> Settings:
    """Settings with a checkpoint each 50 ms, unless told otherwise."""
    chosen = {"interval": 0.05, "timeout": 5.0, "retained": 3, "storage": f"file://{STORAGE}", **checkpoint}
    return Settings(
        parallelism=parallelism,
        workers=workers or parallelism,
        batch_size=16,
        checkpoint=CheckpointSettings(**chosen),
        state=StateSettings(backend="heap"),
        restart=RestartSettings(strategy=restart_strategy, delay=0.1),
        heartbeat=HeartbeatSettings(interval=0.5, timeout=5.0),
    )


class Stage:
    """One world and one job. `seed` decides the schedule."""

    def __init__(
        self,
        text: str,
        chosen: Settings,
        *,
        seed: int = 1,
        files: Mapping[str, bytes] | None = None,
        output: str = SINK,
        checked: bool = True,
    ) -> None:
        """`checked`: for one job in its own storage; where several share a target a checker would take them for one."""
        witness.reset()
        self.world = SimWorld(seed)
        for path, data in (files or {}).items():
            self.world.files.write_whole(path, data)
        self.storage = StorageChecker(self.world, STORAGE)
        if checked:
            OutputChecker(self.world, OUTPUT, self.storage)
            MessageChecker(self.world, self.storage)
        self._output = output
        self._programs = install(self.world, self._job_file(text), chosen, JOB_FILE, STORAGE)

    def _job_file(self, text: str) -> str:
        return f"{HEAD}\n{text.replace('SINK', self._output)}\n"

    # ------------------------------------------------------------------ running

    def play(self, script: Coroutine[Any, Any, None]) -> None:
        """Run the script to its end; then nobody may have complained."""
        try:
            self.world.run(script)
            assert self.world.complaints == []
        finally:
            self.world.close()

    def start(self) -> SimProcess:
        """`flowpoint run job.py`."""
        return self.world.start(ROOT, ())

    def rewrite(self, text: str) -> None:
        """The job file is another one from now on."""
        self._programs.source = JobSource(JOB_FILE, self._job_file(text).encode())

    def wish(self, wishes: Wishes) -> None:
        """The flags of the next `run`."""
        self._programs.wishes = wishes

    async def finish(self, run: SimProcess, code: int = 0) -> None:
        """Wait until the command has ended."""
        async with asyncio.timeout(120):
            assert await run.wait_exit() == code, run.exit_reason
        await self.all_dead()

    async def until(self, condition: Callable[[], object], seconds: float = 30.0) -> None:
        """Wait for something."""
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.001)

    async def all_dead(self) -> None:
        await self.until(lambda: not self.world.living())

    # ------------------------------------------------------------------ doing harm

    def kill(self, process: SimProcess) -> None:
        """kill -9."""
        self.world.kill(process, "by the script")

    def kill_all(self) -> None:
        """kill -9 of everybody."""
        for process in self.world.living():
            self.kill(process)

    def workers(self) -> list[SimProcess]:
        """The living workers, oldest first."""
        return [process for process in self.world.living() if process.role == "worker"]

    def on_point(self, operation: str, subject: str, act: Callable[[SimProcess], None], *, after: bool = True) -> None:
        """Do something the first time that an operation is done to something."""
        done: list[Point] = []

        def watch(point: Point) -> None:
            is_right = operation == point.operation and subject in point.subject
            if not done and is_right and (point.phase == "after") is after:
                done.append(point)
                act(point.process)

        self.world.watch_points(watch)

    def on_message(self, kind: type, act: Callable[[SimLink, Any], object], *, once: bool = False) -> None:
        """Do something whenever such a control message is about to be sent. `once`: until `act` returns True."""
        done: list[bool] = []
        start = bytes((0x92, 0xA0 + len(kind.__name__))) + kind.__name__.encode()

        def watch(link: SimLink, frame: bytes) -> None:
            if frame.startswith(start) and not done:
                message = decode_message(frame)
                if type(message) is kind and act(link, message) is True and once:
                    done.append(True)

        self.world.network.watch(watch)

    def slip_in(self, sender: SimProcess, receiver: SimProcess, message: messages.Message) -> None:
        """Let a message arrive that the sender would not say now. The checkers do not hear it."""
        # The first of two links: the other one is for heartbeats.
        control = next(link for link in sender.links.values() if link.peer is receiver)
        control._out.put(encode_message(message))

    def ask_to_stop(self) -> None:
        """Ctrl-C."""
        self._programs.ask(FaultKind.ASK_STOP)

    def ask_to_cancel(self) -> None:
        """Ctrl-C once more."""
        self._programs.ask(FaultKind.ASK_CANCEL)

    def ask_for(self, what: FaultKind) -> None:
        """`flowpoint savepoint` and its like."""
        self._programs.ask(what)

    def start_with(self, parallelism: int) -> SimProcess:
        """`flowpoint run job.py --parallelism ...`."""
        self._programs.settings = replace(self._programs.settings, parallelism=parallelism)
        return self.start()

    def start_from(self, snapshot: str, storage: str, *, claim: bool = False) -> SimProcess:
        """`flowpoint run job.py --from snapshot --take-output`, with checkpoints in another storage from now on."""
        self._programs.storage = storage
        self._programs.wishes_once = Wishes(source=snapshot, claim=claim, take_output=True)
        return self.start()

    # ------------------------------------------------------------------ looking

    def completed(self, count: int) -> bool:
        """Whether that many checkpoints are in the commit log."""
        return len([one for one in self.storage.commits.values() if one.kind == "checkpoint"]) >= count

    def output(self) -> Counter[Row]:
        """The committed rows."""
        return read_output(self.world)

    def append(self, line: object) -> None:
        """Add a line to the log that `LogSource` reads."""
        file = self.world.files.file(LOG)
        self.world.files.append(file, f"{line}\n".encode())
        self.world.files.sync(file, LOG)

    def story(self, *words: str) -> list[str]:
        """The lines of the story in which all these words are."""
        return [line for line in self.world.trace.lines if all(word in line for word in words)]


__all__ = ["LOG", "SINK", "Stage", "messages", "settings", "witness"]
