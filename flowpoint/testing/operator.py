"""One subtask of one process function: the runtime's own operator over a heap backend, without links, loop or worker.

It is built as `runtime.assembly` builds it, from an own copy of the function. A snapshot is what a savepoint would hold:
the file of each backend, the watermark, and the processing time, so that a restored one goes on at that time.

Not here: what a test calls (`harness.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from flowpoint.codec.placement import GroupCache
from flowpoint.codec.values import Codec, TypeRegistry
from flowpoint.errors import UsageError
from flowpoint.model.elements import WATERMARK_MIN
from flowpoint.model.manifest import StateFile
from flowpoint.plan.states import declared_states
from flowpoint.runtime.contracts import OperatorDef
from flowpoint.runtime.operators.calls import Port
from flowpoint.runtime.operators.process import KeyedParts, Process
from flowpoint.runtime.own_copy import own_copy
from flowpoint.runtime.pipeline import Pipeline
from flowpoint.snapshot.writer import BASE
from flowpoint.state.broadcast import BroadcastAccess, bind_broadcast
from flowpoint.state.descriptor import bind
from flowpoint.state.handles import KeyCell
from flowpoint.state.heap import HeapBackend
from flowpoint.state.timers import TIMERS, TimerService
from flowpoint.testing.compiled import MAX_PARALLELISM

_ALL_GROUPS = (0, MAX_PARALLELISM - 1)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a function had in state and timers, and what time it was. Goes to `restore=` of another harness."""

    keyed: bytes
    broadcast: bytes
    watermark: int
    now_ms: int


class PendingTimer(NamedTuple):
    """A timer that has not fired. `kind` is "event" or "processing", `timestamp` epoch ms."""

    key: Any
    kind: str
    timestamp: int


class StateView:
    """One state of a function, as a test sees it."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self._read = read

    def get(self, key: Any) -> Any:
        """The value of a key: the default when it has none, a list of a ListState, a dict of a MapState."""
        return self._read(key)


class Operator:
    """The function, bound to its state."""

    def __init__(
        self,
        definition: OperatorDef,
        ports: tuple[Port, ...],
        clock_ms: Callable[[], int],
        *,
        has_event_time: bool,
        restored: Snapshot | None,
    ) -> None:
        self.function = own_copy(definition.function)
        self._codec = Codec(TypeRegistry(definition.types))
        self._cell = KeyCell()
        self._keyed = self._backend(definition.uid, restored.keyed if restored else b"")
        self._broadcast = self._backend(definition.uid, restored.broadcast if restored else b"")
        self._groups = GroupCache(MAX_PARALLELISM)
        keyed, access = None, None
        if any(port.key is not None for port in ports):
            bind(self.function, self._keyed, self._cell)
            keyed = KeyedParts(self._cell, TimerService(self._keyed, self._cell), self._groups)
        if len(ports) > 1:
            access = BroadcastAccess(self._cell.sharing)
            bind_broadcast(self.function, self._broadcast, access)
        self.process = Process(
            definition.uid,
            self.function,
            ports,
            clock_ms,
            keyed=keyed,
            access=access,
            side_tags=None,
            has_event_time=has_event_time,
            watermark=restored.watermark if restored else WATERMARK_MIN,
        )
        self.pipeline = Pipeline([self.process], None)

    def _backend(self, uid: str, data: bytes) -> HeapBackend:
        backend = HeapBackend(self._codec, MAX_PARALLELISM, operator=uid)
        if data:
            backend.restore([(StateFile("snapshot", BASE, len(data), "", 0, _ALL_GROUPS), data)], _ALL_GROUPS)
        return backend

    def snapshot(self, now_ms: int) -> Snapshot:
        """Everything that a snapshot of a job would hold of it. Raises BadRecordError for what cannot be written."""
        keyed, broadcast = (_written(backend) for backend in (self._keyed, self._broadcast))
        return Snapshot(keyed, broadcast, self.process.watermark, now_ms)

    def close(self) -> None:
        """Close the function, and let go of its state."""
        try:
            self.process.close()
        finally:
            self._keyed.close()
            self._broadcast.close()

    # ------------------------------------------------------------------ what a test looks at

    def timers(self) -> list[PendingTimer]:
        """All timers that are pending, in the order of their times."""
        found = [PendingTimer(key, kind, at) for key, (kind, at), _ in self._keyed.map_table(TIMERS).all_items()]
        return sorted(found, key=lambda timer: (timer.timestamp, timer.kind, repr(timer.key)))

    def state(self, name: str) -> StateView:
        """A keyed state by the name that it is declared with. Raises UsageError when there is none."""
        attribute = self._attribute(name, is_broadcast=False)
        return StateView(lambda key: self._read(attribute, key))

    def broadcast_state(self, name: str) -> dict[Any, Any]:
        """The entries of a broadcast state. Raises UsageError when there is none of that name."""
        handle = getattr(self.function, self._attribute(name, is_broadcast=True))
        copied: dict[Any, Any] = self._codec.copy(dict(handle))
        return copied

    def _attribute(self, name: str, *, is_broadcast: bool) -> str:
        attributes = {
            state.name: state.attribute
            for state in declared_states(self.function)
            if state.is_broadcast is is_broadcast
        }
        if name not in attributes:
            kind = "broadcast state" if is_broadcast else "state"
            known = ", ".join(map(repr, attributes)) or "none"
            raise UsageError(f"{type(self.function).__name__} declares no {kind} {name!r}; it declares: {known}")
        return attributes[name]

    def _read(self, attribute: str, key: Any) -> Any:
        if key not in self._groups.groups:
            self._groups.miss(key)
        self._cell.key = key
        try:
            handle = getattr(self.function, attribute)
            return self._codec.copy(dict(handle) if isinstance(handle, Mapping) else handle.value)
        finally:
            self._cell.clear()


def _written(backend: HeapBackend) -> bytes:
    frozen = backend.freeze_detached()
    try:
        return b"".join(frozen.chunks())
    finally:
        frozen.durable()
