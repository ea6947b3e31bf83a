"""The core of every saver: puts checkpoints and pending writes, and tells what happens to a thread.

A put is a commit to the log of its thread. Whether it moves the head is judged by what the log says just then
(`conflicts`), anew whenever somebody else came first.

Written once, for callers on many threads and loops. It waits for nothing but its store, and knows neither paths nor
clocks.

Invariants:
- A commit is numbered one above the last; its key is created only if absent, and its nonce tells whether it is ours.
- Nothing that was handed to `put` is dropped: with "branch" a conflict keeps both histories, with "raise" the put
  is refused before anything is written.
- What was deleted does not come back: a put whose parent was deleted is refused.

Not here: the log (`appending`), who may move the head (`conflicts`), reading (`reading`), what goes (`retention`),
LangGraph (`saver`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from threading import Lock
from types import MappingProxyType
from typing import Any, Final

from flowpoint.agents.appending import Appender, World
from flowpoint.agents.carried import Carried
from flowpoint.agents.conflicts import (
    MOVES,
    Claim,
    Event,
    OnConflict,
    Verdict,
    grew_from,
    in_progress,
    judged,
    lineage,
    token,
)
from flowpoint.agents.entry_names import Place, commit_name
from flowpoint.agents.envelope import PUT, Envelopes, Header, Sealer, Writes
from flowpoint.agents.kv import Entry, Kv, Section, part
from flowpoint.agents.log import Index
from flowpoint.agents.reading import SPECIAL, Reader, Record, Saved, Upgrade
from flowpoint.agents.refusals import REFUSALS, log_refusal
from flowpoint.agents.remembered import Head
from flowpoint.agents.replayed_index import ReplayedIndex
from flowpoint.agents.running import Run, Runs
from flowpoint.agents.stored import LAYOUT, Stored
from flowpoint.agents.stored_index import StoredIndex
from flowpoint.agents.task_writes import TaskWrites
from flowpoint.agents.values import Leaves, Ref, Values, ValueSerde
from flowpoint.errors import BadRecordError, ConcurrentRunError

logger = logging.getLogger("flowpoint.agents")

_NOTED_MAX: Final = 10_000
_NO_READS: Final[Mapping[Place, str | None]] = MappingProxyType({})


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
        stored = StoredIndex(kv, alone=alone) if kv.indexed else None
        self.index: Index = stored or ReplayedIndex(kv, self._header)
        self._stored = stored if alone else None
        """Where nobody else writes to the store, so that what is remembered of it is all there is to know."""
        self.task_writes = TaskWrites(kv, self.envelopes, self._stored)
        self.reader = self._reader(schema)
        self.world = world
        self.log = Appender(kv, self.index, self.envelopes, world)
        self.runs = Runs(kv.holders)
        self.on_conflict = on_conflict
        self.counts: Counter[str] = Counter()
        self._counting = Lock()
        self.sizes = sizes
        self._schema = schema
        self._version = 0 if schema is None else schema.version
        self._on_event = on_event
        if schema is None:
            logger.info(
                "no schema: threads of older code are read as they are; give one with Schema.of(builder, version=1)"
            )
        self._noted: set[tuple[str, str]] = set()
        self.carried = Carried(self._earlier)

    def _reader(self, schema: Upgrade | None) -> Reader:
        return Reader(self.kv, self.index, self.envelopes, self.values, schema)

    def with_types(self, types: Iterable[Any]) -> SaverCore:
        """The same store, for one who knows these classes too. Counts and log are shared."""
        twin = copy(self)
        twin.values = self.values.with_types(types)
        twin.reader = twin._reader(self._schema)
        return twin

    @property
    def has_schema(self) -> bool:
        """Whether stored versions are looked at."""
        return self._schema is not None

    def _header(self, data: bytes, thread: str, number: int) -> Header:
        return self.envelopes.read_commit(data, thread, number)[0]

    # ------------------------------------------------------------------ reading

    def get(self, place: Place, id: str | None, *, for_run: bool = True) -> Saved | None:
        """A checkpoint as the code of today expects it: by id, or the head."""
        saved = self.reader.get(place, id)
        return None if saved is None else self.upgraded(saved, for_run=for_run)

    def token(self, saved: Saved, *, explicit: bool) -> str:
        """How a run that starts from this checkpoint has read it."""
        head = None
        if explicit:
            with self.kv.section(part(saved.place.thread), Section.READ):
                head = self.index.head(*saved.place)
        return token(head is not None and head.id != saved.id, saved.place.ns, saved.id)

    def upgraded(self, saved: Saved, *, for_run: bool = False) -> Saved:
        """Migrate a checkpoint to the schema of the code; `for_run` also checks that it can go on from here.

        Raises:
            SchemaError: it cannot be.
        """
        return saved if self._schema is None else self._migrated(saved, self._schema, for_run)

    def _migrated(self, saved: Saved, schema: Upgrade, for_run: bool) -> Saved:
        checkpoint = saved.checkpoint
        try:
            stored = schema.upgrade(stored_of(saved), for_run=for_run)
        except REFUSALS as error:
            log_refusal(saved.place, saved.id, error)
            raise
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
            if len(self._noted) >= _NOTED_MAX:
                self._noted.clear()
            self._noted.add(key)
            self.tell(Event("note", *saved.place, saved.id, note))

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
        version: int | None = None,
        run: str | None = None,
    ) -> None:
        """Commit a checkpoint. `changed` has the channels that are new in it; `version` is the schema's by default.

        A `run` (its name) that moves the head has the thread from then on, if it tells when it ends.

        Raises:
            ConcurrentRunError: somebody else moved the head (with "raise"), or what this run built on was deleted.
            BadRecordError: a value cannot be stored, or the checkpoint was made from itself; nothing was stored.
        """
        thread, id_ = place.thread, checkpoint["id"]
        out: dict[bytes, bytes] = {}
        channels = self._saved_values(place, checkpoint, changed, out)
        bare = dict(checkpoint)
        bare.pop("channel_values", None)
        if type(metadata) is not dict:
            metadata = dict(metadata)
        with self.kv.section(part(thread), Section.APPEND):
            self.index.refresh(thread)
            continued = None if run is not None else self._continued(place, id_, parent)
            older: Record | None = None
            before: int | None
            if continued is not None:
                before = continued.number
            else:
                older = self._earlier(place, id_)
                parent = self._checked_parent(place, id_, parent, older)
                before = None if parent is None else self._number(place, parent)
            self.carried.add(place, parent, before, bare["channel_versions"], channels, changed)
            body = self.envelopes.body(bare, metadata, channels, thread)
            if older is not None and older.header.parent == parent and older[1:] == (bare, metadata, channels):
                # Our own put, whose answer was lost, perhaps since it could not be synced.
                self.kv.settle([commit_name(thread, older.header.number)], sync=sync)
                return
            nonce, at = self.world.new_nonce(), self.world.wall_ms()
            version = self._version if version is None else version
            # As it will be unless the verdict is against it, or somebody else comes first.
            number = self.index.tip(thread) + 1
            header = Header(PUT, number, nonce, at, thread, place.ns, id_, parent, True, version)
            blobs = self.values.missing(thread, out) if out else []
            if continued is not None and self._stored is not None:
                verdict = MOVES
                self._stored.append(header, self.envelopes.commit(header, body), blobs, sync)
            else:
                verdict = self._put_judged(place, header, body, blobs, older, token, sync, run)
                number = self.index.tip(thread)
            if not verdict.refusal:
                self.carried.remember(place, id_, number, bare["channel_versions"], channels)
        # Told when nobody waits for us any more: what listens may take its time, or use the saver itself.
        if verdict.event is not None:
            self.tell(verdict.event)
        if verdict.refusal:
            raise ConcurrentRunError(f"cannot save checkpoint {id_} of thread {thread!r}: {verdict.refusal}")

    def _checked_parent(self, place: Place, id: str, parent: str | None, older: Record | None) -> str | None:
        """What a checkpoint was made from. One that replaces itself, as a put that is made again, keeps its parent.

        Raises:
            BadRecordError: the parent was made from the checkpoint, which would be its own ancestor.
        """
        before = None if older is None else older.header.parent
        if parent == id:
            return before
        if older is None or parent == before:
            return parent
        if any(one.header.id == id for one in lineage(self._earlier, place, parent)):
            raise BadRecordError(
                f"cannot save checkpoint {id} of thread {place.thread!r} as made from {parent}: that one was made from "
                "it; give the new checkpoint an id of its own"
            )
        return parent

    def _continued(self, place: Place, id: str, parent: str | None) -> Head | None:
        """The head, if it is known without a look that a put is new and continues it, and that no run has the thread.

        `judged` would say nothing else, and nobody else can come first.
        """
        head = None if self._stored is None else self._stored.continued(place, id, parent)
        return None if head is None or self.runs.holder(place.thread) is not None else head

    def _put_judged(
        self,
        place: Place,
        header: Header,
        body: bytes,
        blobs: Sequence[Entry],
        older: Record | None,
        token: str | None,
        sync: bool,
        run: str | None,
    ) -> Verdict:
        thread = place.thread
        going = None if run is None else self.runs.get(run)
        if going is not None:
            going.check_not_lost(thread, header.id)
        had = going is not None and going.has(thread)
        reads = _NO_READS if going is None or had else going.reads_of(thread)
        claim = Claim(place, header.id, header.parent, token, self.runs.other(thread, run), reads)
        judge = partial(judged, self.index, self._earlier, self.on_conflict, claim)
        verdict = self.log.commit(header, body, blobs, judge, None if older is None else older.header.number, sync)
        if going is not None:
            _tell_run(going, place, header.id, verdict, had)
        return verdict

    def _saved_values(
        self, place: Place, checkpoint: Mapping[str, Any], changed: Mapping[str, Any], out: dict[bytes, bytes]
    ) -> dict[str, Ref]:
        sizes = self.sizes
        try:
            return self.values.save_all(
                place.thread, checkpoint["channel_values"], changed, sizes.changed, sizes.kept, out
            )
        except REFUSALS as error:
            log_refusal(place, checkpoint["id"], error)
            raise

    def _number(self, place: Place, id: str) -> int | None:
        """The number of a checkpoint, which is the head as a rule."""
        head = self.index.head(*place)
        return head.number if head is not None and head.id == id else self.index.find(*place, id)

    def _earlier(self, place: Place, id: str) -> Record | None:
        number = self.index.find(*place, id)
        return None if number is None else self.reader.indexed(place, Head(number, id))

    # ------------------------------------------------------------------ runs in progress

    def hold(self, run: Run, thread: str) -> None:
        """Give a thread to a run that goes on from its head, before it puts anything.

        Raises:
            ConcurrentRunError: another run has it.
        """
        holder = run.other(thread)
        if holder is None:
            return
        run.refused = Place(thread, "")
        self.tell(Event("conflict", thread, "", "", f"refused: {in_progress(holder)} has the thread"))
        raise ConcurrentRunError(
            f"cannot go on with thread {thread!r}: {in_progress(holder)} has it; wait until it ends"
        )

    def has_taken_in(self, run: Run) -> bool:
        """Whether the heads of a run's thread hold what it was given, though another run came between."""
        return any(self._has_taken_in(place, id) for place, id in run.landed.items() if ":" not in place.ns)

    def _has_taken_in(self, place: Place, id: str) -> bool:
        with self.kv.section(part(place.thread), Section.READ):
            self.index.refresh(place.thread)
            head = self.index.head(*place)
            return head is not None and grew_from(self._earlier, place, head.id, id)

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
        try:
            items = [
                (SPECIAL.get(channel, index), channel, save(thread, channel, value, size, out))
                for index, (channel, value) in enumerate(writes)
            ]
        except REFUSALS as error:
            log_refusal(place, id, error)
            raise
        with self.kv.section(part(thread), Section.APPEND):
            blobs = self.values.missing(thread, out) if out else []
            written = Writes(self.world.wall_ms(), thread, place.ns, id, task_path, task_id, 0, self._version, items)
            self.task_writes.add(place, written, blobs, sync=sync)

    # ------------------------------------------------------------------ telling

    def tell(self, event: Event) -> None:
        """Count, log and hand on an event. To be called outside of sections. What listens cannot undo a put."""
        with self._counting:
            self.counts[event.kind] += 1
        logger.warning(
            "thread %r, namespace %r, checkpoint %s: %s", event.thread, event.ns, event.checkpoint_id, event.text
        )
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception:
            logger.exception("on_event failed for a %s of thread %r; the saver goes on", event.kind, event.thread)


def _tell_run(run: Run, place: Place, id: str, verdict: Verdict, had: bool) -> None:
    """What became of a put of it, before which it had the thread or not."""
    if verdict.moves:
        run.landed.setdefault(place, id)
    elif not had:
        run.lose(place.thread)
    if verdict.refusal:
        run.refused = place


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
        versions_seen=checkpoint.get("versions_seen", {}),
        metadata=saved.metadata,
        pending_writes=saved.writes,
        updated_channels=checkpoint.get("updated_channels"),
        layout=checkpoint.get("v", LAYOUT),
    )
