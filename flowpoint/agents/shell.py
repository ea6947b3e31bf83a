"""What the shell needs of a store of threads: opening it whatever it is, and changing it without the graph's code.

Values of classes that the shell does not know are shown as `StoredObject`, and stay as they are.

Not here: arguments and tables (`cli.threads`).
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar, Unpack

from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import StateGraph

from flowpoint.agents.conflicts import token
from flowpoint.agents.core import SaverCore, stored_of
from flowpoint.agents.entry_names import Place
from flowpoint.agents.folder import FolderSaver
from flowpoint.agents.folder_kv import FolderKv
from flowpoint.agents.kv import Section, part
from flowpoint.agents.opening import SaverOptions
from flowpoint.agents.reading import Saved
from flowpoint.agents.rocks import RocksSaver
from flowpoint.agents.saver import CoreSaver
from flowpoint.agents.schema import Schema
from flowpoint.agents.serde import StrictSerde
from flowpoint.agents.stored import Stored
from flowpoint.agents.types import classes_in, types_of
from flowpoint.errors import FlowPointError, NotFoundError, UsageError
from flowpoint.host.module_path import put_last

T = TypeVar("T")


class LookingSerde(StrictSerde):
    """Shows what it does not know."""

    def decode(self, data: bytes, *, thread: str, channel: str) -> Any:
        """See `StrictSerde`."""
        return self.decode_old(data, thread=thread, channel=channel)

    def with_types(self, types: Iterable[Any]) -> LookingSerde:
        """See `StrictSerde`."""
        return LookingSerde(types)


def open_store(path: str, *, change: bool, create: bool = False, **options: Unpack[SaverOptions]) -> CoreSaver:
    """The store in a folder: of a RocksSaver or of a FolderSaver. To change one, nobody else may have it open.

    Values of unknown classes are shown, unless `types` are given: then they are refused, as for a graph that runs.

    Raises:
        NotFoundError: there is no store.
        StoreInUseError: somebody has it open, and it shall be changed.
    """
    if os.path.exists(os.path.join(path, "CURRENT")):
        saver: CoreSaver = RocksSaver(path, read_only=not change, **options)
    elif os.path.isdir(os.path.join(path, "t")):
        saver = FolderSaver(path, read_only=not change, **options)
        if isinstance(saver.core.kv, FolderKv):
            saver.core.kv.claim()
    elif create:
        saver = RocksSaver(path, **options)
    else:
        raise NotFoundError(f"cannot open {path}: there is no store of threads; check the path")
    if "types" not in options:
        saver.core.values = saver.core.reader.values = saver.core.values.with_serde(LookingSerde())
    return saver


def loaded(name: str) -> Any:
    """What `module:name` stands for, with the current folder at the end of the path.

    Raises:
        UsageError: there is none, or its module cannot be imported.
    """
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise UsageError(f"cannot load {name!r}: write it as module:name")
    put_last(os.getcwd())
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"cannot load {name!r}: {error}; run it where the module can be imported") from error
    except Exception as error:
        raise _as_users(error, f"cannot load {name!r}: its module raised") from error


def schema_of(name: str) -> Schema:
    """The schema that `module:name` stands for: one itself, or what a function without arguments returns.

    Raises:
        UsageError: it is something else.
    """
    return _of_kind(name, loaded(name), Schema, "a schema, as `Schema.of` makes it")


def graph_of(name: str) -> StateGraph[Any]:
    """The uncompiled graph that `module:name` stands for: one itself, or what a function without arguments returns.

    Raises:
        UsageError: it is something else.
    """
    thing = loaded(name)
    # A compiled graph knows what it was compiled from.
    return _of_kind(name, getattr(thing, "builder", thing), StateGraph, "a StateGraph")


def _of_kind(name: str, thing: Any, kind: type[T], wanted: str) -> T:
    seen = f"it is a {type(thing).__name__}"
    if callable(thing) and not isinstance(thing, kind):
        thing, seen = _called(name, thing)
    if not isinstance(thing, kind):
        raise UsageError(
            f"cannot use {name!r}: {seen}; name {wanted}, or a function without arguments that returns one"
        )
    return thing


def _called(name: str, function: Callable[..., Any]) -> tuple[Any, str]:
    """What a function without required arguments returns, and a word for what was seen."""
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        return function, "it cannot be called without arguments"
    try:
        made = function()
    except FlowPointError:
        raise
    except Exception as error:
        raise _as_users(error, f"cannot use {name!r}: it raised") from error
    return made, f"it returned a {type(made).__name__}"


def _as_users(error: Exception, what: str) -> UsageError:
    return UsageError(f"{what} {type(error).__name__}: {error}; run it by itself to see where")


def declared(names: Iterable[str]) -> tuple[StrictSerde, tuple[type, ...]]:
    """A serde for the classes and graphs that `module:name` stand for, and the classes themselves.

    Raises:
        UsageError: one is neither a class nor a graph.
    """
    classes: list[type] = []
    for name in names:
        thing = loaded(name)
        classes += [thing] if isinstance(thing, type) else types_of(graph_of(name))
    return StrictSerde(classes), classes_in(classes)


def spaces_of(core: SaverCore, thread: str) -> list[str]:
    """The namespaces of a thread, its own first. None of its values is read: they may be damaged.

    Raises:
        NotFoundError: there is no such thread.
    """
    with core.kv.section(part(thread), Section.READ):
        core.index.refresh(thread)
        spaces = sorted(core.index.namespaces(thread))
    if not spaces:
        raise NotFoundError(f"there is no thread {thread!r}; `flowpoint threads list` shows those there are")
    return spaces


def found(core: SaverCore, thread: str, ns: str, id: str | None) -> Saved:
    """A checkpoint, by id or by the beginning or end of one.

    Raises:
        NotFoundError: there is none, or several.
    """
    place = Place(thread, ns)
    saved = core.get(place, id, for_run=False)
    if saved is not None:
        return saved
    ids = [head.id for head in core.index.newest(thread, ns)]
    if not ids:
        raise NotFoundError(f"there is no thread {thread!r}" + (f" with namespace {ns!r}" if ns else ""))
    matching = [one for one in ids if id and (one.startswith(id) or one.endswith(id))]
    if len(matching) != 1:
        several = f"; give its end: {', '.join(one[-6:] for one in matching[:5])}" if matching else ""
        raise NotFoundError(
            f"{len(matching) or 'no'} checkpoints of thread {thread!r} match {id!r}"
            + (several or "; `flowpoint threads history` shows their ids")
        )
    saved = core.get(place, matching[0], for_run=False)
    assert saved is not None
    return saved


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What differs between the values of two checkpoints: {channel: {"before": ..., "after": ...}}; of lists, what came
    and went at their ends."""
    told: dict[str, Any] = {}
    for channel in sorted(before.keys() | after.keys()):
        old, new = before.get(channel), after.get(channel)
        if channel in before and channel in after and type(old) is type(new) and old == new:
            continue
        if isinstance(old, list) and isinstance(new, list) and new[: len(old)] == old:
            told[channel] = {"added": new[len(old) :]}
        else:
            told[channel] = {
                name: values[channel] for name, values in (("before", before), ("after", after)) if channel in values
            }
    return told


def fork(saver: CoreSaver, saved: Saved, values: Mapping[str, Any]) -> str:
    """Put a copy of a checkpoint with other values after it; it becomes the head. The id."""
    old = saved.checkpoint
    unknown = [channel for channel in values if channel not in old["channel_versions"]]
    if unknown:
        known = ", ".join(sorted(old["channel_versions"]))
        raise UsageError(
            f"cannot set {', '.join(map(repr, unknown))}: the thread has {known}; set one of these, "
            "or give the graph with --graph"
        )
    versions = dict(old["channel_versions"])
    version = saver.get_next_version(max(versions.values(), default=None))
    versions.update(dict.fromkeys(values, version))
    step = saved.metadata.get("step", 0) + 1
    checkpoint = {
        **old,
        "id": str(uuid6(clock_seq=step)),
        "ts": datetime.now(UTC).isoformat(),
        "channel_values": dict(values),
        "channel_versions": versions,
        "updated_channels": sorted(values),
    }
    # What is not set is taken over as it is stored: the shell may not know its class.
    saver.core.put(
        saved.place,
        checkpoint,
        {"source": "fork", "step": step, "parents": saved.metadata.get("parents", {})},
        dict.fromkeys(values, version),
        parent=saved.id,
        token=token(True, saved.place.ns, saved.id),
        sync=True,
        version=saved.version,
    )
    return str(checkpoint["id"])


def fork_with_graph(
    saver: CoreSaver, saved: Saved, values: Mapping[str, Any], builder: Any, as_node: str | None
) -> str:
    """Fork as the graph itself does it, which knows what follows a node. The id.

    Raises:
        UsageError: the checkpoint has a version of a schema, and the saver none: the fork would be migrated once more.
    """
    if saved.version and not saver.core.has_schema:
        raise UsageError(
            f"cannot fork thread {saved.place.thread!r} with its graph: checkpoint {saved.id} was written with version "
            f"{saved.version} of a schema; give it with --schema module:name"
        )
    thread, ns = saved.place
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": saved.id}}
    made = builder.compile(checkpointer=saver).update_state(config, values, as_node=as_node)
    return str(made["configurable"]["checkpoint_id"])


def stored_heads(core: SaverCore, threads: Iterable[str]) -> Iterator[Stored]:
    """The head of every namespace of threads, as a schema takes it."""
    for thread in threads:
        for ns in core.index.namespaces(thread):
            saved = core.get(Place(thread, ns), None, for_run=False)
            if saved is not None:
                yield stored_of(saved)


def plain(value: Any) -> Any:
    """A value as JSON shows it; what JSON cannot is shown as Python writes it."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {key if isinstance(key, str) else repr(key): plain(one) for key, one in value.items()}
    if hasattr(value, "model_dump"):
        return plain(value.model_dump())
    return repr(value)


def parsed(settings: Iterable[str]) -> dict[str, Any]:
    """`channel=JSON` as a dict.

    Raises:
        UsageError: it is something else.
    """
    values = {}
    for setting in settings:
        channel, equals, text = setting.partition("=")
        try:
            values[channel] = json.loads(text)
        except ValueError as error:
            raise UsageError(f"cannot set {setting!r}: write it as channel=JSON, text in quotes ({error})") from error
        if not equals:
            raise UsageError(f"cannot set {setting!r}: write it as channel=JSON")
    return values
