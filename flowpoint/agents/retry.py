"""Run a graph again when another run of its thread came first: read, run, conditional commit, repeat.

A run begun here tells when it ends (`running`): from its first checkpoint on it has the thread, and who comes meanwhile
loses before any of its nodes runs, waits until the thread is free, and runs again. So a run that has begun does not
lose. Where it does nevertheless, to something that knows nothing of this, its input is in the history, and giving it
again would have it there twice: then the error is for the caller.

What goes on from the head (no input, or a `Command`) puts nothing before its nodes run, so it takes the thread before
it reads. An answer is not given again: on another head it would answer another question.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from langchain_core.runnables.config import merge_configs
from langgraph.types import Command

from flowpoint.agents.core import SaverCore
from flowpoint.agents.running import Run
from flowpoint.agents.saver import RUN, CoreSaver
from flowpoint.errors import ConcurrentRunError, UsageError

_PAUSE_SECONDS: Final = 0.005
_PAUSE_MAX_SECONDS: Final = 0.2

_around: ContextVar[frozenset[str]] = ContextVar("flowpoint_runs_around", default=frozenset())
"""The names of the runs that the code of a node runs in: to wait for one of them would be to wait for oneself."""


def invoke_with_retry(graph: Any, input: Any, config: Any, *, attempts: int = 5, **options: Any) -> Any:
    """`graph.invoke`, run anew on the new head for as long as other runs come first.

    Between two attempts it waits until the run that came first has ended, if that was begun like this one.

    The nodes of a run that lost may have run, at least partly, except with `durability="sync"`: what they do outside of
    the graph should be keyed (`idempotency_key`).

    Args:
        graph: compiled with a saver of FlowPoint that has `on_conflict="raise"`.
        attempts: how often to run at most.
        options: for `graph.invoke`.

    Raises:
        ConcurrentRunError: every attempt lost, or the run may not be repeated: it is an answer (`Command(resume=...)`),
            or another run went on from the middle of it.
        UsageError: the saver does not raise on conflicts, or `attempts` is less than 1.
    """
    core = _core(graph, attempts)
    for left in reversed(range(attempts)):
        with core.runs.begun() as run, _inside(run):
            try:
                return graph.invoke(input, _told(core, graph, input, config, run), **options)
            except ConcurrentRunError as error:
                if not left or not _may_repeat(core, run, input, error):
                    raise
        for pause in _until_free(core, run):
            time.sleep(pause)
    raise AssertionError("unreachable")


async def ainvoke_with_retry(graph: Any, input: Any, config: Any, *, attempts: int = 5, **options: Any) -> Any:
    """`graph.ainvoke` as `invoke_with_retry`."""
    core = _core(graph, attempts)
    for left in reversed(range(attempts)):
        with core.runs.begun() as run, _inside(run):
            try:
                return await graph.ainvoke(input, _told(core, graph, input, config, run), **options)
            except ConcurrentRunError as error:
                if not left or not _may_repeat(core, run, input, error):
                    raise
        for pause in _until_free(core, run):
            await asyncio.sleep(pause)
    raise AssertionError("unreachable")


def _core(graph: Any, attempts: int) -> SaverCore:
    if attempts < 1:
        raise UsageError(f"cannot run a graph {attempts} times; give at least 1 attempt")
    saver = getattr(graph, "checkpointer", None)
    if not isinstance(saver, CoreSaver) or saver.on_conflict != "raise":
        raise UsageError(
            "cannot retry: the graph's saver does not tell that another run came first; open it with "
            "on_conflict='raise'"
        )
    return saver.core


@contextmanager
def _inside(run: Run) -> Iterator[None]:
    before = _around.set(_around.get() | {run.name})
    try:
        yield
    finally:
        _around.reset(before)


def _told(core: SaverCore, graph: Any, input: Any, config: Any, run: Run) -> Any:
    """The config that tells of a run, which has its thread already if it goes on from the head."""
    thread = merge_configs(graph.config, config).get("configurable", {}).get("thread_id")
    if thread is not None and (input is None or isinstance(input, Command)):
        core.hold(run, str(thread))
    return merge_configs(config, {"configurable": {RUN: run.name}})


def _may_repeat(core: SaverCore, run: Run, input: Any, error: ConcurrentRunError) -> bool:
    """Whether it was this run that lost, and not one that a node of it made, and its input can be given once more."""
    if run.refused is None or (isinstance(input, Command) and input.resume is not None):
        return False
    if core.has_taken_in(run):
        error.add_note(
            "It is not run again: what it was given is in the history of its thread, or of a sub-graph there."
        )
        return False
    return True


def _until_free(core: SaverCore, run: Run) -> Iterator[float]:
    """How many seconds to wait, again and again, until no run has the thread that a run was refused in.

    Other processes tell nobody when their runs end, so there is nothing to wait for but to look again.
    """
    assert run.refused is not None
    thread, pause = run.refused.thread, _PAUSE_SECONDS
    while (holder := core.runs.holder(thread)) is not None:
        if holder in _around.get():
            raise ConcurrentRunError(
                f"cannot run thread {thread!r} inside of a run that has it: it would wait for itself; use another thread"
            )
        yield pause
        pause = min(pause * 2, _PAUSE_MAX_SECONDS)
