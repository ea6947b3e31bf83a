"""A saver of a few lines that keeps encoded values in dicts and reads them through a schema, as the real ones do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, writes_sort_key
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME

from flowpoint.agents.schema import Schema
from flowpoint.agents.serde import StrictSerde
from flowpoint.agents.stored import PendingWrite, Stored

SPECIAL = {ERROR: -1, INTERRUPT: -3, RESUME: -4}


@dataclass
class Row:
    version: int
    parent: str | None
    checkpoint: dict[str, Any]
    values: dict[str, bytes]
    metadata: dict[str, Any]


@dataclass
class Disk:
    """What outlives a deployment."""

    rows: dict[tuple[str, str], dict[str, Row]] = field(default_factory=dict)
    writes: dict[tuple[str, str, str], dict[tuple[str, int], tuple[str, str, bytes, int]]] = field(default_factory=dict)


class SchemaSaver(BaseCheckpointSaver[str]):
    """One deployment of an agent."""

    def __init__(self, disk: Disk, schema: Schema | None, types: Sequence[Any] = ()) -> None:
        super().__init__()
        self.disk, self.schema, self.values = disk, schema, StrictSerde(types)
        self.log: list[str] = []

    def get_next_version(self, current: str | None, channel: None) -> str:
        return f"{int((current or '0').partition('.')[0]) + 1:08}.x"

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        place = config["configurable"]
        thread, ns, parent = place["thread_id"], place["checkpoint_ns"], place.get("checkpoint_id")
        rows = self.disk.rows.setdefault((thread, ns), {})
        values = {
            name: self.values.encode(value, thread=thread, channel=name)
            for name, value in checkpoint["channel_values"].items()
        }
        if parent in rows:
            before = rows[parent]
            for name, version in checkpoint["channel_versions"].items():
                if (
                    name not in values
                    and before.checkpoint["channel_versions"].get(name) == version
                    and name in before.values
                ):
                    values[name] = before.values[name]
        rows[checkpoint["id"]] = Row(self.schema.version if self.schema else 0, parent, checkpoint, values, metadata)
        return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint["id"]}}

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        place = config["configurable"]
        key = (place["thread_id"], place["checkpoint_ns"], place["checkpoint_id"])
        kept = self.disk.writes.setdefault(key, {})
        for index, (channel, value) in enumerate(writes):
            at = (task_id, SPECIAL.get(channel, index))
            if at[1] < 0 or at not in kept:
                data = self.values.encode(value, thread=key[0], channel=channel)
                kept[at] = (task_path, channel, data, self.schema.version if self.schema else 0)

    def stored(self, thread: str, ns: str, id: str) -> Stored:
        row = self.disk.rows[thread, ns][id]

        def decode(data: bytes, channel: str, version: int) -> Any:
            is_current = self.schema is None or self.schema.is_current(version, ns, channel)
            return (self.values.decode if is_current else self.values.decode_old)(data, thread=thread, channel=channel)

        writes = [
            PendingWrite(task_id, path, channel, decode(data, channel, version), version)
            for (task_id, index), (path, channel, data, version) in sorted(
                self.disk.writes.get((thread, ns, id), {}).items(),
                key=lambda item: writes_sort_key(item[1][0], *item[0]),
            )
        ]
        return Stored(
            version=row.version,
            thread=thread,
            checkpoint_id=id,
            checkpoint_ns=ns,
            channels={name: decode(data, name, row.version) for name, data in row.values.items()},
            channel_versions=dict(row.checkpoint["channel_versions"]),
            versions_seen={node: dict(seen) for node, seen in row.checkpoint["versions_seen"].items()},
            metadata=dict(row.metadata),
            pending_writes=writes,
            updated_channels=row.checkpoint.get("updated_channels"),
            layout=row.checkpoint["v"],
        )

    def _tuple(self, thread: str, ns: str, id: str, *, for_run: bool) -> CheckpointTuple:
        row, stored = self.disk.rows[thread, ns][id], self.stored(thread, ns, id)
        if self.schema is not None:
            stored = self.schema.upgrade(stored, for_run=for_run)
            self.log.extend(line for note in stored.notes if (line := f"{thread}: {note}") not in self.log)
        place = {"thread_id": thread, "checkpoint_ns": ns}
        return CheckpointTuple(
            {"configurable": {**place, "checkpoint_id": id}},
            {
                **row.checkpoint,
                "channel_values": stored.channels,
                "channel_versions": stored.channel_versions,
                "versions_seen": stored.versions_seen,
                "updated_channels": stored.updated_channels,
            },  # type: ignore[typeddict-item]
            stored.metadata,  # type: ignore[arg-type]
            {"configurable": {**place, "checkpoint_id": row.parent}} if row.parent else None,
            [(write.task_id, write.channel, write.value) for write in stored.pending_writes],
        )

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        place = config["configurable"]
        thread, ns = place["thread_id"], place.get("checkpoint_ns", "")
        rows = self.disk.rows.get((thread, ns))
        if not rows:
            return None
        return self._tuple(thread, ns, place.get("checkpoint_id") or list(rows)[-1], for_run=True)

    def list(
        self, config: Any, *, filter: Any = None, before: Any = None, limit: Any = None
    ) -> Iterator[CheckpointTuple]:
        place = config["configurable"]
        thread, ns = place["thread_id"], place.get("checkpoint_ns", "")
        for id in reversed(self.disk.rows.get((thread, ns), {})):
            yield self._tuple(thread, ns, id, for_run=False)
