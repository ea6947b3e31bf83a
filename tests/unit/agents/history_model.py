"""What a saver is to do, in plain dicts: the oracle of histories made by chance (`history_machine`).

A thread is a list of checkpoints in the order of their commits, a head for each namespace, and what tasks have written.
Nothing here knows of logs, indexes, entries or anything remembered: only what somebody sees who uses a saver.

Times are milliseconds. Not here: what happens (`history_steps`), stores and how they fail (`history_stores`).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from flowpoint.agents.kv import part

DAY: Final = 86_400_000
SPECIAL: Final = {"__error__": -1, "__scheduled__": -2, "__interrupt__": -3, "__resume__": -4}

Refused = str
"""Why a put is refused: "conflict", "late", "lost" or "circle"; empty when it is not."""


class Read(NamedTuple):
    """How a run has read."""

    explicit: bool
    ns: str
    id: str


class Put(NamedTuple):
    """What is handed to `put`."""

    thread: str
    ns: str
    id: str
    parent: str | None
    values: Mapping[str, Any]
    versions: Mapping[str, int]
    changed: Sequence[str]
    metadata: Mapping[str, Any]
    read: Read | None = None
    run: int | None = None


@dataclass(frozen=True, eq=False)
class Kept:
    """A checkpoint, each put of it another."""

    ns: str
    id: str
    parent: str | None
    values: Mapping[str, Any]
    versions: Mapping[str, int]
    metadata: Mapping[str, Any]
    moves: bool
    """Whether the head moved here."""
    at: int
    put: Put | None
    """What it was made by, if that put, made again, would be found to be the same."""
    version: int = 0
    """Of the schema."""


class Written(NamedTuple):
    """What a task wrote under one index."""

    path: str
    channel: str
    value: Any
    at: int
    version: int = 0


@dataclass
class Thread:
    """One thread."""

    checkpoints: list[Kept] = field(default_factory=list)
    heads: dict[str, str] = field(default_factory=dict)
    writes: dict[tuple[str, str], dict[tuple[str, int], Written]] = field(default_factory=dict)
    is_begun: bool = False
    """Whether anything was ever committed."""
    is_cut: bool = False
    """Whether anything was ever removed, so that a parent that is not there may have been."""

    def copied(self) -> Thread:
        """Another one that changes by itself."""
        writes = {of: dict(items) for of, items in self.writes.items()}
        return Thread(list(self.checkpoints), dict(self.heads), writes, self.is_begun, self.is_cut)

    def find(self, ns: str, id: str | None) -> Kept | None:
        """A checkpoint by its id."""
        return next((one for one in self.checkpoints if (one.ns, one.id) == (ns, id)), None)

    def lineage(self, ns: str, id: str | None) -> Iterator[Kept]:
        """A checkpoint and its ancestors, the youngest first."""
        while (one := self.find(ns, id)) is not None:
            yield one
            id = one.parent

    def newest(self, ns: str, before: str | None) -> list[Kept]:
        """The checkpoints of a namespace that came before an id: by commit if the id is known there, else by id."""
        line = [one for one in self.checkpoints if one.ns == ns]
        if before:
            places = [at for at, one in enumerate(line) if one.id == before]
            line = line[: places[0]] if places else [one for one in line if one.id < before]
        return line[::-1]

    def pending(self, ns: str, id: str, version: int = 0) -> list[tuple[str, str, Any]]:
        """What is pending at a checkpoint, in the order in which it is applied, as code of a version is shown it."""
        found = sorted((w.path, task, index, w) for (task, index), w in self.writes.get((ns, id), {}).items())
        return [
            (task, name_now(written.channel, ns, written.version, version), written.value)
            for _path, task, _index, written in found
        ]

    def cut(self, kept: Iterable[Kept], heads: Mapping[str, str], oldest: int) -> None:
        """Keep only these; of what was written for none that there is, only what is younger than `oldest`."""
        kept, gone = list(kept), set(map(self._of, self.checkpoints))
        self.checkpoints = [one for one in self.checkpoints if one in kept]
        self.heads, self.is_cut = dict(heads), True
        if not self.checkpoints:
            self.writes.clear()
            return
        for of in gone - set(map(self._of, self.checkpoints)):
            self.writes.pop(of, None)
        self.sweep(oldest)

    @staticmethod
    def _of(one: Kept) -> tuple[str, str]:
        return one.ns, one.id

    def sweep(self, oldest: int) -> None:
        """Forget what tasks wrote until then for checkpoints that are not there, task by task."""
        there = set(map(self._of, self.checkpoints))
        for of in self.writes.keys() - there:
            tasks = {task for task, _index in self.writes[of]}
            for task in tasks:
                mine = {key: written for key, written in self.writes[of].items() if key[0] == task}
                if all(written.at <= oldest for written in mine.values()):
                    self.writes[of] = {key: w for key, w in self.writes[of].items() if key not in mine}
            if not self.writes[of]:
                del self.writes[of]


@dataclass
class Run:
    """A run that tells when it ends."""

    handle: int
    reads: dict[tuple[str, str], tuple[str | None, bool]] = field(default_factory=dict)
    threads: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)


@dataclass
class Model:
    """All threads of a store, and what its handles have counted."""

    on_conflict: str
    version: int = 0
    """Of the code's schema."""
    now: int = 1_000_000_000
    threads: dict[str, Thread] = field(default_factory=dict)
    runs: dict[int, Run] = field(default_factory=dict)
    counts: dict[int, Counter[str]] = field(default_factory=dict)

    def copied(self) -> Model:
        """Another one that changes by itself."""
        runs = {name: Run(r.handle, dict(r.reads), set(r.threads), set(r.lost)) for name, r in self.runs.items()}
        threads = {name: thread.copied() for name, thread in self.threads.items()}
        counts = {handle: Counter(found) for handle, found in self.counts.items()}
        return Model(self.on_conflict, self.version, self.now, threads, runs, counts)

    def thread(self, name: str) -> Thread:
        """A thread, which may have nothing yet."""
        return self.threads.setdefault(name, Thread())

    # ------------------------------------------------------------------ reading

    def get(self, name: str, ns: str, id: str | None, run: int | None = None) -> tuple[Kept | None, Read | None]:
        """The checkpoint of an id or the head, and how who reads it has read."""
        thread = self.thread(name)
        head = thread.heads.get(ns)
        found = thread.find(ns, id or head)
        if run is not None:
            self.runs[run].reads.setdefault((name, ns), (None if found is None else found.id, bool(id)))
        if found is None:
            return None, None
        return found, Read(bool(id) and head is not None and head != found.id, ns, found.id)

    def listed(
        self, name: str | None, ns: str | None, before: str | None, filter: Mapping[str, Any], limit: int | None
    ) -> list[tuple[str, Kept]]:
        """Checkpoints that match, newest first, with their threads."""
        names = sorted((one for one, thread in self.threads.items() if thread.heads), key=part)
        streams = [
            [(one, kept) for kept in thread.newest(space, before)]
            for one in (names if name is None else [name])
            for thread in [self.thread(one)]
            for space in ([ns] if ns is not None else sorted(thread.heads))
        ]
        merged = heapq.merge(*streams, key=lambda found: found[1].id, reverse=True)
        found = (one for one in merged if all(one[1].metadata.get(key) == value for key, value in filter.items()))
        return list(islice(found, limit))

    # ------------------------------------------------------------------ writing

    def put(self, put: Put, handle: int) -> Refused:
        """Put a checkpoint; why it is refused."""
        thread = self.thread(put.thread)
        older = thread.find(put.ns, put.id)
        parent = put.parent
        if parent == put.id:
            parent = None if older is None else older.parent
        elif (
            older is not None
            and parent != older.parent
            and any(one.id == put.id for one in thread.lineage(put.ns, parent))
        ):
            return "circle"
        before = thread.find(put.ns, parent)
        values = dict(put.values)
        if before is not None:
            values |= {
                name: value
                for name, value in before.values.items()
                if name not in put.values
                and name not in put.changed
                and name in put.versions
                and before.versions.get(name) == put.versions[name]
            }
        if older is not None and older.put is put and (older.parent, older.values) == (parent, values):
            return ""
        moves, refused = self._judged(put, parent, thread, handle)
        if refused:
            return refused
        if older is not None:
            thread.checkpoints.remove(older)
        thread.checkpoints.append(
            Kept(put.ns, put.id, parent, values, put.versions, put.metadata, moves, self.now, put, self.version)
        )
        thread.is_begun = True
        if moves:
            thread.heads[put.ns] = put.id
        return ""

    def _judged(self, put: Put, parent: str | None, thread: Thread, handle: int) -> tuple[bool, Refused]:
        run = None if put.run is None else self.runs[put.run]
        if run is not None and put.thread in run.lost:
            return False, "lost"
        had = run is not None and put.thread in run.threads
        reads: dict[str, str | None] = {}
        if run is not None and not had:
            reads = {ns: id for (name, ns), (id, explicit) in run.reads.items() if name == put.thread and not explicit}
        holder = any(put.thread in other.threads for name, other in self.runs.items() if name != put.run)
        if run is not None and not holder:
            run.threads.add(put.thread)
        moves, event, refused = self._verdict(put, parent, thread, reads, holder)
        if event:
            self.counts.setdefault(handle, Counter())[event] += 1
        if run is not None and not moves and not had:
            run.lost.add(put.thread)
            run.threads.discard(put.thread)
        return moves, refused

    def _verdict(
        self, put: Put, parent: str | None, thread: Thread, reads: Mapping[str, str | None], holder: bool
    ) -> tuple[bool, str, Refused]:
        """Whether the head moves, what is told, and why it is refused."""
        head, before = thread.heads.get(put.ns), thread.find(put.ns, parent)
        continues = head is not None and head == parent
        if parent is not None and before is None and thread.is_cut:
            return False, "late", "late"
        read_other = any(thread.heads.get(ns) != id for ns, id in reads.items())
        may_move = continues or head is None or head == put.id or _travels(put.read, put.ns, parent)
        is_free = not holder or (head is None and self.on_conflict == "branch")
        if may_move and not read_other and is_free:
            return True, "", ""
        if self.on_conflict == "raise":
            return False, "conflict", "conflict"
        if head is None or head == put.id:
            return True, "conflict", ""
        return False, "conflict" if before is None or before.moves else "", ""

    def put_writes(self, name: str, ns: str, id: str, writes: Sequence[tuple[str, Any]], task: str, path: str) -> None:
        """Store what a task wrote: of a special channel the last counts, else the first under each index."""
        items = self.thread(name).writes.setdefault((ns, id), {})
        for place, (channel, value) in enumerate(writes):
            index = SPECIAL.get(channel, place)
            if index < 0 or (task, index) not in items:
                items[task, index] = Written(path, channel, value, self.now, self.version)

    # ------------------------------------------------------------------ runs

    def begin(self, name: int, handle: int) -> None:
        """A run begins."""
        self.runs[name] = Run(handle)

    def end(self, name: int) -> None:
        """A run ends."""
        del self.runs[name]

    # ------------------------------------------------------------------ history

    def delete(self, name: str) -> None:
        """See `delete_thread`."""
        thread = self.thread(name)
        thread.cut([], {}, 0)
        thread.is_cut = thread.is_begun

    def delete_for_runs(self, runs: Sequence[str]) -> None:
        """See `CoreSaver`: heads go back to the nearest ancestor that stays, or else to the last that was committed."""
        for thread in self.threads.values():
            left = [one for one in thread.checkpoints if one.metadata.get("run_id") not in runs]
            if len(left) == len(thread.checkpoints):
                continue
            heads = {}
            for ns, head in thread.heads.items():
                line = [one for one in thread.lineage(ns, head) if one in left]
                rest = line[:1] or [one for one in left if one.ns == ns][-1:]
                heads |= {one.ns: one.id for one in rest}
            thread.cut(left, heads, self.now - DAY)

    def prune(self, name: str) -> None:
        """See `prune(strategy="keep_latest")`."""
        thread = self.thread(name)
        self._keep(thread, self._lines(thread, 1))

    def expire(self, name: str, keep_last: int | None, ttl: int | None) -> int:
        """See `CoreSaver.expire`."""
        thread = self.thread(name)
        count = len(thread.checkpoints)
        parents = {(one.ns, one.parent) for one in thread.checkpoints}
        tips = [one for one in thread.checkpoints if (one.ns, one.id) not in parents]
        waiting = [
            one for one in tips if any(channel == "__interrupt__" for _, channel, _ in thread.pending(one.ns, one.id))
        ]
        young = [one for one in thread.checkpoints if ttl is not None and one.at >= self.now - ttl]
        heads = [one for one in thread.checkpoints if thread.heads.get(one.ns) == one.id]
        if keep_last is None and not waiting and not any(one in young for one in heads):
            if count:
                thread.cut([], {}, 0)
            return count
        kept = waiting + self._lines(thread, keep_last or 1) + [one for one in tips if one in young]
        self._keep(thread, kept + (young if keep_last is None else []))
        return count - len(thread.checkpoints)

    def _lines(self, thread: Thread, last: int) -> list[Kept]:
        return [one for ns, head in thread.heads.items() for one in islice(thread.lineage(ns, head), last)]

    def _keep(self, thread: Thread, kept: list[Kept]) -> None:
        """Keep these, and for a DeltaChannel the ancestors back to the nearest stored value."""
        needed = list(kept)
        for one in kept:
            missing = set(one.metadata.get("counters_since_delta_snapshot", ()))
            for ancestor in thread.lineage(one.ns, one.id):
                needed.append(ancestor)
                missing -= ancestor.values.keys()
                if not missing:
                    break
        if any(one not in needed for one in thread.checkpoints):
            thread.cut(needed, thread.heads, self.now - DAY)

    def sweep(self, older_than: int) -> None:
        """See `CoreSaver.sweep`."""
        for thread in self.threads.values():
            thread.sweep(self.now - older_than)

    def copy(self, source: str, target: str, *, imported: bool = False) -> Refused:
        """See `copy_thread`; or take in what was exported of another thread."""
        old, new = self.thread(source), self.thread(target)
        if new.heads:
            return "there"
        if not old.checkpoints:
            return ""
        for one in old.checkpoints:
            is_head = old.heads.get(one.ns) == one.id
            made_by = one.put if one.put is not None and one.put.thread == target and not imported else None
            new.checkpoints.append(
                Kept(
                    one.ns, one.id, one.parent, one.values, one.versions, one.metadata, one.moves or is_head, one.at,
                    made_by, one.version,
                )
            )  # fmt: skip
            new.writes.pop((one.ns, one.id), None)
            if (one.ns, one.id) in old.writes:
                new.writes[one.ns, one.id] = dict(old.writes[one.ns, one.id])
        new.heads = dict(old.heads)
        new.is_begun = new.is_cut = True
        return ""


def name_now(channel: str, ns: str, written: int, version: int) -> str:
    """The name of a channel of the graph itself, which the second version of the code has renamed."""
    return "a2" if (channel, ns, written) == ("a", "", 1) and version > 1 else channel


def named_now(one: Kept, table: Mapping[str, Any], version: int) -> dict[str, Any]:
    """A table by channels, as code of a version is shown it."""
    return {name_now(name, one.ns, one.version, version): value for name, value in table.items()}


def _travels(read: Read | None, ns: str, parent: str | None) -> bool:
    """Whether a put is the first of a run that goes back in time on purpose, or of a sub-graph of such a run."""
    if read is None or not read.explicit:
        return False
    return (read.ns, read.id) == (ns, parent) if parent is not None else read.ns != ns
