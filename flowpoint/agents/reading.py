"""Reads checkpoints back: one by id, the head, or many, newest first.

Order is by commit within a namespace. Across namespaces and threads it is by id, which holds a time: a sub-graph's
checkpoint may be committed before its parent's, and one thread's log says nothing about another's.

Invariants: what is returned is whole, or an error is raised. Pending writes come in the order in which LangGraph
applies them. Reading changes nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from flowpoint.agents.entry_names import Place, commit_name, writes_prefix
from flowpoint.agents.envelope import Envelopes, Header, Writes, read_body
from flowpoint.agents.every_thread import EveryThread
from flowpoint.agents.kv import Kv, Part, Section, children, part, text_of
from flowpoint.agents.log import Index
from flowpoint.agents.refusals import REFUSALS, log_refusal
from flowpoint.agents.remembered import Head
from flowpoint.agents.stored import PendingWrite, Stored
from flowpoint.agents.values import Ref, Values
from flowpoint.errors import DamagedStoreError

SPECIAL: Final = {"__error__": -1, "__scheduled__": -2, "__interrupt__": -3, "__resume__": -4}
"""Channels of writes of which the last counts, not the first. As `langgraph.checkpoint.base.WRITES_IDX_MAP`."""

_LOOKS_MAX: Final = 3


class Upgrade(Protocol):
    """The application's schema, as far as reading and writing need it."""

    version: int

    def upgrade(self, stored: Stored, *, for_run: bool = True) -> Stored:
        """The checkpoint as the code expects it, or a SchemaError."""

    def is_current(self, version: int, checkpoint_ns: str, channel: str) -> bool:
        """Whether a stored value can be decoded strictly."""


@dataclass(slots=True)
class Saved:
    """A checkpoint with all that belongs to it."""

    place: Place
    number: int
    id: str
    parent: str | None
    moved: bool
    at_ms: int
    version: int
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    writes: list[PendingWrite]

    @property
    def values(self) -> dict[str, Any]:
        """The values of the channels."""
        values: dict[str, Any] = self.checkpoint["channel_values"]
        return values


class Record(NamedTuple):
    """A commit as stored: its values are refs yet."""

    header: Header
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    channels: dict[str, Ref]


class Pending(NamedTuple):
    """A pending write as stored; its first three fields are the order in which writes are applied."""

    task_path: str
    task_id: str
    place: int
    channel: str
    ref: Ref
    version: int


class Reader:
    """Reads from one store."""

    def __init__(
        self, kv: Kv, index: Index, envelopes: Envelopes, values: Values, schema: Upgrade | None = None
    ) -> None:
        self._schema = schema
        self.kv = kv
        self.index = index
        self.envelopes = envelopes
        self.values = values

    # ------------------------------------------------------------------ one

    def get(self, place: Place, id: str | None) -> Saved | None:
        """The checkpoint of an id, or the head of the namespace; None when there is none."""
        thread, ns = place
        with self.kv.section(part(thread), Section.READ):
            for _ in range(_LOOKS_MAX):
                self.index.refresh(thread)
                head = self._found(place, id) if id else self.index.head(thread, ns)
                if head is None:
                    return None
                record = self.indexed(place, head)
                if record is not None:
                    return self.saved(record)
                number = head.number
        raise DamagedStoreError(
            f"cannot read commit {number} of thread {thread!r}: the index names it, but it is missing; restore it"
        )

    def _found(self, place: Place, id: str) -> Head | None:
        number = self.index.find(*place, id)
        return None if number is None else Head(number, id)

    def head_record(self, thread: str, ns: str) -> Record | None:
        """The head of a namespace as stored."""
        head = self.index.head(thread, ns)
        return None if head is None else self.indexed(Place(thread, ns), head)

    def indexed(self, place: Place, head: Head) -> Record | None:
        """The commit that the index names, or None when it has just been removed.

        Raises:
            DamagedStoreError: it is another checkpoint than the index says, or was not removed and yet is not there.
        """
        try:
            record = self.record(place.thread, head.number)
        except REFUSALS as error:
            log_refusal(place, head.id, error)
            raise
        if record is None:
            self.index.refresh(place.thread)
            if self.index.find(*place, head.id) == head.number:
                raise DamagedStoreError(
                    f"cannot read checkpoint {head.id} of thread {place.thread!r}: commit {head.number} is missing; "
                    "restore the store"
                )
            return None
        if (record.header.ns, record.header.id) != (place.ns, head.id):
            raise DamagedStoreError(
                f"cannot read checkpoint {head.id} of thread {place.thread!r}: the index leads to commit {head.number}, "
                f"which is checkpoint {record.header.id}; restore the store"
            )
        return record

    def record(self, thread: str, number: int) -> Record | None:
        """The commit of a number, or None when it has just been removed."""
        data = self.kv.get(commit_name(thread, number))
        if data is None:
            return None
        header, data = self.envelopes.read_commit(data, thread, number)
        body = read_body(data, f"commit {number} of thread {thread!r}")
        return Record(header, body.checkpoint, body.metadata, body.channels)

    def saved(self, record: Record) -> Saved:
        """A commit with its values and pending writes.

        Raises:
            FlowPointError: one of `REFUSALS`, which is logged; what is stored stays.
        """
        header = record.header
        try:
            return self._saved(record)
        except REFUSALS as error:
            log_refusal(Place(header.thread, header.ns), header.id, error)
            raise

    def _saved(self, record: Record) -> Saved:
        header = record.header
        thread = header.thread
        place = Place(thread, header.ns)
        values = {channel: self._load(place, header.version, channel, ref) for channel, ref in record.channels.items()}
        return Saved(
            place=place,
            number=header.number,
            id=header.id,
            parent=header.parent,
            moved=header.moves,
            at_ms=header.at_ms,
            version=header.version,
            checkpoint={**record.checkpoint, "channel_values": values},
            metadata=record.metadata,
            writes=[
                PendingWrite(
                    write.task_id,
                    write.task_path,
                    write.channel,
                    self._load(place, write.version, write.channel, write.ref),
                    write.version,
                    write.place,
                )
                for write in self.pending(place, header.id)
            ],
        )

    def _load(self, place: Place, version: int, channel: str, ref: Ref) -> Any:
        if self._schema is None or self._schema.is_current(version, place.ns, channel):
            return self.values.load(place.thread, channel, ref)
        return self.values.load_old(place.thread, channel, ref)

    # ------------------------------------------------------------------ pending writes

    def pending(self, place: Place, id: str) -> list[Pending]:
        """The pending writes of a checkpoint, in the order in which they are applied."""
        found: dict[tuple[str, int], Pending] = {}
        for _key, writes in self.stored_writes(place, id):
            for index, channel, ref in writes.items:
                if index < 0 or (writes.task_id, index) not in found:
                    found[writes.task_id, index] = Pending(
                        writes.task_path, writes.task_id, index, channel, ref, writes.version
                    )
        return sorted(found.values(), key=lambda write: write[:3])

    def stored_writes(self, place: Place, id: str) -> Iterator[tuple[str, Writes]]:
        """What every `put_writes` for a checkpoint stored, in order for each task."""
        for key, data in self.kv.scan(writes_prefix(place, id)):
            writes = self.envelopes.read_writes(data, place.thread)
            if (writes.ns, writes.id) != (place.ns, id):
                raise DamagedStoreError(
                    f"cannot read {key}: of thread {place.thread!r}, it holds writes of checkpoint {writes.id}, moved; "
                    "restore the store"
                )
            yield key, writes

    # ------------------------------------------------------------------ many

    def threads(self, every: EveryThread | None = None) -> list[str]:
        """The threads that have checkpoints. What is damaged is passed over by `every`, if there is one."""
        with self.kv.section(part(""), Section.READ):  # what was written until now is seen from here on
            names = list(children(self.kv, "t/"))
        found = []
        for name in names:
            with _passing_over(every, text_of(name)):
                found.append(self._thread_named(name))
        return [thread for thread in found if thread is not None]

    def _thread_named(self, name: Part) -> str | None:
        """The thread of a part of keys, if anything of it counts."""
        with self.kv.section(name, Section.READ):
            last = next(self.kv.scan(f"t/{name}/c/", reverse=True), None)
            if last is None:
                return None
            thread = self.envelopes.thread_of(last[1], last[0])
            self.index.refresh(thread)
            return thread if self.index.namespaces(thread) else None

    def newest(self, thread: str) -> Iterator[tuple[Place, Head]]:
        """The checkpoints of a thread in all namespaces, newest first. Nothing of them is read."""
        return self._newest(self._places(thread, None, None), None, None)

    def listed(
        self,
        *,
        thread: str | None,
        ns: str | None = None,
        id: str | None = None,
        before: str | None = None,
        filter: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> Iterator[Saved]:
        """Checkpoints that match, newest first. None stands for any thread, namespace or id.

        Raises:
            ValueError: a negative limit.
        """
        if limit is not None and limit < 0:
            raise ValueError(f"cannot list {limit} checkpoints; give limit=None for all")
        every = EveryThread("list") if thread is None else None
        return self._listed(self._places(thread, ns, every), id, before, filter or {}, limit, every)

    def _listed(
        self,
        places: list[Place],
        id: str | None,
        before: str | None,
        filter: Mapping[str, Any],
        limit: int | None,
        every: EveryThread | None,
    ) -> Iterator[Saved]:
        found = self._whole(self._newest(places, before, every), id, filter, every)
        yield from islice(found, limit)
        if every is not None:
            every.tell()

    def _whole(
        self,
        heads: Iterator[tuple[Place, Head]],
        id: str | None,
        filter: Mapping[str, Any],
        every: EveryThread | None,
    ) -> Iterator[Saved]:
        for place, head in heads:
            saved = None
            with _passing_over(every, place.thread):
                record = self._matching(place, head, id, filter)
                if record is not None:
                    with self.kv.section(part(place.thread), Section.READ):
                        saved = self.saved(record)
            if saved is not None:
                yield saved

    def _matching(self, place: Place, head: Head, id: str | None, filter: Mapping[str, Any]) -> Record | None:
        with self.kv.section(part(place.thread), Section.READ):
            record = self.indexed(place, head)
        if record is None or (id and record.header.id != id):
            return None
        metadata = record.metadata
        return record if all(metadata.get(key) == value for key, value in filter.items()) else None

    def _places(self, thread: str | None, ns: str | None, every: EveryThread | None) -> list[Place]:
        places = []
        for name in self.threads(every) if thread is None else [thread]:
            with _passing_over(every, name), self.kv.section(part(name), Section.READ):
                self.index.refresh(name)
                places += [Place(name, one) for one in ([ns] if ns is not None else self.index.namespaces(name))]
        return places

    def _newest(
        self, places: list[Place], before: str | None, every: EveryThread | None
    ) -> Iterator[tuple[Place, Head]]:
        streams = [self._below(place, before, every) for place in places]
        if len(streams) == 1:
            return streams[0]
        return heapq.merge(*streams, key=lambda found: found[1].id, reverse=True)

    def _below(self, place: Place, before: str | None, every: EveryThread | None) -> Iterator[tuple[Place, Head]]:
        """The checkpoints of a namespace that came before an id: by commit if the id is known there, else by id."""
        with _passing_over(every, place.thread):
            yield from self._heads_below(place, before)

    def _heads_below(self, place: Place, before: str | None) -> Iterator[tuple[Place, Head]]:
        thread, ns = place
        with self.kv.section(part(thread), Section.READ):
            below = self.index.find(thread, ns, before) if before else None
            newest = self.index.newest(thread, ns, below)
        for head in newest:
            if not before or below is not None or head.id < before:
                yield place, head


def _passing_over(every: EveryThread | None, thread: str) -> AbstractContextManager[None]:
    return nullcontext() if every is None else every.passing_over(thread)
