"""The schema of an agent's state: which version the code has, and how older threads are brought up to it on reading.

    schema = Schema.of(builder, version=3, migrations={
        1: [Rename("a", "a2"), RenameNode("n2", "review")],
        2: [Drop("note"), Add("b", default=0), Convert("total", int)],
    })

`migrations[v]` leads from version v to v + 1. A thread that was written without a schema counts as version 1, or as 0
if there are migrations for 0. What is stored does not change: a checkpoint is brought up to date each time it is
read, and the next one is written with the new version.

`upgrade` chains the migrations, moves what pending tasks wrote to the ids the tasks have now, and then compares with
the graph: a channel that the code does not have is carried along and named once; a value that is not of its annotated
type, and a pending node that is gone, are errors, before any node runs.

Invariants: never drops a value without a `Drop`; never changes what it was given; an error names thread, checkpoint and
what to do.
Not here: reading and writing (the savers), the steps (`migrations.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import chain
from typing import Any

from langgraph.checkpoint.serde.types import INTERRUPT, _DeltaSnapshot
from langgraph.constants import START

from flowpoint.agents.fits import checker
from flowpoint.agents.given import check_version
from flowpoint.agents.graph_shape import GraphShape, is_internal, shapes_of
from flowpoint.agents.migrations import Add, Convert, ConvertSend, Drop, Migration, Rename, RenameNode
from flowpoint.agents.pending import move_tasks, pending_nodes
from flowpoint.agents.sends import follow
from flowpoint.agents.stored import PendingWrite, Stored, StoredObject, graph_path
from flowpoint.agents.types import types_of
from flowpoint.errors import ConfigError, FlowPointError, SchemaError
from flowpoint.model.texts import with_article

__all__ = ["CheckReport", "Schema"]


class Schema:
    """What the code expects of stored threads. Give it to a saver as `schema=`; one may serve many."""

    def __init__(
        self,
        shapes: Mapping[str, GraphShape],
        version: int,
        migrations: Mapping[int, Sequence[Migration]],
        types: tuple[type, ...] = (),
    ) -> None:
        self.version = version
        self.types = types
        """The classes in the annotations of the graph."""
        self._shapes = shapes
        self._migrations = {at: tuple(steps) for at, steps in migrations.items()}
        self._checkers = {
            path: {name: checker(annotation, is_lax=shape.is_lax) for name, annotation in shape.types.items()}
            for path, shape in shapes.items()
        }

    @classmethod
    def of(cls, builder: Any, *, version: int, migrations: Mapping[int, Sequence[Migration]] | None = None) -> Schema:
        """The schema of an uncompiled StateGraph.

        Raises:
            ConfigError: the version is not a positive number, a migration starts at a version that is not below it, or
                leads to a channel or node that the graph does not have.
        """
        migrations = migrations or {}
        check_version(version)
        for at in migrations:
            if not 0 <= at < version:
                raise ConfigError(
                    f"cannot use migrations[{at}]: it leads from version {at} to {at + 1}, and the schema has version "
                    f"{version}; raise `version` to at least {at + 1}"
                )
        shapes = shapes_of(builder)
        _check_targets(shapes, [step for at in sorted(migrations) for step in migrations[at]])
        return cls(shapes, version, migrations, types_of(builder))

    def upgrade(self, stored: Stored, *, for_run: bool = True) -> Stored:
        """A checkpoint as the code expects it. `stored` itself does not change.

        Args:
            stored: as it was read; its values by `decode_old` if its version is not that of the schema.
            for_run: a run is going to continue here. False for looking at history, where what would stop a run is only
                noted: every checkpoint of the past has some node pending.

        Raises:
            SchemaError: it cannot be brought up to date, or does not fit the code.
        """
        if stored.version > self.version:
            raise SchemaError(
                f"{stored.where()}: cannot read it: it was written by version {stored.version} of the schema, and this "
                f"code has version {self.version}; deploy the newer code again"
            )
        upgraded = stored
        if stored.version != self.version:
            upgraded = self._migrated(stored)
        else:
            upgraded = dataclasses.replace(
                stored,
                versions_seen=dict(stored.versions_seen),
                notes=list(stored.notes),
            )
            if START in upgraded.channels:
                self._refuse_unread(upgraded)
        shape = self._shapes.get(stored.graph)
        if shape is not None:
            self._carry_orphans(upgraded, shape)
            problems = [*self._misfits(upgraded.channels, stored.graph), *_missing_nodes(upgraded, shape)]
            if problems and for_run:
                raise SchemaError(f"{upgraded.where()}: {problems[0]}")
            for problem in problems:
                upgraded.note(problem)
        return upgraded

    def is_current(self, version: int, checkpoint_ns: str, channel: str) -> bool:
        """Whether the code can read a stored value as it is (`decode`), or a stand-in may have to do (`decode_old`).

        `version` is the one that the value was written with: that of the checkpoint, or of the put of pending writes.

        A stand-in does for what a migration is going to convert, and for a channel that the code no longer has: its
        class may have gone with it, and it is only carried along. So may that of a part of the input.
        """
        shape = self._shapes.get(graph_path(checkpoint_ns))
        return version == self.version and (shape is None or (channel != START and not _is_orphan(channel, shape)))

    def check(self, threads: Iterable[Stored]) -> CheckReport:
        """What `upgrade` would do with the heads of these threads, without a run and without changing anything."""
        report = CheckReport()
        for stored in threads:
            report.threads += 1
            try:
                upgraded = self.upgrade(stored)
            except FlowPointError as error:
                report.refused.append(str(error))
                continue
            report.migrated += stored.version != self.version
            report.notes.extend(f"{stored.where()}: {note}" for note in upgraded.notes)
        return report

    # ------------------------------------------------------------------ migrations

    def _migrated(self, stored: Stored) -> Stored:
        upgraded = dataclasses.replace(
            stored,
            version=self.version,
            channels=dict(stored.channels),
            channel_versions=dict(stored.channel_versions),
            versions_seen=deepcopy(stored.versions_seen),
            metadata=deepcopy(stored.metadata),
            notes=list(stored.notes),
        )
        for at in range(self._first(stored.version), self.version):
            # What newer code has written to an older checkpoint joins in at its own version.
            writes = upgraded.pending_writes
            newer = [write for write in writes if self._version_of(write, stored) > at]
            upgraded.pending_writes = [write for write in writes if self._version_of(write, stored) <= at]
            for place, step in enumerate(self._migrations.get(at, ())):
                if step.graph == stored.graph:
                    step.apply(upgraded)
                    self._follow_sends(upgraded, step, at, place)
            upgraded.pending_writes += newer
        self._refuse_unread(upgraded)
        shape = self._shapes.get(stored.graph)
        renamed = self._renamed(stored.graph, stored.version)
        if shape is not None:
            self._refuse_moved_graphs(upgraded, renamed)
            old = {write.version for write in upgraded.pending_writes} - {self.version}
            versions = {version: stored.version if version is None else version for version in old}
            move_tasks(upgraded, shape, {old: self._renamed(stored.graph, at) for old, at in versions.items()})
        elif renamed and stored.pending_writes:
            raise SchemaError(
                f"{stored.where()}: cannot rename nodes of the sub-graph {stored.graph!r} while tasks of it are pending: "
                "its graph is not known; add the compiled sub-graph itself as a node"
            )
        # As the framework applies them: those that joined in, and tasks that have other names now, stand elsewhere.
        upgraded.pending_writes.sort(key=lambda write: (write.task_path, write.task_id, write.place))
        upgraded.note(f"brought from version {stored.version} of the schema to {self.version}")
        return upgraded

    def _follow_sends(self, stored: Stored, step: Migration, at: int, place: int) -> None:
        """Migrate what waits to be handed to nodes; their names are those after this step."""
        later = [one for one in self._steps_after(at, place) if one.graph == stored.graph]
        converted = {one.node for one in later if isinstance(one, ConvertSend)}
        shape = self._shapes.get(stored.graph)

        def name_now(node: str) -> str:
            for one in later:
                node = one.names().get(node, node) if isinstance(one, RenameNode) else node
            return node

        def is_converted(node: str) -> bool:
            return node in converted or name_now(node) in converted

        def reads_state(node: str) -> bool:
            return shape is not None and name_now(node) in shape.readers

        follow(stored, step, reads_state, is_converted)

    def _steps_after(self, at: int, place: int) -> Iterator[Migration]:
        yield from self._migrations.get(at, ())[place + 1 :]
        for later in range(at + 1, self.version):
            yield from self._migrations.get(later, ())

    def _first(self, version: int) -> int:
        """The version from which a checkpoint is brought on: what has none counts as the first one there is."""
        return version if version or 0 in self._migrations else 1

    def _renamed(self, graph: str, version: int) -> dict[str, str]:
        """The names that nodes of a graph had at a version, to those they have now."""
        renamed: dict[str, str] = {}
        for step in chain.from_iterable(
            self._migrations.get(at, ()) for at in range(self._first(version), self.version)
        ):
            if isinstance(step, RenameNode) and step.graph == graph:
                names = step.names()
                first_names = {old: new for old, new in names.items() if old not in renamed.values()}
                renamed = {old: names.get(new, new) for old, new in renamed.items()} | first_names
        return renamed

    def _version_of(self, write: PendingWrite, stored: Stored) -> int:
        return self._first(stored.version if write.version is None else write.version)

    def _refuse_unread(self, stored: Stored) -> None:
        shape = self._shapes.get(stored.graph)
        if shape is not None:
            _leave_out_of_input(stored, shape)
        writes = ((write.channel, write.value) for write in stored.pending_writes)
        for channel, value in chain(stored.channels.items(), writes):
            if shape is not None and _is_orphan(channel, shape):
                continue
            unread = _stored_object(value)
            if unread is not None:
                raise SchemaError(
                    f"{stored.where()}: channel {channel!r} holds a stored {unread.type_name} that the code cannot read, "
                    f"and no migration converts it: {unread.reason}"
                )

    def _refuse_moved_graphs(self, stored: Stored, renamed: Mapping[str, str]) -> None:
        pending = {node for node, _ in pending_nodes(stored)}
        for old, new in renamed.items():
            path = f"{stored.graph}|{new}" if stored.graph else new
            if new in pending and path in self._shapes:
                raise SchemaError(
                    f"{stored.where()}: cannot rename node {old!r}: it is a sub-graph and pending, and its checkpoints "
                    "lie under the old name; let the thread finish this step with the old code first"
                )

    # ------------------------------------------------------------------ comparing

    def _carry_orphans(self, stored: Stored, shape: GraphShape) -> None:
        names = stored.channel_versions.keys() | stored.channels.keys()
        orphans = [name for name in names if _is_orphan(name, shape)]
        if not orphans:
            return
        seen = dict(stored.versions_seen.get(INTERRUPT, {}))
        for name in sorted(orphans):
            # The framework interrupts before a node as long as any channel has a version not seen at an interrupt, and
            # only ever marks those it knows: without this a run with `interrupt_before` would stop here for ever.
            if name in stored.channel_versions:
                seen[name] = stored.channel_versions[name]
            stored.note(
                f"channel {name!r} is not in the code; it is carried along as it is (a migration may Rename or Drop it)"
            )
        stored.versions_seen[INTERRUPT] = seen

    def _misfits(self, values: Mapping[str, Any], graph: str) -> list[str]:
        problems = []
        for name, check in self._checkers[graph].items():
            if name not in values:
                continue
            value = values[name]
            found = check(value.value if isinstance(value, _DeltaSnapshot) else value)
            if found is not None:
                problems.append(
                    f"channel {name!r} does not fit the code: {found}; raise the version of the schema and add a "
                    f"Convert({name!r}, ...), or change the annotation"
                )
        return problems


@dataclasses.dataclass(slots=True)
class CheckReport:
    """What a dry run over threads found.

    migrated: how many of the threads were written by an older version.
    refused: for each thread that a run could not continue, why.
    notes: what would be logged.
    """

    threads: int = 0
    migrated: int = 0
    refused: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)

    def add(self, other: CheckReport) -> None:
        """Take in what was found over other threads."""
        self.threads += other.threads
        self.migrated += other.migrated
        self.refused += other.refused
        self.notes += other.notes


def _is_orphan(channel: str, shape: GraphShape) -> bool:
    return channel not in shape.channels and not is_internal(channel)


def _leave_out_of_input(stored: Stored, shape: GraphShape) -> None:
    """Leave out of what waits as input, or once did, what cannot be read and no node would get: the graph has no such key.

    A sub-graph is given the whole state of the graph above, also what it does not take.
    """
    waiting = stored.channels.get(START)
    if not isinstance(waiting, dict):
        return
    unread = {name: _stored_object(value) for name, value in waiting.items() if name not in shape.channels}
    for name, found in unread.items():
        if found is not None:
            stored.note(
                f"the input has {with_article(found.type_name)} under {name!r}, which the code cannot read: it is "
                "left out, as the graph has no such key"
            )
    kept = {name: value for name, value in waiting.items() if unread.get(name) is None}
    stored.channels = {**stored.channels, START: kept}


def _missing_nodes(stored: Stored, shape: GraphShape) -> list[str]:
    missing: dict[str, str] = {}
    for node, reason in pending_nodes(stored):
        if node not in shape.nodes:
            missing.setdefault(node, reason)
    return [
        f"node {node!r} is pending ({reason}) and the code does not have it; put it back, or add a "
        f"RenameNode({node!r}, ...)"
        for node, reason in missing.items()
    ]


def _check_targets(shapes: Mapping[str, GraphShape], steps: Sequence[Migration]) -> None:
    """What migrations lead to must be in the graph, as far as no later one leads on from there."""
    targets: dict[tuple[str, str, str], Migration] = {}
    for step in steps:
        match step:
            case Rename(old, new) | RenameNode(old, new):
                kind = "node" if isinstance(step, RenameNode) else "channel"
                targets.pop((step.graph, kind, old), None)
                targets[step.graph, kind, new] = step
            case Drop(channel):
                targets.pop((step.graph, "channel", channel), None)
            case Add(channel) | Convert(channel):
                targets[step.graph, "channel", channel] = step
            case ConvertSend(node):
                targets[step.graph, "node", node] = step
    for (graph, kind, name), step in targets.items():
        shape = shapes.get(graph)
        if shape is not None and name not in (shape.nodes if kind == "node" else shape.channels):
            raise ConfigError(
                f"cannot use the migration {step}: the graph has no {kind} {name!r}; it has "
                f"{', '.join(sorted(shape.nodes if kind == 'node' else shape.channels))}"
            )


def _stored_object(value: Any) -> StoredObject | None:
    """The first stored object inside a value that could not be read."""
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, StoredObject):
            return current
        if isinstance(current, Mapping):
            waiting.extend(current.keys())
            waiting.extend(current.values())
        elif isinstance(current, (list, tuple, set, frozenset)) or type(current).__name__ == "deque":
            waiting.extend(current)
        elif dataclasses.is_dataclass(current) and not isinstance(current, type):
            waiting.extend(getattr(current, spec.name, None) for spec in dataclasses.fields(current))
        elif hasattr(type(current), "__pydantic_core_schema__") or type(current).__name__ == "Send":
            waiting.extend(getattr(current, "__dict__", {}).values())
            waiting.append(getattr(current, "arg", None))
    return None
