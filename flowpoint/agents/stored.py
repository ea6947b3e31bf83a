"""A checkpoint as it was stored, between the saver that read it and the schema that brings it up to date.

The saver fills in a `Stored` from its commit and hands it to `Schema.upgrade`; what comes back is what the agent sees.

Not here: bytes (`serde.py`), migrations (`migrations.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

__all__ = ["LAYOUT", "PendingWrite", "Stored", "StoredObject"]

LAYOUT: Final = 4
"""The layout of LangGraph's checkpoints at present."""


class PendingWrite(NamedTuple):
    """What a task wrote that no later checkpoint holds yet.

    version: of the schema it was written with, which may be newer than that of the checkpoint; None if it is the same.
    place: among those of its task, in the order in which they are applied.
    """

    task_id: str
    task_path: str
    channel: str
    value: Any
    version: int | None = None
    place: int = 0


@dataclass(slots=True)
class Stored:
    """One checkpoint with its pending writes.

    version: of the schema it was written with; 0 when there was none.
    checkpoint_ns: "" for the graph itself, `node:task id` for a sub-graph.
    channels: the values by channel; `Schema.is_current` says which of them `decode` makes and which `decode_old`.
    layout: the number that LangGraph itself gives the layout of its checkpoints (`checkpoint["v"]`).
    notes: lines for the log, added by `Schema.upgrade`; the saver puts thread and checkpoint before each, and logs a
        line once for each thread.

    A saver that later puts a child of an upgraded checkpoint has to write every value it is handed, and may not reuse
    what is stored for the parent: the version of a channel does not change when its value is migrated.
    """

    version: int
    thread: str
    checkpoint_id: str
    checkpoint_ns: str
    channels: dict[str, Any]
    channel_versions: dict[str, Any]
    versions_seen: dict[str, dict[str, Any]]
    metadata: dict[str, Any]
    pending_writes: list[PendingWrite]
    updated_channels: list[str] | None = None
    layout: int = LAYOUT
    notes: list[str] = field(default_factory=list)

    @property
    def graph(self) -> str:
        """The path of the graph that the checkpoint belongs to: its namespace without ids of tasks.

        Example:
            >>> Stored(1, "t", "c", "sub:1f-2|inner:3c", {}, {}, {}, {}, []).graph
            'sub|inner'
        """
        return graph_path(self.checkpoint_ns)

    def where(self) -> str:
        """Thread and checkpoint, for messages."""
        place = f" ({self.checkpoint_ns})" if self.checkpoint_ns else ""
        return f"thread {self.thread!r}, checkpoint {self.checkpoint_id}{place}"

    def note(self, text: str) -> None:
        """Add a line for the log, unless it is there."""
        if text not in self.notes:
            self.notes.append(text)


def graph_path(checkpoint_ns: str) -> str:
    """A namespace without the ids of tasks and the counters of repeated calls, which differ from run to run."""
    parts = [part.partition(":")[0] for part in checkpoint_ns.split("|")]
    return "|".join(part for part in parts if not part.isdigit())


class StoredObject:
    """A stored instance of a class that is no longer declared or has changed; a `Convert` turns it into a new value.

    Its fields can be read as attributes, as they were when it was saved. An Enum member has the one field `name`.

    Example:
        >>> StoredObject("shop:Order", {"id": 7}, "the class is gone").id
        7
    """

    __slots__ = ("fields", "reason", "type_name")

    def __init__(self, type_name: str, fields: dict[str, Any], reason: str) -> None:
        self.type_name = type_name
        self.fields = fields
        self.reason = reason

    def __getattr__(self, name: str) -> Any:
        if name in StoredObject.__slots__ or name not in self.fields:
            raise AttributeError(f"a stored object has no field {name!r}")
        return self.fields[name]

    def __repr__(self) -> str:
        return f"StoredObject({self.type_name!r}, {self.fields!r})"
