"""The simulated machine and its processes: start, kill, pause, power failure; and the random streams of a run.

A process is a function, `programs[role](host, args)`, run as a task whose context names the process as its owner. All
that it starts inherits the context. Killing it only marks the owner dead: its callbacks are dropped by the loop, its
links are reset, a tail of its unsynced writes is lost, its children die soon after, whoever waits for it hears of it.
No `finally` runs. A paused process (SIGSTOP) keeps everything; its callbacks, timers and heartbeats are held.

Each kind of chance has its own stream, so that one more draw in one place does not change all others.

Invariants:
- A dead process changes nothing: each call on its host raises `ProcessGone`.
- A child outlives its parent by at most `ORPHAN_DELAY` seconds.
- Errors that nobody awaits, and things left open by a main that returned, are kept in `complaints` and fail the run.

Not here: which faults happen when (`faults`), what must hold (`checkers`).
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextvars import Context
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, TypeAlias, TypeVar

from flowpoint.errors import FlowPointError
from flowpoint.sim.disk import DiskFaults, SimOpenFile
from flowpoint.sim.files import FileSystem
from flowpoint.sim.host import SimHost
from flowpoint.sim.loop import STEP_LIMIT_DEFAULT, SimLoop, collect_garbage
from flowpoint.sim.network import Network, SimLink
from flowpoint.sim.tasks import OWNER, Owner
from flowpoint.sim.trace import Trace
from flowpoint.sim.user_code import USER_TROUBLE, UserTrouble

T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000
FIRST_PID = 1000
ORPHAN_DELAY = 0.02
REAP_DELAY = (0.0005, 0.005)
SIGKILL = -9
MOVING = "killed while restored state was still moving"
"""The mark of a worker's death before all restored state had come from its files into the backend."""

Program: TypeAlias = Callable[[SimHost, Sequence[str]], Coroutine[Any, Any, int | None]]
Phase: TypeAlias = Literal["before", "after"]


class ProcessGone(BaseException):
    """Code of a dead process called its host. Not an Exception, so that nothing handles it."""


class InvariantBroken(AssertionError):
    """The code under test did what it must never do."""


@dataclass(frozen=True, slots=True)
class Point:
    """A moment at which a process can be killed: `before` or `after` an operation takes effect."""

    process: SimProcess
    operation: str
    subject: str
    phase: Phase


class SimProcess(Owner):
    """One incarnation of a program."""

    def __init__(self, world: SimWorld, role: str, args: Sequence[str], parent: SimProcess | None, pid: int) -> None:
        serial = world.next_process_serial()
        super().__init__(f"{role}#{serial}", serial)
        self.world = world
        self.role = role
        self.args = tuple(args)
        self.parent = parent
        self.pid = pid
        self.start_time = EPOCH_MS / 1000 + world.loop.time()
        self.exit_code: int | None = None
        self.exit_reason = ""
        self.log_path: str | None = None
        self.links: dict[int, SimLink] = {}
        self.doing: dict[int, tuple[str, str]] = {}
        self.opened: set[SimOpenFile] = set()
        self.context = Context()
        self.context.run(OWNER.set, self)
        self.context.run(USER_TROUBLE.set, world.user_trouble)
        self.host = SimHost(world, self)
        self._waiters: list[asyncio.Future[int]] = []

    def require_alive(self, call: str) -> None:
        """Refuse a call of a dead process."""
        if not self.alive:
            raise ProcessGone(f"{self.name} is dead and cannot call {call}")

    def activity(self) -> str:
        """The operations that are under way, by name."""
        return ", ".join(sorted({operation for operation, _ in self.doing.values()})) or "no operation"

    def tell(self, text: str) -> None:
        """Add a line about this process to the story."""
        self.world.trace.tell(self.name, text)

    def write_log(self, text: str) -> None:
        """Append to the process's log file, as the system does with its standard error."""
        if self.log_path is not None:
            self.world.files.append(self.world.files.file(self.log_path), f"{text}\n".encode())

    def on_system_exit(self, code: int) -> None:
        self.world.exit(self, code, "it called sys.exit")

    async def perform(
        self, operation: str, subject: str, attempt: Callable[[], T], effect_delay: float, answer_delay: float
    ) -> T:
        """Let `attempt` happen after a delay, its answer be known after another; the process may die anywhere.

        Cancelling the caller does not stop the effect, as with a thread.
        """
        loop = self.world.loop
        answer: asyncio.Future[T] = loop.create_future()
        key = loop.next_serial()
        self.doing[key] = (operation, subject)

        def effect() -> None:
            deliver: Callable[[], None]
            try:
                result = attempt()
            except Exception as error:  # noqa: BLE001 - whatever it is belongs to the caller
                failure = error

                def deliver() -> None:
                    self._settle(key, answer, lambda: answer.set_exception(failure))
            else:

                def deliver() -> None:
                    self._settle(key, answer, lambda: answer.set_result(result))

            self.world.reach(Point(self, operation, subject, "after"))
            if self.alive:
                loop.call_later(answer_delay, deliver)

        self.world.reach(Point(self, operation, subject, "before"))
        if self.alive:
            loop.call_later(effect_delay, effect)
        return await answer

    async def wait_exit(self) -> int:
        """The exit code, once the process has ended and that was noticed."""
        if self.exit_code is None:
            waiter: asyncio.Future[int] = self.world.loop.create_future()
            self._waiters.append(waiter)
            return await waiter
        return self.exit_code

    def wake_waiters(self) -> None:
        """Tell those who wait that the process has ended."""
        assert self.exit_code is not None
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(self.exit_code)
        self._waiters.clear()

    def leftovers(self) -> list[str]:
        """What a main that returned should have closed: tasks, links, listeners, files."""
        tasks = [task.place() for task in self.world.loop.tasks_of(self) if task is not asyncio.current_task()]
        listeners = [f"listener {one.address}" for one in self.world.network.listeners.values() if one.owner is self]
        links = [f"link to {link.peer.name}" for link in self.links.values()]
        files = [f"file {path}" for path, file in self.world.files.walk("/") if file.writer is self]
        opened = sorted(f"file {one.path}, open to be read" for one in self.opened)
        return tasks + listeners + links + files + opened

    def _settle(self, key: int, answer: asyncio.Future[T], settle: Callable[[], None]) -> None:
        self.doing.pop(key, None)
        if not answer.done():
            settle()


class SimWorld:
    """One simulated machine in one run."""

    def __init__(
        self,
        seed: int,
        *,
        fifo: bool = False,
        step_cost: float = 1e-5,
        step_limit: int = STEP_LIMIT_DEFAULT,
        reuse_pids: bool = False,
        echo: Callable[[str], None] | None = None,
    ) -> None:
        self.seed = seed
        # mypy does not see that the loop sets its fences, the remaining abstract methods, below its class.
        self.loop = SimLoop(  # type: ignore[abstract]
            None if fifo else self.stream("order"), step_cost=step_cost, step_limit=step_limit
        )
        self.loop.on_unhandled = self._on_unhandled
        self.trace = Trace(self.loop.time, echo)
        self.loop.on_step = self.trace.on_step
        self.ids = self.stream("ids")
        self.delays = self.stream("delays")
        self.network = Network(self.stream("network"))
        self.files = FileSystem(self.stream("disk"), self.wall_ms)
        self.disk_faults = DiskFaults()
        self.user_trouble = UserTrouble(self.stream("user code"))
        self.programs: dict[str, Program] = {}
        self.processes: list[SimProcess] = []
        self.complaints: list[str] = []
        self.wall_skew_ms = 0
        self._reuse_pids = reuse_pids
        self._point_watchers: list[Callable[[Point], None]] = []

    def stream(self, name: str) -> Random:
        """A random stream of its own for one kind of chance."""
        return Random(f"{self.seed}:{name}")

    def wall_ms(self) -> int:
        """The wall clock of the machine."""
        return EPOCH_MS + int(self.loop.time() * 1000) + self.wall_skew_ms

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run the world until `main`, which belongs to no process, is done."""
        return self.loop.run_until_complete(main)

    def close(self) -> None:
        """End the world: every process is dead, memory is given back."""
        for process in self.living():
            process.alive = False
        self.loop.dispose()
        collect_garbage()

    def fail(self, error: BaseException) -> None:
        """End the run with this error before anybody takes another step."""
        self.loop.abort(error)

    # ------------------------------------------------------------------ processes

    def living(self) -> list[SimProcess]:
        """The processes that are alive, oldest first."""
        return [process for process in self.processes if process.alive]

    def process_of(self, host: SimHost) -> SimProcess:
        """The process that a host belongs to."""
        return next(process for process in self.processes if process.host is host)

    def next_process_serial(self) -> int:
        """A number for the next process, from 1."""
        return len(self.processes) + 1

    def start(
        self, role: str, args: Sequence[str], parent: SimProcess | None = None, log_path: str | None = None
    ) -> SimProcess:
        """Start a program as a new process. Its last words go to the file at `log_path`, which is made if missing."""
        program = self.programs[role]
        if log_path is not None and self.files.find(log_path) is None:
            self.files.create(log_path, None)
        process = SimProcess(self, role, args, parent, self._new_pid())
        self.processes.append(process)
        process.tell(f"starts, pid {process.pid}" + (f", child of {parent.name}" if parent is not None else ""))
        process.log_path = log_path
        context = process.context.copy()
        self.loop.create_task(self._run_main(process, program), name="main", context=context)
        return process

    def kill(self, process: SimProcess, why: str) -> None:
        """SIGKILL. Nothing happens when it has ended."""
        if not process.alive:
            return
        if process.opened:
            # A worker reads restored state where it lies until all of it has moved into its backend.
            self.trace.mark(MOVING)
        self._end(process, SIGKILL, f"killed {why}, during {process.activity()}")

    def exit(self, process: SimProcess, code: int, why: str) -> None:
        """The process ends by itself."""
        if process.alive:
            self._end(process, code, f"exits with {code}: {why}")

    def pause(self, process: SimProcess) -> None:
        """SIGSTOP."""
        if process.alive and not process.paused:
            process.paused = True
            process.tell("is stopped (SIGSTOP)")

    def resume(self, process: SimProcess) -> None:
        """SIGCONT."""
        if process.alive and process.paused:
            process.paused = False
            process.tell("goes on (SIGCONT)")
            self.loop.release(process)

    def power_failure(self) -> None:
        """The machine goes dark: all processes end, what was not durable is lost in part or whole."""
        self.trace.tell("world", "power failure")
        for process in self.living():
            self.trace.mark(f"power failure: {process.role} in {process.activity()}")
            self.kill(process, "by the power failure")
        self.files.power_failure()

    def heal(self) -> None:
        """End all faults that last: paused processes go on; disk, network and users' functions are well."""
        self.disk_faults.heal()
        self.network.heal()
        self.user_trouble.heal()
        for process in self.living():
            self.resume(process)

    # ------------------------------------------------------------------ points and complaints

    def watch_points(self, callback: Callable[[Point], None]) -> None:
        """Call back before and after each operation of a process; the callback may kill it there."""
        self._point_watchers.append(callback)

    def reach(self, point: Point) -> None:
        """A process has reached a point."""
        for callback in self._point_watchers:
            callback(point)

    def complain(self, text: str) -> None:
        """Note something that must not happen in any run, but does not end it at once."""
        self.trace.tell("world", f"COMPLAINT: {text}")
        self.complaints.append(text)

    def _on_unhandled(self, owner: Owner | None, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if owner is None:
            self.fail(error if error is not None else RuntimeError(str(context.get("message"))))
        elif owner.alive and not isinstance(error, ProcessGone):
            detail = "".join(traceback.format_exception(error)) if error is not None else ""
            self.complain(f"{owner.name}: {context.get('message')}\n{detail}".rstrip())

    # ------------------------------------------------------------------ life and death

    async def _run_main(self, process: SimProcess, program: Program) -> None:
        try:
            code = await program(process.host, process.args) or 0
        except Exception as error:  # noqa: BLE001 - the main of a process: whatever it is ends the process
            if not process.alive:
                # The world is being torn down; what coroutines say to that matters to nobody.
                return
            trace = "".join(traceback.format_exception(error)).rstrip()
            process.tell(trace)
            process.write_log(trace)
            if not all(isinstance(leaf, FlowPointError | OSError) for leaf in _leaves(error)):
                self.complain(f"{process.name} found a bug in itself: {trace}")
            self.exit(process, 1, f"{type(error).__name__}: {error}")
            return
        for leftover in process.leftovers():
            self.complain(f"{process.name} returned from its main and left behind: {leftover}")
        self.exit(process, code, "its main returned")

    def _end(self, process: SimProcess, code: int, text: str) -> None:
        process.tell(text)
        process.alive = process.paused = False
        process.held.clear()
        process.exit_code, process.exit_reason = code, text
        self.network.drop_process(process, f"connection reset: {process.name} has ended")
        self.files.crash_writer(process)
        self._later(self.delays.uniform(*REAP_DELAY), process.wake_waiters)
        for child in self.living():
            if child.parent is process:
                self._later(self.delays.uniform(0, ORPHAN_DELAY), self.kill, child, "as its parent is dead")

    def _later(self, delay: float, callback: Callable[..., None], *args: Any) -> None:
        # An empty context: these belong to the world, also when a process caused them.
        self.loop.call_later(delay, callback, *args, context=Context())

    def _new_pid(self) -> int:
        taken = {process.pid for process in (self.living() if self._reuse_pids else self.processes)}
        pid = FIRST_PID
        while pid in taken:
            pid += 1
        return pid


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors inside (nested) exception groups."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error
