"""The core of every saver: puts checkpoints and pending writes, and decides who moves the head of a thread.

A put is a commit. It moves the head of its namespace if it continues the head. A run that read an old checkpoint on
purpose (time travel) moves it too, with its first put. Everything else is a conflict: somebody else has moved the head
since this run read it. How a run read is told by its token, which `get` hands out and the framework carries to every
put of that run.

Written once and without waiting: the savers drive it from threads and loops. It knows neither paths nor clocks.

Invariants:
- A commit is numbered one above the last; its key is created only if absent, and its nonce tells whether it is ours.
- Nothing that was handed to `put` is dropped: with "branch" a conflict keeps both histories, with "raise" the put
  is refused before anything is written.
- What was deleted does not come back: a put whose parent was deleted is refused.

Not here: reading (`reading`), what goes (`retention`), LangGraph (`saver`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, Literal

from flowpoint.agents.envelope import PUT, Body, Envelopes, Header, Sealer, Writes, body_bytes
from flowpoint.agents.kv import Entry, Kv, Section, part
from flowpoint.agents.log import Index, ReplayedIndex, StoredIndex, commit_name
from flowpoint.agents.reading import SPECIAL, Place, Reader, Record, Saved, Upgrade, writes_prefix
from flowpoint.agents.stored import Stored
from flowpoint.agents.values import Leaves, Ref, Values, ValueSerde
from flowpoint.errors import ConcurrentRunError, InternalError, StorageError

logger = logging.getLogger("flowpoint.agents")

OnConflict = Literal["branch", "raise"]

_HEAD: Final = "head"
_EXPLICIT: Final = "explicit"
_TRIES_MAX: Final = 10_000
_RECENT_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Event:
    """Something that the keeper of a thread may want to know."""

    kind: Literal["conflict", "late", "note"]
    thread: str
    ns: str
    checkpoint_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Sizes:
    """Up to how many bytes a value stands inside the envelope."""

    changed: int
    """A channel that this checkpoint changed: the next one will probably change it again."""
    kept: int
    """A channel that stayed as it was: apart, it is stored once for all."""
    written: int
    """A pending write."""
    leaves: Leaves


@dataclass(frozen=True, slots=True)
class World:
    """What the core may not get by itself."""

    wall_ms: Callable[[], int]
    new_nonce: Callable[[], bytes]


class SaverCore:
    """One store of threads."""

    def __init__(
        self,
        kv: Kv,
        serde: ValueSerde,
        world: World,
        sizes: Sizes,
        *,
        sealer: Sealer | None = None,
        schema: Upgrade | None = None,
        on_conflict: OnConflict = "branch",
        on_event: Callable[[Event], None] | None = None,
        alone: bool = True,
    ) -> None:
        self.kv = kv
        self.envelopes = Envelopes(sealer)
        self.values = Values(kv, serde, sealer, sizes.leaves)
        self.index: Index = StoredIndex(kv, alone=alone) if kv.indexed else ReplayedIndex(kv, self._header)
        self.reader = self._reader(schema)
        self.world = world
        self.on_conflict = on_conflict
        self.counts: Counter[str] = Counter()
        self.sizes = sizes
        self._schema = schema
        self._on_event = on_event
        if schema is None:
            logger.info(
                "no schema: threads of older code are read as they are; give one with Schema.of(builder, version=1)"
            )
        self._noted: set[tuple[str, str]] = set()
        self._recent: dict[tuple[Place, str], tuple[Mapping[str, Any], dict[str, Ref]]] = {}

    def _reader(self, schema: Upgrade | None) -> Reader:
        return Reader(self.kv, self.index, self.envelopes, self.values, schema)

    def with_types(self, types: Iterable[Any]) -> SaverCore:
        """The same store, for one who knows these classes too. Counts and log are shared."""
        twin = copy(self)
        twin.values = self.values.with_types(types)
        twin.reader = twin._reader(self._schema)
        return twin

    @property
    def _version(self) -> int:
        return 0 if self._schema is None else self._schema.version

    def _header(self, data: bytes, thread: str, number: int) -> Header:
        return self.envelopes.read_commit(data, thread, number)[0]

    # ------------------------------------------------------------------ reading

    def get(self, place: Place, id: str | None, *, for_run: bool = True) -> Saved | None:
        """A checkpoint as the code of today expects it: by id, or the head."""
        saved = self.reader.get(place, id)
        return None if saved is None else self.upgraded(saved, for_run=for_run)

    def token(self, saved: Saved, *, explicit: bool) -> str:
        """How a run that starts from this checkpoint has read it."""
        head = self.index.head(*saved.place) if explicit else None
        how = _HEAD if head is None or head.id == saved.id else _EXPLICIT
        return token(how == _EXPLICIT, saved.place.ns, saved.id)

    def upgraded(self, saved: Saved, *, for_run: bool = False) -> Saved:
        """Migrate a checkpoint to the schema of the code; `for_run` also checks that it can go on from here.

        Raises:
            SchemaError: it cannot be.
        """
        return saved if self._schema is None else self._migrated(saved, self._schema, for_run)

    def _migrated(self, saved: Saved, schema: Upgrade, for_run: bool) -> Saved:
        checkpoint = saved.checkpoint
        stored = schema.upgrade(stored_of(saved), for_run=for_run)
        for note in stored.notes:
            self._note(saved, note)
        saved.checkpoint = {
            **checkpoint,
            "channel_values": stored.channels,
            "channel_versions": stored.channel_versions,
            "versions_seen": stored.versions_seen,
            "updated_channels": stored.updated_channels,
        }
        saved.metadata, saved.writes = stored.metadata, stored.pending_writes
        return saved

    def _note(self, saved: Saved, note: str) -> None:
        key = (saved.place.thread, note)
        if key not in self._noted:
            self._noted.add(key)
            self.tell("note", saved.place, saved.id, note)

    # ------------------------------------------------------------------ putting checkpoints

    def put(
        self,
        place: Place,
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any],
        changed: Mapping[str, Any],
        *,
        parent: str | None,
        token: str | None,
        sync: bool,
    ) -> None:
        """Commit a checkpoint. `changed` has the channels that are new in it.

        Raises:
            ConcurrentRunError: somebody else moved the head (with "raise"), or what this run built on was deleted.
            BadRecordError: a value cannot be stored; nothing was.
        """
        thread, id_ = place.thread, checkpoint["id"]
        out: dict[bytes, bytes] = {}
        channels = self._saved_values(thread, checkpoint["channel_values"], changed, out)
        bare = {key: value for key, value in checkpoint.items() if key != "channel_values"}
        nonce = self.world.new_nonce()
        with self.kv.section(thread, Section.APPEND):
            self.index.refresh(thread)
            older = self._earlier(place, id_)
            if older is not None and parent == id_:
                parent = older.header.parent
            self._carry(place, parent, bare["channel_versions"], channels, changed)
            body = body_bytes(Body(bare, dict(metadata), channels), f"checkpoint {id_} of thread {thread!r}")
            if older is not None and older.header.parent == parent and older[1:] == (bare, dict(metadata), channels):
                return  # Our own put, whose answer was lost.
            header = Header(PUT, 0, nonce, self.world.wall_ms(), thread, place.ns, id_, parent, version=self._version)
            blobs = self.values.missing(thread, out)
            number = None if older is None else older.header.number
            self._commit(header, body, blobs, lambda: self._may_move(place, id_, parent, token), number, sync=sync)
        self._remember(place, id_, bare["channel_versions"], channels)

    def _saved_values(
        self, thread: str, values: Mapping[str, Any], changed: Mapping[str, Any], out: dict[bytes, bytes]
    ) -> dict[str, Ref]:
        sizes, save = self.sizes, self.values.save
        return {
            channel: save(thread, channel, value, sizes.changed if channel in changed else sizes.kept, out)
            for channel, value in values.items()
        }

    def _carry(
        self,
        place: Place,
        parent: str | None,
        versions: Mapping[str, Any],
        channels: dict[str, Ref],
        changed: Mapping[str, Any],
    ) -> None:
        """Take over from the parent what the code did not hand us, of the same version: it may no longer know of it."""
        absent = [channel for channel in versions if channel not in channels and channel not in changed]
        if not absent or parent is None:
            return
        recent = self._recent.get((place, parent))
        if recent is None:
            record = self._earlier(place, parent)
            if record is None:
                return
            recent = record.checkpoint["channel_versions"], record.channels
        old_versions, old_channels = recent
        for channel in absent:
            if channel in old_channels and old_versions.get(channel) == versions[channel]:
                channels[channel] = old_channels[channel]

    def _earlier(self, place: Place, id: str) -> Record | None:
        number = self.index.find(*place, id)
        return None if number is None else self.reader.record(place.thread, number)

    def _remember(self, place: Place, id: str, versions: Mapping[str, Any], channels: dict[str, Ref]) -> None:
        while len(self._recent) >= _RECENT_MAX:
            self._recent.pop(next(iter(self._recent)), None)
        self._recent[place, id] = versions, channels

    def forget(self) -> None:
        """Forget what was written lately: something was removed."""
        self._recent.clear()

    # ------------------------------------------------------------------ the log

    def _may_move(self, place: Place, id: str, parent: str | None, told: str | None) -> bool:
        """Whether a put moves the head; a conflict is told, or raised."""
        head = self.index.head(*place)
        if head is not None and head.id == parent:
            return True
        if parent is not None and self.index.is_cut(place.thread) and self.index.find(*place, parent) is None:
            self._late(place, id, parent)
        if head is None or head.id == id or _travels(told, place.ns, parent):
            return True
        self._conflict(place, id, parent, head.id)
        return False

    def _late(self, place: Place, id: str, parent: str) -> None:
        text = f"its checkpoint {parent} was deleted while the run was going; start it anew"
        self.tell("late", place, id, text)
        raise ConcurrentRunError(f"cannot save checkpoint {id} of thread {place.thread!r}: {text}")

    def _conflict(self, place: Place, id: str, parent: str | None, head: str) -> None:
        seen = f"the run started from {parent or 'nothing'}, but another run has moved the head to {head}"
        if self.on_conflict == "raise":
            self.tell("conflict", place, id, f"refused: {seen}")
            raise ConcurrentRunError(
                f"cannot save checkpoint {id} of thread {place.thread!r}: {seen}; run again, or use invoke_with_retry"
            )
        before = None if parent is None else self._earlier(place, parent)
        if before is None or before.header.moves:
            self.tell("conflict", place, id, f"kept as a branch: {seen}")

    def _commit(
        self,
        header: Header,
        body: bytes,
        blobs: Sequence[Entry],
        may_move: Callable[[], bool],
        older: int | None = None,
        *,
        sync: bool,
    ) -> None:
        thread = header.thread
        for _ in range(_TRIES_MAX):
            numbered = header.numbered(self.index.tip(thread) + 1, may_move())
            if self._append(numbered, body, blobs, older, sync=sync):
                return
            self.index.refresh(thread)
        raise InternalError(f"{_TRIES_MAX} commits to thread {thread!r} in a row were taken by others")

    def _append(self, header: Header, body: bytes, blobs: Sequence[Entry], older: int | None, *, sync: bool) -> bool:
        """Try to be the next in the log."""
        thread, key = header.thread, commit_name(header.thread, header.number)
        puts, gone = self.index.beside(header, older)
        data = self.envelopes.commit(header, body)
        try:
            created = self.kv.create(key, data, beside=[*blobs, *puts], gone=gone, sync=sync)
        except StorageError:
            self.forget()
            raise
        if not created:
            # Somebody's, or ours, if the answer to an earlier try was lost.
            there = self.kv.get(key)
            if there is None or self._header(there, thread, header.number).nonce != header.nonce:
                return False
        if not self.index.is_current(thread):
            self.kv.write([], [key])
            return False
        # From here on the commit counts.
        self.index.appended(header)
        return True

    def append(self, header: Header, body: bytes, blobs: Sequence[Entry], *, moves: bool) -> None:
        """Commit what another thread or store has committed once. To be called in a section of the thread."""
        self._commit(header, body, blobs, lambda: moves, sync=True)

    def cut(self, thread: str, kept: Sequence[int], heads: Mapping[str, tuple[int, str]], why: str) -> None:
        """Commit that only these numbers count. To be called in a section for cutting."""
        extra = [list(kept), {ns: list(head) for ns, head in heads.items()}, why]
        header = Header("cut", 0, self.world.new_nonce(), self.world.wall_ms(), thread, extra=extra)
        self._commit(header, b"", [], lambda: True, sync=True)
        self.forget()

    # ------------------------------------------------------------------ pending writes

    def put_writes(
        self, place: Place, id: str, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str, *, sync: bool
    ) -> None:
        """Store what a task wrote. The checkpoint may not be there yet.

        Raises:
            BadRecordError: a value cannot be stored; nothing was.
        """
        thread = place.thread
        out: dict[bytes, bytes] = {}
        save, size = self.values.save, self.sizes.written
        items = [
            (SPECIAL.get(channel, index), channel, save(thread, channel, value, size, out))
            for index, (channel, value) in enumerate(writes)
        ]
        prefix = f"{writes_prefix(place, id)}{part(task_id)}~"
        with self.kv.section(thread, Section.APPEND):
            blobs = self.values.missing(thread, out)
            known: set[int] = set()
            for number in range(_TRIES_MAX):
                key = f"{prefix}{number:06d}"
                there = self.kv.get(key)
                if there is not None:
                    known.update(index for index, _channel, _ref in self.envelopes.read_writes(there, thread).items)
                    continue
                # The first of a task's writes counts; of special ones the last.
                new = [item for item in items if item[0] < 0 or item[0] not in known]
                now = self.world.wall_ms()
                entry = Writes(now, thread, place.ns, id, task_path, task_id, number, self._version, new)
                if not new or self.kv.create(key, self.envelopes.writes(entry), beside=blobs, sync=sync):
                    return
        raise InternalError(f"task {task_id} of thread {thread!r} has {_TRIES_MAX} sets of writes")

    # ------------------------------------------------------------------ telling

    def tell(self, kind: Literal["conflict", "late", "note"], place: Place, id: str, text: str) -> None:
        """Count, log and hand on an event."""
        self.counts[kind] += 1
        logger.warning("thread %r, namespace %r, checkpoint %s: %s", place.thread, place.ns, id, text)
        if self._on_event is not None:
            self._on_event(Event(kind, place.thread, place.ns, id, text))


def token(explicit: bool, ns: str, id: str) -> str:
    """How a run has read, in one word: the framework copies it around."""
    return f"{_EXPLICIT if explicit else _HEAD}\x1f{ns}\x1f{id}"


def stored_of(saved: Saved) -> Stored:
    """A checkpoint as a schema takes it."""
    checkpoint = saved.checkpoint
    return Stored(
        version=saved.version,
        thread=saved.place.thread,
        checkpoint_id=saved.id,
        checkpoint_ns=saved.place.ns,
        channels=saved.values,
        channel_versions=checkpoint["channel_versions"],
        versions_seen=checkpoint["versions_seen"],
        metadata=saved.metadata,
        pending_writes=saved.writes,
        updated_channels=checkpoint.get("updated_channels"),
        layout=checkpoint["v"],
    )


def _travels(told: str | None, ns: str, parent: str | None) -> bool:
    """Whether a put is the first of a run that goes back in time on purpose.

    A sub-graph with a memory of its own, which did not exist yet at the time that its graph goes back to, starts anew:
    it has read nothing, and carries the token of its graph.
    """
    if parent is not None:
        return told == token(True, ns, parent)
    how, _, rest = (told or "").partition("\x1f")
    return how == _EXPLICIT and rest.partition("\x1f")[0] != ns
