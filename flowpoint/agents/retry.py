"""Run a graph again when another run of its thread came first: read, run, conditional commit, repeat."""

from __future__ import annotations

from typing import Any

from flowpoint.errors import ConcurrentRunError, UsageError


def invoke_with_retry(graph: Any, input: Any, config: Any, *, attempts: int = 5, **options: Any) -> Any:
    """`graph.invoke`, run anew on the new head for as long as other runs come first.

    The nodes of a run that lost may have run, at least partly, except with `durability="sync"`: what they do outside of
    the graph should be keyed (`idempotency_key`).

    Args:
        graph: compiled with a saver of FlowPoint that has `on_conflict="raise"`.
        attempts: how often to run at most.
        options: for `graph.invoke`.

    Raises:
        ConcurrentRunError: every attempt lost.
        UsageError: the saver does not raise on conflicts, or `attempts` is less than 1.
    """
    _check(graph, attempts)
    for left in reversed(range(attempts)):
        try:
            return graph.invoke(input, config, **options)
        except ConcurrentRunError:
            if not left:
                raise
    raise AssertionError("unreachable")


async def ainvoke_with_retry(graph: Any, input: Any, config: Any, *, attempts: int = 5, **options: Any) -> Any:
    """`graph.ainvoke` as `invoke_with_retry`."""
    _check(graph, attempts)
    for left in reversed(range(attempts)):
        try:
            return await graph.ainvoke(input, config, **options)
        except ConcurrentRunError:
            if not left:
                raise
    raise AssertionError("unreachable")


def _check(graph: Any, attempts: int) -> None:
    if attempts < 1:
        raise UsageError(f"cannot run a graph {attempts} times; give at least 1 attempt")
    if getattr(graph.checkpointer, "on_conflict", None) != "raise":
        raise UsageError(
            "cannot retry: the graph's saver does not tell that another run came first; open it with "
            "on_conflict='raise'"
        )
