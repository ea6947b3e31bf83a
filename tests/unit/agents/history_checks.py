"""What is looked at after every step of a history: what a saver shows, what is stored, what is remembered of it.

Not here: what a saver is to show (`history_model`).
"""

from __future__ import annotations

from typing import Any, Final

from flowpoint.agents.entry_names import Place, commits_prefix, names, number_of, root, writes_prefix
from flowpoint.agents.kv import Section, part
from flowpoint.agents.retention import records_of
from flowpoint.agents.saver import CoreSaver
from flowpoint.agents.stored_index import StoredIndex
from flowpoint.agents.values import blob_name
from tests.unit.agents.history_model import Kept, Model, Thread, named_now
from tests.unit.agents.stores import config

THREADS: Final = ("t", "u", "a/B", "copy", "")
NAMESPACES: Final = ("", "", "inner", "inner:1|X")


def shows(saver: CoreSaver, thread: str) -> Any:
    """All that a saver shows of a thread."""
    listed = [_told(one) for one in saver.list({"configurable": {"thread_id": thread}})]
    heads = {}
    for ns in NAMESPACES:
        head = saver.get_tuple(config(thread, ns))
        if head is not None:
            heads[ns] = _told(head)
    return listed, heads, _waiting(saver, thread)


def _waiting(saver: CoreSaver, thread: str) -> Any:
    """What tasks have written, also for checkpoints that are not there yet, which nobody is shown before."""
    core = saver.core
    with core.kv.section(part(thread), Section.READ):
        stored = [core.envelopes.read_writes(data, thread) for _key, data in core.kv.scan(f"{root(thread)}w/")]
        return {
            (one.ns, one.id): [
                (write.task_id, write.channel, core.values.load(thread, write.channel, write.ref))
                for write in core.reader.pending(Place(thread, one.ns), one.id)
            ]
            for one in stored
            if one.items
        }


def model_shows(model: Model, thread: str, version: int | None = None) -> Any:
    """What it is to show, to the code of the model or of another version."""
    of, version = model.thread(thread), model.version if version is None else version
    listed = [_kept(of, one, version) for _thread, one in model.listed(thread, None, None, {}, None)]
    heads = {ns: _kept(of, one, version) for ns, id_ in of.heads.items() if (one := of.find(ns, id_)) is not None}
    return listed, heads, {place: of.pending(*place) for place, items in of.writes.items() if items}


def difference(shown: Any, expected: Any) -> str:
    """What is different, in a few words: the values of a history are long."""
    orders = [[one[:2] for one in listed] for listed, _heads, _waiting in (shown, expected)]
    if orders[0] != orders[1]:
        return f"listed {orders[0]}, not {orders[1]}"
    heads = [{ns: one[1] for ns, one in found.items()} for _listed, found, _waiting in (shown, expected)]
    if heads[0] != heads[1]:
        return f"heads are {heads[0]}, not {heads[1]}"
    fields = ("ns", "id", "parent", "values", "versions", "metadata", "writes")
    pairs = zip((*shown[0], *shown[1].values()), (*expected[0], *expected[1].values()), strict=True)
    return f"tasks have written {shown[2]}, not {expected[2]}"[:1000] + "; ".join(
        f"{field} of {is_[1]}: {str(is_[at])[:300]}, not {str(be[at])[:300]}"
        for is_, be in pairs
        for at, field in enumerate(fields)
        if is_[at] != be[at]
    )


def _told(one: Any) -> Any:
    checkpoint = one.checkpoint
    return (
        one.config["configurable"]["checkpoint_ns"],
        checkpoint["id"],
        None if one.parent_config is None else one.parent_config["configurable"]["checkpoint_id"],
        checkpoint["channel_values"],
        checkpoint["channel_versions"],
        one.metadata,
        one.pending_writes,
    )


def _kept(thread: Thread, one: Kept, version: int) -> Any:
    values, versions = (named_now(one, table, version) for table in (one.values, one.versions))
    return one.ns, one.id, one.parent, values, versions, one.metadata, thread.pending(one.ns, one.id, version)


def check_entries(saver: CoreSaver, thread: str, *, is_swept: bool = False) -> None:
    """Whatever is named is there; after a sweep of everything, nothing else is."""
    core = saver.core
    with core.kv.section(part(thread), Section.READ):
        core.index.refresh(thread)
        records = records_of(core, thread)
        named = {
            blob_name(thread, key)
            for record in records.values()
            for ref in record.channels.values()
            for key in core.values.keys(thread, ref)
        }
        places = {writes_prefix(Place(thread, record.header.ns), record.header.id) for record in records.values()}
        for key, data in core.kv.scan(f"{root(thread)}w/"):
            if is_swept:
                assert key.rpartition("/")[0] + "/" in places, f"writes of nothing: {key}"
            for _index, _channel, ref in core.envelopes.read_writes(data, thread).items:
                named.update(blob_name(thread, of) for of in core.values.keys(thread, ref))
        there = set(core.kv.keys(f"{root(thread)}b/"))
        assert named <= there
        if is_swept:
            assert there == named
            unneeded = {number_of(key) for key in core.kv.keys(commits_prefix(thread))} - records.keys()
            assert not [number for number in unneeded if not core.index.is_needed(thread, number)]


def check_memory(saver: CoreSaver, fresh: CoreSaver) -> None:
    """What is remembered of a store is what one finds there who remembers nothing."""
    index = saver.core.index
    if not isinstance(index, StoredIndex):
        return
    known, kv = saver.core.kv.remembered, fresh.core.kv
    found = StoredIndex(kv, alone=False)
    for thread, tip in known.tips.items():
        assert tip == found.tip(thread)
    for (thread, ns), place in known.places.items():
        assert place.head is None or place.head == found.head(thread, ns)
        of = names(thread, ns)
        greatest = max((key.rpartition("/")[2] for key in kv.keys(of.ids)), default="")
        assert place.greatest is None or place.greatest >= greatest
        writers = place.writers
        if writers is None:
            continue
        written = [key[len(of.writes) :].split("/") for key in kv.keys(of.writes)]
        assert writers.id >= max((id_ for id_, _task in written), default="")
        tasks = {task.rpartition("~")[0] for id_, task in written if id_ == writers.id}
        assert writers.tasks is None or tasks <= set(map(part, writers.tasks))
