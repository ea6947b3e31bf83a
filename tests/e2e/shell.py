"""A person at a shell, for tests: runs `flowpoint ...` in real processes with a home and a folder of its own.

Nothing outlives the test: coordinators that still run are killed at the end, and their workers have to follow by
themselves; a test whose job leaves a process behind fails. A command that does not end in time fails the test with
everything it has printed. Tests wait for events and conditions, with a deadline, never for time to pass.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from flowpoint.errors import NotFoundError, TransientError
from flowpoint.launch.client import JobClient
from flowpoint.launch.home import Home

ROOT = Path(__file__).parents[2]
LOOK_SECONDS = 0.02
LEFT_SECONDS = 5.0


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """The first line on stderr."""
        return self.err.partition("\n")[0]

    def json(self) -> Any:
        """What it printed, as data."""
        return json.loads(self.out)

    def __str__(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class Running:
    """A command that has been started. Its output goes to files, so that it never waits for a reader."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path, err: Path, line: str) -> None:
        self.process = process
        self._out, self._err, self._line = out, err, line

    @property
    def pid(self) -> int:
        """Its process, which for `run` is the coordinator."""
        return self.process.pid

    def so_far(self) -> Done:
        """What it has printed until now; the code is -1 while it runs."""
        code = self.process.poll()
        return Done(-1 if code is None else code, *(p.read_text(errors="replace") for p in (self._out, self._err)))

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """What a `run --json` has told until now; with `kind` only events of this kind."""
        whole = self._out.read_text(errors="replace").rpartition("\n")[0]
        events = [json.loads(line) for line in whole.splitlines()]
        return [event for event in events if kind is None or event["event"] == kind]

    def wait_for(self, kind: str, count: int = 1, timeout: float = 20) -> dict[str, Any]:
        """The `count`-th event of a kind that a `run --json` tells."""
        self.wait_until(lambda: len(self.events(kind)) >= count, f"event {kind} ({count})", timeout)
        return self.events(kind)[count - 1]

    def wait_until(self, condition: Callable[[], object], what: str, timeout: float = 20) -> None:
        """Until something is true while the command runs."""
        end = time.monotonic() + timeout
        while not condition():
            if self.process.poll() is not None and not condition():
                raise AssertionError(f"`{self._line}` ended before {what}: {self.so_far()}")
            assert time.monotonic() < end, f"`{self._line}`: no {what} within {timeout:g} s: {self.so_far()}"
            time.sleep(LOOK_SECONDS)

    def wait(self, timeout: float = 30) -> Done:
        """Until it ends by itself."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"`{self._line}` did not end within {timeout:g} s\n{self.so_far()}") from None
        return self.so_far()

    def signal(self, number: signal.Signals) -> None:
        """As Ctrl-C (SIGINT) or `kill` does."""
        self.process.send_signal(number)

    def interrupt(self) -> None:
        """Ctrl-C at a terminal: the whole process group gets it."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        """`kill -9`, of this process only: its workers have to notice by themselves."""
        self.process.kill()
        self.process.wait()


class Shell:
    """A working directory, a home, and the `flowpoint` command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = Home(folder / "home")
        self.prefix: tuple[str, ...] = ()
        """What goes before the command: it has to `exec` what follows it."""
        self._started: list[Running] = []
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FLOWPOINT_")}
        self.environment = {**kept, "FLOWPOINT_HOME": str(self.home.root), "PYTHONPATH": str(ROOT)}

    def move_home(self, where: str) -> None:
        """Use another home, below the working directory."""
        self.home = Home(self.folder / where)
        self.environment["FLOWPOINT_HOME"] = str(self.home.root)

    def write(self, name: str, text: str) -> Path:
        """A file in the working directory."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def start(self, *arguments: str) -> Running:
        """Start `flowpoint <arguments>`."""
        line = " ".join(["flowpoint", *arguments])
        out, err = (self.folder / f".{len(self._started)}.{name}" for name in ("out", "err"))
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "flowpoint", *arguments],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        running = Running(process, out, err, line)
        self._started.append(running)
        return running

    def run(self, *arguments: str, timeout: float = 30) -> Done:
        """Run `flowpoint <arguments>` to its end."""
        return self.start(*arguments).wait(timeout)

    def run_ok(self, *arguments: str, timeout: float = 30) -> Done:
        """The same, for a command that has to succeed."""
        done = self.run(*arguments, timeout=timeout)
        # Test reports are UTF-8, which names of files need not be.
        assert done.code == 0, f"`flowpoint {' '.join(arguments)}`: {done}".encode(errors="backslashreplace").decode()
        return done

    def status(self, job: str) -> dict[str, Any]:
        """The status of a job that runs, from itself: an interpreter for each look would take longer than most jobs."""
        data: dict[str, Any] = JobClient.of(self.home, job).get("/status")
        return data

    def worker_pids(self, job: str) -> list[int]:
        """The workers that one may kill, from the job itself."""
        return [worker["pid"] for worker in JobClient.of(self.home, job).get("/workers") if worker["pid"]]

    def recorded_workers(self, job: str) -> list[int]:
        """The same from the record of the run: quicker, and also when the coordinator is gone."""
        record = self.home.job(job).read_run()
        return [worker.pid for worker in record.workers] if record is not None else []

    def wait_for_status(
        self, job: str, condition: Callable[[dict[str, Any]], object], timeout: float = 30
    ) -> dict[str, Any]:
        """Ask for the status until it is as wanted. A job that does not answer (yet) is asked again."""
        end = time.monotonic() + timeout
        seen: object = None
        while time.monotonic() < end:
            try:
                seen = status = self.status(job)
                if condition(status):
                    return status
            except (NotFoundError, TransientError) as error:
                seen = error
            time.sleep(LOOK_SECONDS)
        printed = [str(running.so_far()) for running in self._started]
        raise AssertionError(f"job {job!r} did not become as wanted within {timeout:g} s: {seen}; {printed}")

    def processes(self) -> list[psutil.Process]:
        """Every process that belongs to this home and has not ended: coordinators, workers, commands."""
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            with contextlib.suppress(psutil.Error):
                is_ours = str(self.home.root) in " ".join(process.info["cmdline"] or ()) or process.pid in self._pids()
                if is_ours and process.info["status"] != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def workers(self) -> list[psutil.Process]:
        """Every worker process of this home that has not ended, however young."""
        return [process for process in self.processes() if "worker_main" in command_line(process)]

    def _pids(self) -> set[int]:
        records = [self.home.job(name).read_run() for name in self.home.known_jobs()]
        return {running.pid for running in self._started} | {r.process.pid for r in records if r and not r.outcome}

    def close(self) -> None:
        """Kill what still runs, except workers: they have to notice that, and a test that leaves one behind fails."""
        for running in self._started:
            if running.process.poll() is None:
                running.kill()
        for process in self.processes():
            if "worker_main" not in command_line(process):
                with contextlib.suppress(psutil.NoSuchProcess):  # it may end by itself meanwhile
                    process.kill()
        end = time.monotonic() + LEFT_SECONDS
        while left := self.processes():
            if time.monotonic() > end:
                described = [f"{process.pid}: {command_line(process)}" for process in left]
                for process in left:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
                raise AssertionError(f"left behind: {described}")
            time.sleep(LOOK_SECONDS)


def command_line(process: psutil.Process) -> str:
    """As it was when `Shell.processes` listed it: asked for again, a process that has ended meanwhile has none."""
    return " ".join(process.info["cmdline"] or ())


def committed(folder: Path) -> list[Any]:
    """The records in the committed files of a jsonl sink, in no particular order."""
    return [json.loads(line) for part in sorted(folder.glob("part-*")) for line in part.read_text().splitlines()]
