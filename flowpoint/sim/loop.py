"""An event loop with a virtual clock, a seeded order, and callbacks that can be taken away from a process that "dies".

Everything in asyncio goes through `call_soon` and `call_at`. Owning those two is owning order and time, so that
`asyncio.sleep`, `timeout`, `Queue`, `Event`, `Condition` and `TaskGroup` work unchanged. One step takes one ready
callback: the oldest (`order=None`) or one drawn by `order`. A step costs `step_cost` virtual seconds, so that busy code
cannot stop the clock; when nothing is ready, the clock jumps to the next timer.

A callback belongs to the `Owner` that stands in its own context. Callbacks of a dead owner are dropped when their turn
comes, those of a paused one are held until it goes on. Nothing is cancelled: a crash runs no `finally`.

Invariants:
- The same program with the same `order` takes the same steps, in any interpreter: tasks and futures hash by a serial
  number (sets of tasks are iterated by `TaskGroup` and `asyncio.wait`), timers are ordered by (when, serial).
- Tasks are strongly referenced until `dispose`, so that no `finally` of a dead process runs when memory is collected.
- Threads, sockets, signals and subprocesses are refused with a sentence.

Not here: owners and tasks (`tasks`), what a process is (`world`), the digest of a run (`trace`).
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import sys
import warnings
from asyncio import events
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context
from random import Random
from typing import Any, TypeVar, TypeVarTuple, Unpack, cast

from flowpoint.sim.tasks import OWNER, Owner, SimFuture, SimTask

T = TypeVar("T")
Args = TypeVarTuple("Args")

STEP_LIMIT_DEFAULT = 3_000_000
_TASKS_KEPT_MIN = 256

_FENCED = (
    "add_reader",
    "add_signal_handler",
    "add_writer",
    "call_soon_threadsafe",
    "connect_accepted_socket",
    "connect_read_pipe",
    "connect_write_pipe",
    "create_connection",
    "create_datagram_endpoint",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "getaddrinfo",
    "getnameinfo",
    "remove_reader",
    "remove_signal_handler",
    "remove_writer",
    "run_in_executor",
    "sendfile",
    "set_default_executor",
    "sock_accept",
    "sock_connect",
    "sock_recv",
    "sock_recv_into",
    "sock_recvfrom",
    "sock_sendall",
    "sock_sendfile",
    "sock_sendto",
    "start_tls",
    "subprocess_exec",
    "subprocess_shell",
)


class SimulationStopped(Exception):
    """The simulation cannot go on: nobody can run any more, or nobody stops running."""


class Deadlock(SimulationStopped):
    """No callback is ready, no timer is set, and the run is not over."""


class StepLimit(SimulationStopped):
    """More steps than a sane run takes: some code goes round without ever waiting."""


class SimLoop(asyncio.AbstractEventLoop):
    """The loop of one simulated run."""

    def __init__(
        self,
        order: Random | None = None,
        *,
        step_cost: float = 1e-5,
        step_limit: int = STEP_LIMIT_DEFAULT,
    ) -> None:
        self.steps = 0
        self.running_owner: Owner | None = None
        self.on_step: Callable[[float, Owner | None, Any], None] | None = None
        self.on_unhandled: Callable[[Owner | None, dict[str, Any]], None] | None = None
        self._order = order
        self._step_cost = step_cost
        self._step_limit = step_limit
        self._now = 0.0
        self._serial = 0
        self._ready: list[asyncio.Handle] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._tasks: dict[int, SimTask] = {}
        self._tasks_kept = _TASKS_KEPT_MIN
        self._asyncgens: list[Any] = []
        self._exception_handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None
        self._fatal: BaseException | None = None
        self._closed = False

    # ------------------------------------------------------------------ what asyncio calls

    def time(self) -> float:
        """Virtual seconds since the run began."""
        return self._now

    def call_soon(
        self, callback: Callable[[Unpack[Args]], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        """Make a callback ready."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Make a callback ready at a virtual time."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._serial += 1
        heapq.heappush(self._timers, (when, self._serial, handle))
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Make a callback ready after some virtual time."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return SimFuture(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """A task of this loop, kept until the run ends."""
        if len(self._tasks) > self._tasks_kept:
            self._tasks = {serial: task for serial, task in self._tasks.items() if not task.done()}
            self._tasks_kept = max(_TASKS_KEPT_MIN, 2 * len(self._tasks))
        task = SimTask(coro, loop=self, name=name, context=context)
        self._tasks[task.serial] = task
        return task

    def get_debug(self) -> bool:
        """Always off: debug mode measures real time."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Refused, as debug mode measures real time."""
        if enabled:
            raise NotImplementedError("asyncio debug mode measures real time; a simulated loop cannot switch it on")

    def is_running(self) -> bool:
        """Whether `run_until_complete` is going on."""
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        """Whether the run is over."""
        return self._closed

    def set_exception_handler(
        self, handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None
    ) -> None:
        """Hear of exceptions that nobody awaits, instead of `on_unhandled`."""
        self._exception_handler = handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An exception that nobody awaits: told to `on_unhandled`, or the end of the run when nobody listens."""
        if self._closed:
            return
        culprit = context.get("task") or context.get("future")
        owner = culprit.owner if isinstance(culprit, SimTask) else self.running_owner
        if self._exception_handler is not None:
            self._exception_handler(self, context)
        elif self.on_unhandled is not None:
            self.on_unhandled(owner, context)
        else:
            self.abort(context.get("exception") or SimulationStopped(str(context.get("message"))))

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers stay in the heap and are skipped when their time comes."""

    # ------------------------------------------------------------------ running

    def next_serial(self) -> int:
        """A number that no task, future or timer of this loop had before."""
        self._serial += 1
        return self._serial

    def run_until_complete(self, main: Generator[Any, None, T] | Awaitable[T]) -> T:
        """Run until `main` is done or the run has to stop. The garbage collector rests meanwhile."""
        hooks, collecting = sys.get_asyncgen_hooks(), gc.isenabled()
        sys.set_asyncgen_hooks(firstiter=self._asyncgens.append, finalizer=None)
        gc.disable()
        events._set_running_loop(self)
        try:
            future: asyncio.Future[T] = asyncio.ensure_future(cast(Awaitable[T], main), loop=self)
            self._run(future)
            return future.result()
        finally:
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
            if collecting:
                gc.enable()

    def abort(self, error: BaseException) -> None:
        """End the run with this error before the next step. The first one wins."""
        if self._fatal is None:
            self._fatal = error

    def release(self, owner: Owner) -> None:
        """Let the callbacks that were held back from a paused owner run."""
        self._ready.extend(owner.held)
        owner.held.clear()

    def tasks_of(self, owner: Owner | None) -> list[SimTask]:
        """The unfinished tasks of an owner, oldest first."""
        return [task for task in self._tasks.values() if task.owner is owner and not task.done()]

    def places(self) -> list[str]:
        """Every unfinished task of the living and where it waits."""
        return [
            task.place()
            for task in self._tasks.values()
            if not task.done() and (task.owner is None or task.owner.alive)
        ]

    def _run(self, main: asyncio.Future[Any]) -> None:
        while not main.done():
            if self._fatal is not None:
                raise self._fatal
            handle = self._next_handle()
            if handle is not None:
                self._step(handle)
        if self._fatal is not None:
            raise self._fatal

    def _next_handle(self) -> asyncio.Handle | None:
        """Take a ready handle that may run now; None when the turn went to a dead or paused owner."""
        timers, ready = self._timers, self._ready
        while timers and (timers[0][0] <= self._now or not ready):
            when, _, timer = heapq.heappop(timers)
            if timer.cancelled():
                continue
            owner = timer._context.get(OWNER)  # type: ignore[attr-defined]
            if owner is not None and not owner.alive:
                continue
            self._now = max(self._now, when)
            ready.append(timer)
        if not ready:
            raise Deadlock(self._explain("nobody can run any more and the run is not over"))
        if self._order is None:
            handle = ready.pop(0)
        else:
            # Swap with the last one: taking from the middle of a list would move all that stand behind it.
            chosen = int(self._order.random() * len(ready))
            last = ready.pop()
            if chosen < len(ready):
                handle, ready[chosen] = ready[chosen], last
            else:
                handle = last
        return handle

    def _step(self, handle: asyncio.Handle) -> None:
        owner = handle._context.get(OWNER)  # type: ignore[attr-defined]
        if handle._cancelled:
            return
        if owner is not None and not (owner.alive and not owner.paused):
            if owner.alive:
                owner.held.append(handle)
            return
        self.steps += 1
        if self.steps > self._step_limit:
            raise StepLimit(self._explain(f"{self._step_limit} steps and no end"))
        self._now += self._step_cost
        self.running_owner = owner
        if self.on_step is not None:
            self.on_step(self._now, owner, handle._callback)  # type: ignore[attr-defined]
        try:
            handle._run()
        except SystemExit as ended:
            if owner is None:
                raise
            owner.on_system_exit(_exit_code(ended))
        finally:
            self.running_owner = None

    def _explain(self, what: str) -> str:
        return f"{what} at {self._now:.6f} s after {self.steps} steps; waiting:\n  " + "\n  ".join(self.places())

    # ------------------------------------------------------------------ the end

    def dispose(self) -> None:
        """End the run for good: what still waits is closed quietly, in order, and memory is collected.

        `finally` blocks run now, and what they say does not matter any more: their processes are dead and their hosts
        refuse every call.
        """
        self._closed = True
        with _quietly():
            for task in self._tasks.values():
                _bury(task)
            self._tasks.clear()
            self._ready.clear()
            self._timers.clear()
            self._asyncgens.clear()


def collect_garbage() -> None:
    """Collect what disposed loops left, quietly: left-over coroutines complain when they are freed."""
    with _quietly():
        gc.collect()


@contextmanager
def _quietly() -> Iterator[None]:
    """Let coroutines of dead processes, started or not, be freed without a word."""
    hook = sys.unraisablehook
    sys.unraisablehook = _ignore_unraisable
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    finally:
        sys.unraisablehook = hook


def _bury(task: SimTask) -> None:
    if task.done():
        task._log_traceback = False
        return
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coro = task.get_coro()
    try:
        coro.close()
    except BaseException:  # noqa: BLE001 - the run is over; a dead process may say what it likes
        return


def _ignore_unraisable(_unraisable: object) -> None:
    """Coroutines of dead processes have nothing left to tell."""


def _exit_code(ended: SystemExit) -> int:
    if ended.code is None:
        return 0
    return ended.code if isinstance(ended.code, int) else 1


def _fence(name: str) -> Callable[..., Any]:
    def refuse(self: SimLoop, *_args: Any, **_kwargs: Any) -> Any:
        raise NotImplementedError(
            f"loop.{name} reaches for the real world (threads, sockets, signals or processes), which a simulated run "
            f"cannot replay; go through the Host instead"
        )

    refuse.__name__ = name
    return refuse


for _name in _FENCED:
    setattr(SimLoop, _name, _fence(_name))
