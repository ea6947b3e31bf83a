"""Threads as lines of JSON, out of a store and into one, and out of the database of a SqliteSaver.

A line is a checkpoint with its pending writes: {"thread", "ns", "id", "parent", "moved", "at_ms", "version",
"checkpoint", "metadata", "channels", "writes"}; values are the bytes of our serde in base64, long lists element by
element, so nothing is lost and no class is needed. Lines of a thread are in the order of its commits.

Invariants: of a thread all is exported, or nothing. Importing makes threads that are not there yet, and refuses others;
they are there when all is, so that an import that failed can be repeated. Nothing is imported because some bytes name it:
classes in a SqliteSaver's database have to be declared.
"""

from __future__ import annotations

import json
import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from contextlib import closing
from graphlib import CycleError, TopologicalSorter
from tempfile import SpooledTemporaryFile
from typing import Any, Final, NamedTuple

from flowpoint.agents.core import SaverCore
from flowpoint.agents.entry_names import Place
from flowpoint.agents.envelope import PUT, Header, Writes
from flowpoint.agents.every_thread import EveryThread
from flowpoint.agents.kv import Section, part
from flowpoint.agents.remembered import Head
from flowpoint.agents.removing import remove_writes
from flowpoint.agents.retention import records_of
from flowpoint.agents.values import Raw, ValueSerde
from flowpoint.errors import UsageError

_FIELDS: Final = frozenset({"ns", "id", "parent", "moved", "at_ms", "version", "checkpoint", "metadata"})
_SPOOLED_MAX: Final = 16_000_000


def exported(core: SaverCore, threads: Iterable[str], every: EveryThread) -> Iterator[str]:
    """The lines of some threads. Those that are damaged are passed over by `every`, with all of their lines."""
    for thread in threads:
        # Whoever takes the lines may be slow, and must not keep others from the thread; they may be more than memory has.
        with SpooledTemporaryFile(_SPOOLED_MAX, "w+", encoding="utf-8") as whole:
            is_whole = False
            with every.passing_over(thread), core.kv.section(part(thread), Section.READ):
                core.index.refresh(thread)
                whole.writelines(f"{line}\n" for line in _lines(core, thread))
                is_whole = True
            whole.seek(0)
            if is_whole:
                yield from (line.rstrip("\n") for line in whole)


def _lines(core: SaverCore, thread: str) -> Iterator[str]:
    """The lines of a thread, in a section of it."""
    for number, record in sorted(records_of(core, thread).items()):
        header = record.header
        place = Place(thread, header.ns)
        head = core.index.head(thread, header.ns)
        yield json.dumps(
            {
                "thread": thread,
                "ns": header.ns,
                "id": header.id,
                "parent": header.parent,
                "moved": header.moves or (head is not None and head.number == number),
                "at_ms": header.at_ms,
                "version": header.version,
                "checkpoint": record.checkpoint,
                "metadata": record.metadata,
                "channels": {name: _text(core.values.raw(thread, ref)) for name, ref in record.channels.items()},
                "writes": [
                    [w.task_path, w.task_id, w.place, w.channel, _text(core.values.raw(thread, w.ref)), w.version]
                    for w in core.reader.pending(place, header.id)
                ],
            }
        )


def imported(core: SaverCore, lines: Iterable[str]) -> int:
    """Append lines to the threads they name; how many.

    Raises:
        UsageError: a thread is there already, or a line is none of ours.
    """
    new: dict[str, _Import] = {}
    count = 0
    for number, line in enumerate(lines, 1):
        try:
            one = json.loads(line)
            thread = one["thread"]
            missing = sorted(_FIELDS - one.keys())
            if missing:
                raise KeyError(*missing)
            channels = {name: _raw(text) for name, text in one["channels"].items()}
            writes = [(path, task, i, name, _raw(text), v) for path, task, i, name, text, v in one["writes"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"cannot import line {number}: it is not a line of `flowpoint threads export` ({error})"
            ) from error
        if thread not in new:
            _check_new(core, thread)
            new[thread] = _Import([], {}, {})
        remove_writes(core, thread, [(one["ns"], one["id"])])
        head = _append(core, one, channels, writes)
        new[thread].checkpoints.append((one["ns"], head))
        new[thread].parents[one["ns"], one["id"]] = one["ns"], one["parent"]
        if one["moved"]:
            new[thread].heads[one["ns"]] = head
        count += 1
    for thread, made in new.items():
        _check_lineage(thread, made)
    for thread, made in new.items():
        with core.kv.section(part(thread), Section.APPEND):
            core.log.reveal(thread, made.checkpoints, made.heads, "imported")
    return count


class _Import(NamedTuple):
    """A thread in the making."""

    checkpoints: list[tuple[str, Head]]
    heads: dict[str, Head]
    parents: dict[tuple[str, str], tuple[str, str | None]]


def _check_lineage(thread: str, made: _Import) -> None:
    try:
        TopologicalSorter({child: (parent,) for child, parent in made.parents.items()}).prepare()
    except CycleError as error:
        _ns, id_ = error.args[1][0]
        raise UsageError(
            f"cannot import thread {thread!r}: its checkpoint {id_} is an ancestor of itself; import a file that "
            "`flowpoint threads export` wrote, as it is"
        ) from error


def sqlite_lines(path: str, serde: ValueSerde, allowed: Iterable[type]) -> Iterator[str]:
    """The lines of a SqliteSaver's database. `serde` encodes the values, `allowed` are the classes they may be of.

    Raises:
        UsageError: it is no such database, or holds a class that is not declared.
    """
    from langgraph.checkpoint.serde.event_hooks import register_serde_event_listener
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    old = JsonPlusSerializer(allowed_msgpack_modules=[(cls.__module__, cls.__qualname__) for cls in allowed])
    refused: list[Any] = []
    stop = register_serde_event_listener(refused.append)

    def text(thread: str, channel: str, kind: str, data: bytes) -> str:
        value = old.loads_typed((kind, data))
        if refused:
            names = ", ".join(sorted({f"{one.get('module')}:{one.get('name')}" for one in refused}))
            raise UsageError(
                f"cannot import channel {channel!r} of thread {thread!r}: it holds {names}, which is not declared; "
                "give the classes with --types module:name"
            )
        return b64encode(serde.encode(value, thread=thread, channel=channel)).decode()

    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            yield from _sqlite_lines(db, old, text)
    except sqlite3.Error as error:
        raise UsageError(f"cannot import {path}: it is not the database of a SqliteSaver ({error})") from error
    finally:
        stop()


def _sqlite_lines(db: sqlite3.Connection, old: Any, text: Any) -> Iterator[str]:
    rows = db.execute(
        "SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata "
        "FROM checkpoints ORDER BY thread_id, checkpoint_id"
    )
    for thread, ns, id_, parent, kind, data, metadata in rows:
        checkpoint = old.loads_typed((kind, data))
        values = checkpoint.pop("channel_values")
        writes = db.execute(
            "SELECT task_path, task_id, idx, channel, type, value FROM writes "
            "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
            (thread, ns, id_),
        )
        yield json.dumps(
            {
                "thread": thread,
                "ns": ns,
                "id": id_,
                "parent": parent,
                "moved": True,
                "at_ms": 0,
                "version": 0,
                "checkpoint": checkpoint,
                "metadata": json.loads(metadata) if metadata else {},
                "channels": {name: text(thread, name, *old.dumps_typed(value)) for name, value in values.items()},
                "writes": [
                    [path or "", task, index, channel, text(thread, channel, kind, value), 0]
                    for path, task, index, channel, kind, value in writes
                ],
            }
        )


def _text(data: Raw) -> str | list[str]:
    return [b64encode(one).decode() for one in data] if isinstance(data, list) else b64encode(data).decode()


def _raw(text: str | list[str]) -> Raw:
    return [b64decode(one) for one in text] if isinstance(text, list) else b64decode(text)


def _check_new(core: SaverCore, thread: str) -> None:
    with core.kv.section(part(thread), Section.READ):
        core.index.refresh(thread)
        if core.index.namespaces(thread):
            raise UsageError(
                f"cannot import thread {thread!r}: the store has it already; delete it or copy it away first"
            )


def _append(core: SaverCore, one: dict[str, Any], channels: dict[str, Raw], writes: list[Any]) -> Head:
    thread, ns, id_ = one["thread"], one["ns"], one["id"]
    out: dict[bytes, bytes] = {}
    refs = {name: core.values.save_raw(thread, data, core.sizes.changed, out) for name, data in channels.items()}
    body = core.envelopes.body(one["checkpoint"], one["metadata"], refs, thread)
    at_ms = one["at_ms"] or core.world.wall_ms()
    header = Header(PUT, 0, core.world.new_nonce(), at_ms, thread, ns, id_, one["parent"], version=one["version"])
    sets = []
    for number, (path, task, index, channel, data, version) in enumerate(writes):
        ref = core.values.save_raw(thread, data, core.sizes.written, out)
        sets.append(Writes(at_ms, thread, ns, id_, path, task, number, version, [(index, channel, ref)]))
    with core.kv.section(part(thread), Section.APPEND):
        core.index.refresh(thread)
        beside = [*core.values.missing(thread, out), *map(core.task_writes.entry, sets)]
        return core.log.append(header, body, beside, moves=one["moved"])
