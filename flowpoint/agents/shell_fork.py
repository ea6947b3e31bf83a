"""Time travel from the shell: a checkpoint with other values after an old one, with the graph's code or without.

Not here: arguments (`cli.threads_change`), finding the checkpoint (`shell`), loading the code (`shell_code`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Final

from langgraph.checkpoint.base.id import uuid6
from langgraph.constants import END, START
from langgraph.errors import InvalidUpdateError

from flowpoint.agents.conflicts import token
from flowpoint.agents.fits import checker
from flowpoint.agents.graph_shape import GraphShape, is_internal, shapes_of
from flowpoint.agents.reading import Saved
from flowpoint.agents.saver import CoreSaver
from flowpoint.agents.shell_code import as_users
from flowpoint.agents.stored import StoredObject, graph_path
from flowpoint.errors import FlowPointError, UsageError
from flowpoint.model.texts import with_article

_JSON_TYPES: Final = frozenset({bool, int, float, str, list, dict})


def fork(saver: CoreSaver, saved: Saved, values: Mapping[str, Any]) -> str:
    """Put a copy of a checkpoint with other values after it; it becomes the head. The id."""
    old = saved.checkpoint
    for channel in values:
        if channel not in old["channel_versions"]:
            known = [name for name in sorted(old["channel_versions"]) if not is_internal(name)]
            raise UsageError(
                f"cannot set {channel!r}: the thread has {', '.join(known)}{_nearest(channel, known)}; set one of these, "
                "or give the graph with --graph"
            )
        _check_plain(channel, saved.values.get(channel))
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


def _check_plain(channel: str, there: Any) -> None:
    """Refuse to put what JSON makes in the place of what it does not make: code that runs would not know it."""
    if there is None or type(there) in _JSON_TYPES:
        return
    kind = there.type_name if isinstance(there, StoredObject) else type(there).__name__
    raise UsageError(
        f"cannot set {channel!r}: it holds {with_article(kind)}, and JSON makes none; set it by "
        "`graph.update_state(...)` in a program"
    )


def fork_with_graph(
    saver: CoreSaver, saved: Saved, values: Mapping[str, Any], builder: Any, as_node: str | None
) -> str:
    """Fork as the graph itself does it, which knows what follows a node. The id.

    Raises:
        UsageError: the checkpoint has a version of a schema, and the saver none: the fork would be migrated once more.
            Or the graph has no such channel or node, or refuses the values.
    """
    if saved.version and not saver.core.has_schema:
        raise UsageError(
            f"cannot fork thread {saved.place.thread!r} with its graph: checkpoint {saved.id} was written with version "
            f"{saved.version} of a schema; give it with --schema module:name"
        )
    thread, ns = saved.place
    shape = shapes_of(builder).get(graph_path(ns))
    if shape is not None:
        _check(shape, values, as_node)
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": saved.id}}
    what = f"cannot fork thread {thread!r}"
    try:
        made = builder.compile(checkpointer=saver).update_state(config, values, as_node=as_node)
    except FlowPointError:
        raise
    except InvalidUpdateError as error:
        raise UsageError(f"{what}: {error}; say with --as-node which node the values are of") from error
    except Exception as error:  # of a reducer, or of a function that says what follows the node
        raise as_users(error, f"{what}: the graph's code raised") from error
    return str(made["configurable"]["checkpoint_id"])


def _check(shape: GraphShape, values: Mapping[str, Any], as_node: str | None) -> None:
    channels = sorted(name for name in shape.channels if not is_internal(name))
    for channel in values:
        if channel not in channels:
            raise UsageError(
                f"cannot set {channel!r}: the graph has {', '.join(channels)}{_nearest(channel, channels)}"
            )
        check = checker(shape.types[channel], is_lax=shape.is_lax) if channel in shape.kept else None
        misfit = None if check is None else check(values[channel])
        if misfit is not None:
            raise UsageError(
                f"cannot set {channel!r}: {misfit}; where JSON makes no such value, set it by "
                "`graph.update_state(...)` in a program"
            )
    nodes = sorted(shape.nodes)
    if as_node is not None and as_node not in (*nodes, START, END):
        raise UsageError(f"cannot fork as node {as_node!r}: the graph has {', '.join(nodes)}{_nearest(as_node, nodes)}")


def _nearest(name: str, names: Sequence[str]) -> str:
    """The rest of a sentence about a wrong name, when a right one is spelled alike."""
    nearest = get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


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
