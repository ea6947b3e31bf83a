"""The sink of simulated job files: a FileSink of whose commits and aborts a checker hears, before they take effect.

Not here: what must hold of them (`output_checkers.CommittableChecker`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from flowpoint.connectors import FileSink
from flowpoint.runtime.contracts import ConnectorContext


def _unheard(name: str) -> None:
    """Where no checker is."""


@dataclass(slots=True)
class SinkCalls:
    """Who hears of the calls, each with the name that a part has or would get when it is committed. One per world."""

    on_commit: Callable[[str], None] = _unheard
    on_abort: Callable[[str], None] = _unheard


SINK_CALLS: ContextVar[SinkCalls] = ContextVar("flowpoint_sim_sink_calls")
"""Those of the world to which the running process belongs."""


class WitnessedSink(FileSink):
    """Every part has a name of its own for ever: it carries lineage, attempt, checkpoint, sink and subtask."""

    async def commit(self, committable: Any, ctx: ConnectorContext) -> None:
        """Tell, then publish the part."""
        SINK_CALLS.get().on_commit(committable["final"])
        await super().commit(committable, ctx)

    async def abort(self, committable: Any, ctx: ConnectorContext) -> None:
        """Tell, then remove the part."""
        SINK_CALLS.get().on_abort(committable["final"])
        await super().abort(committable, ctx)
