"""What goes: pruned history, deleted threads and runs, expired checkpoints, orphans; and copies of threads.

A removal is first a commit, a cut, that says which numbers still count and where the heads are. From then on the rest
is gone for every reader; removing its entries comes after, and whoever is interrupted in it leaves only litter, which
the next removal or `sweep` takes away.

A checkpoint that stays keeps what it needs: its pending writes, its values, and for a DeltaChannel its ancestors and
their writes, back to the nearest stored value.

Invariants: the head of a namespace stays, unless its run or thread is deleted. The last commit of a thread stays for
ever: a late write of a deleted run finds that its parent was deleted. Nothing that a kept commit names is removed.

Not here: reading and putting (`reading`, `core`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import islice
from typing import Final

from flowpoint.agents.core import SaverCore
from flowpoint.agents.entry_names import Place, commits_prefix, number_of, root, writes_prefix
from flowpoint.agents.envelope import PUT, Header
from flowpoint.agents.every_thread import UNREADABLE, EveryThread
from flowpoint.agents.kv import Part, Section, children, part, text_of
from flowpoint.agents.reading import Record
from flowpoint.agents.remembered import Head
from flowpoint.agents.removing import (
    cut_unread,
    remove,
    remove_all,
    remove_misnamed,
    remove_writes,
    unneeded_commits,
)
from flowpoint.agents.values import blob_name
from flowpoint.errors import UsageError

ORPHAN_AGE: Final = timedelta(days=1)
"""How long pending writes wait for their checkpoint, which a run puts soon after."""

logger = logging.getLogger("flowpoint.agents")

_INTERRUPT: Final = "__interrupt__"
_DELTA: Final = "counters_since_delta_snapshot"

Records = dict[int, Record]


def delete_thread(core: SaverCore, thread: str) -> None:
    """Delete a thread. Nothing is read of what goes: what is damaged can be deleted, too."""
    with core.kv.section(part(thread), Section.CUT):
        remove_misnamed(core, thread)
        try:
            core.index.refresh(thread)
        except UNREADABLE as error:
            logger.warning("thread %r: deleted, though its log cannot be read: %s", thread, error)
            cut_unread(core, thread, "deleted")
            remove_all(core, thread)
            return
        if core.index.tip(thread):
            _cut(core, thread, {}, set(), "deleted", {})
        else:  # there may be writes whose checkpoint has not come yet
            remove_all(core, thread)


def keep(core: SaverCore, thread: str, *, last: int) -> int:
    """Keep the heads, the last `last` checkpoints on the way to each, and what they need; how many went."""
    with core.kv.section(part(thread), Section.CUT):
        core.index.refresh(thread)
        records = records_of(core, thread)
        wanted = {number for head in _heads(core, thread) for number in _line(records, head, last)}
        return _cut_to(core, thread, records, wanted, f"pruned to the last {last}")


def expire(core: SaverCore, thread: str, *, keep_last: int | None, ttl: timedelta | None) -> int:
    """See `CoreSaver.expire`."""
    now = core.world.wall_ms()
    young = now if ttl is None else now - ttl // timedelta(milliseconds=1)
    with core.kv.section(part(thread), Section.CUT):
        core.index.refresh(thread)
        records = records_of(core, thread)
        tips = _tips(records)
        # What was asked elsewhere has been answered, or given up by who went on from there.
        waiting = {number for number in tips if _waits(core, records[number])}
        heads = _heads(core, thread)
        if keep_last is None and not waiting and all(records[head.number].header.at_ms < young for head in heads):
            if records:
                _cut(core, thread, {}, set(), "expired", records)
            return len(records)
        wanted = waiting | {head.number for head in heads}
        for head in heads:
            wanted.update(_line(records, head, keep_last or 1))
        for number in tips:
            if ttl is not None and records[number].header.at_ms >= young:
                wanted.add(number)
        if ttl is not None and keep_last is None:
            wanted.update(number for number, record in records.items() if record.header.at_ms >= young)
        return _cut_to(core, thread, records, wanted, "expired")


def delete_for_runs(core: SaverCore, run_ids: Sequence[str]) -> None:
    """Delete what these runs have put. The head goes back to the nearest ancestor that stays."""
    runs = set(map(str, run_ids))
    every = EveryThread("delete runs in")
    for thread in core.reader.threads(every) if runs else ():
        with every.passing_over(thread), core.kv.section(part(thread), Section.CUT):
            core.index.refresh(thread)
            if _mentions(core, thread, runs):
                _delete_runs(core, thread, runs)
    every.tell()


def _delete_runs(core: SaverCore, thread: str, runs: Collection[str]) -> None:
    records = records_of(core, thread)
    left = {n: record for n, record in records.items() if record.metadata.get("run_id") not in runs}
    if len(left) < len(records):
        _cut(core, thread, _moved_back(core, thread, records, left), set(left), "runs deleted", records)


def _mentions(core: SaverCore, thread: str, runs: Iterable[str]) -> bool:
    """Whether any of these may have put into a thread: text stands in a commit as it is, so none is decoded for this."""
    names = [run.encode("utf-8", "surrogatepass") for run in runs]
    for key, data in core.kv.scan(commits_prefix(thread)):
        _header, body = core.envelopes.read_commit(data, thread, number_of(key))
        if any(name in body for name in names):
            return True
    return False


def copy_thread(core: SaverCore, source: str, target: str) -> None:
    """Copy a thread's checkpoints, pending writes and heads, in the order of its commits; seen when all are there."""
    with core.kv.section(part(source), Section.READ):
        core.index.refresh(source)
        records = records_of(core, source)
        heads = {head.number for head in _heads(core, source)}
    remove_writes(core, target, [(record.header.ns, record.header.id) for record in records.values()])
    # One section to the end: nothing of the copy may be swept meanwhile.
    with core.kv.section(part(target), Section.APPEND):
        core.index.refresh(target)
        if core.index.namespaces(target):
            raise UsageError(
                f"cannot copy thread {source!r} to {target!r}: that thread has checkpoints; delete it first"
            )
        copies: dict[int, Head] = {}
        for number in sorted(records):
            record = records[number]
            _copy_writes(core, source, target, Place(source, record.header.ns), record.header.id)
            copies[number] = _copy_commit(core, source, target, record, number in heads)
        if copies:
            checkpoints = [(records[number].header.ns, copy) for number, copy in copies.items()]
            new_heads = {records[number].header.ns: copies[number] for number in heads}
            core.log.reveal(target, checkpoints, new_heads, f"copied from {source!r}")


def sweep(core: SaverCore, older_than: timedelta = ORPHAN_AGE) -> int:
    """Remove pending writes without a checkpoint that are older, and what interrupted removals left."""
    swept = 0
    every = EveryThread("sweep")
    for name in list(children(core.kv, "t/")):
        with every.passing_over(text_of(name)), core.kv.section(name, Section.CUT):
            swept += _sweep(core, name, older_than)
    every.tell()
    return swept


def _sweep(core: SaverCore, name: Part, older_than: timedelta) -> int:
    thread = _thread_of(core, name)
    if thread is None:
        return 0
    core.index.refresh(thread)
    return _remove_unnamed(core, thread, records_of(core, thread), older_than)


# ---------------------------------------------------------------------- what stays


def records_of(core: SaverCore, thread: str) -> Records:
    """Every checkpoint of a thread, by number."""
    found: Records = {}
    for ns in core.index.namespaces(thread):
        for head in core.index.newest(thread, ns):
            record = core.reader.indexed(Place(thread, ns), head)
            if record is not None:
                found[head.number] = record
    return found


def _heads(core: SaverCore, thread: str) -> list[Head]:
    return [head for ns in core.index.namespaces(thread) if (head := core.index.head(thread, ns)) is not None]


def _line(records: Records, head: Head, count: int) -> Iterator[int]:
    """The head and its ancestors, `count` in all."""
    return islice(_lineage(records, _numbers(records), head.number), count)


def _lineage(records: Records, numbers: Mapping[tuple[str, str], int], number: int | None) -> Iterator[int]:
    """A checkpoint and its ancestors, the youngest first; each once, should it lead back to itself."""
    seen: set[int] = set()
    while number is not None and number not in seen:
        yield number
        seen.add(number)
        header = records[number].header
        number = None if header.parent is None else numbers.get((header.ns, header.parent))


def _numbers(records: Records) -> dict[tuple[str, str], int]:
    return {(record.header.ns, record.header.id): number for number, record in records.items()}


def _tips(records: Records) -> set[int]:
    """The checkpoints that have no child."""
    parents = {(record.header.ns, record.header.parent) for record in records.values()}
    return {number for place, number in _numbers(records).items() if place not in parents}


def _waits(core: SaverCore, record: Record) -> bool:
    """Whether somebody has been asked something at a checkpoint."""
    header = record.header
    pending = core.reader.pending(Place(header.thread, header.ns), header.id)
    return any(write.channel == _INTERRUPT for write in pending)


def _with_ancestors(records: Records, wanted: Iterable[int]) -> set[int]:
    """With what DeltaChannels need: ancestors back to the nearest stored value."""
    numbers = _numbers(records)
    kept = set(wanted)
    for start in list(kept):
        missing = set(records[start].metadata.get(_DELTA) or ())
        for number in _lineage(records, numbers, start):
            kept.add(number)
            missing -= records[number].channels.keys()
            if not missing:
                break
    return kept


def _moved_back(core: SaverCore, thread: str, records: Records, left: Records) -> dict[str, tuple[int, str]]:
    """The heads when only these checkpoints are left."""
    numbers = _numbers(records)
    heads: dict[str, tuple[int, str]] = {}
    for ns in core.index.namespaces(thread):
        head = core.index.head(thread, ns)
        line = _lineage(records, numbers, None if head is None else head.number)
        number = next((one for one in line if one in left), None)
        if number is None:
            number = max((n for n, record in left.items() if record.header.ns == ns), default=None)
        if number is not None:
            heads[ns] = (number, left[number].header.id)
    return heads


# ---------------------------------------------------------------------- removing


def _cut_to(core: SaverCore, thread: str, records: Records, wanted: Collection[int], why: str) -> int:
    kept = _with_ancestors(records, wanted)
    gone = len(records) - len(kept)
    if gone:
        heads = {ns: head for ns in core.index.namespaces(thread) if (head := core.index.head(thread, ns))}
        _cut(core, thread, heads, kept, why, records)
    return gone


def _cut(
    core: SaverCore,
    thread: str,
    heads: Mapping[str, tuple[int, str]],
    kept: Collection[int],
    why: str,
    records: Records,
) -> None:
    # From here on only what is kept counts.
    core.log.cut(thread, sorted(kept), heads, why)
    if not kept:
        remove_all(core, thread)
        return
    left = {number: record for number, record in records.items() if number in kept}
    gone = [record for number, record in records.items() if number not in kept]
    writes = [key for record in gone for key in core.kv.keys(_writes_of(record))]
    _remove_unnamed(core, thread, left, ORPHAN_AGE, writes)


def _writes_of(record: Record) -> str:
    header = record.header
    return writes_prefix(Place(header.thread, header.ns), header.id)


def _remove_unnamed(
    core: SaverCore, thread: str, records: Records, older_than: timedelta, writes: Iterable[str] = ()
) -> int:
    """Remove these writes and every entry of a thread that no kept checkpoint needs."""
    told = set(writes)
    orphans = {key: of for key, of in _orphans(core, thread, records, older_than) if key not in told}
    for (ns, id_), count in Counter(orphans.values()).items():
        logger.warning(
            "thread %r, namespace %r, checkpoint %s: removed what %d tasks had written for it: it never came, or is gone",
            thread, ns, id_, count,
        )  # fmt: skip
    commits = [key for key in unneeded_commits(core, thread) if number_of(key) not in records]
    doomed = [*commits, *orphans, *told]
    doomed += _unnamed_values(core, thread, records, set(doomed))
    remove(core, thread, doomed)
    return len(doomed)


def _orphans(
    core: SaverCore, thread: str, records: Records, older_than: timedelta
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Pending writes whose checkpoint is not there, when they are old, with its namespace and id: it may yet come."""
    kept = {_writes_of(record) for record in records.values()}
    oldest = core.world.wall_ms() - older_than // timedelta(milliseconds=1)
    for key, data in core.kv.scan(f"{root(thread)}w/"):
        if key.rpartition("/")[0] + "/" in kept:
            continue
        writes = core.envelopes.read_writes(data, thread)
        if writes.at_ms <= oldest:
            yield key, (writes.ns, writes.id)


def _unnamed_values(core: SaverCore, thread: str, records: Records, doomed: Collection[str]) -> list[str]:
    named: set[bytes] = set()
    for record in records.values():
        for ref in record.channels.values():
            named.update(core.values.keys(thread, ref))
    for key, data in core.kv.scan(f"{root(thread)}w/"):
        if key not in doomed:
            for _index, _channel, ref in core.envelopes.read_writes(data, thread).items:
                named.update(core.values.keys(thread, ref))
    names = {blob_name(thread, key) for key in named}
    return [key for key in core.kv.keys(f"{root(thread)}b/") if key not in names]


def _thread_of(core: SaverCore, name: Part) -> str | None:
    last = next(core.kv.scan(f"t/{name}/c/", reverse=True), None)
    if last is not None:
        return core.envelopes.thread_of(last[1], last[0])
    first = next(core.kv.scan(f"t/{name}/w/"), None)
    return None if first is None else core.envelopes.thread_of_writes(first[1], first[0])


# ---------------------------------------------------------------------- copying


def _copy_commit(core: SaverCore, source: str, target: str, record: Record, is_head: bool) -> Head:
    out: dict[bytes, bytes] = {}
    copied = core.values.copy
    channels = {channel: copied(source, target, ref, out) for channel, ref in record.channels.items()}
    old = record.header
    header = Header(PUT, 0, core.world.new_nonce(), old.at_ms, target, old.ns, old.id, old.parent, version=old.version)
    body = core.envelopes.body(record.checkpoint, record.metadata, channels, target)
    return core.log.append(header, body, core.values.missing(target, out), moves=is_head or old.moves)


def _copy_writes(core: SaverCore, source: str, target: str, place: Place, id: str) -> None:
    for _key, writes in core.reader.stored_writes(place, id):
        out: dict[bytes, bytes] = {}
        items = [(i, channel, core.values.copy(source, target, ref, out)) for i, channel, ref in writes.items]
        blobs = core.values.missing(target, out)
        core.kv.create(*core.task_writes.entry(writes.moved(target, items)), beside=blobs)
