"""The steps that bring a stored checkpoint from one version of an agent's code to the next.

    Rename("a", "a2")            a key of the state has another name
    RenameNode("n2", "review")   a node has another name
    Drop("note")                 a key is gone; without this it is carried along
    Add("b", default=0)          a new key that is to have a value in old threads
    Convert("total", fn)         the values of a key are of another type
    ConvertSend("work", fn)      what is sent to a node is of another form

Each acts on everything a checkpoint has of a channel: its value, its versions, the input that waits to be taken, and
the pending writes. `graph="sub"` says that the step is for the sub-graph at that path; by default it is for the graph
itself.

A step that meets a checkpoint without the channel does nothing. Steps change the `Stored` they are given.

Not here: which steps a checkpoint needs (`schema.py`), ids of renamed tasks (`pending.py`), keys of the state in what
is sent to nodes (`sends.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from langgraph.checkpoint.serde.types import TASKS, _DeltaSnapshot
from langgraph.types import Overwrite, Send

from flowpoint.agents.graph_shape import BRANCH, JOIN, join_parts
from flowpoint.agents.stored import Stored
from flowpoint.codec.shortened import shortened
from flowpoint.errors import SchemaError

__all__ = [
    "Add",
    "Convert",
    "ConvertSend",
    "Drop",
    "Migration",
    "Rename",
    "RenameNode",
    "converted",
    "with_sends",
]

_START: Final = "__start__"
_ERROR_SOURCE: Final = "__error_source_node__"
_BUMPS: Final = "__snapshot_bumps__"
_COUNTERS: Final = "counters_since_delta_snapshot"
_OVERWRITE: Final = "__overwrite__"
_HANDLER: Final = "__error_handler__"


@dataclass(frozen=True, slots=True)
class Rename:
    """A key of the state has another name."""

    old: str
    new: str
    graph: str = field(default="", kw_only=True)

    def apply(self, stored: Stored) -> None:
        """Move everything of the channel to its new name."""
        if self.old not in stored.channel_versions and self.old not in stored.channels:
            _rename_pending(stored, self.old, self.new)
            _rename_in_input(stored, self.old, self.new)
            return
        if self.new in stored.channels:
            raise SchemaError(
                f"{stored.where()}: cannot rename channel {self.old!r} to {self.new!r}: both have a value; put a "
                f"Drop({self.old!r}) or Drop({self.new!r}) before the Rename, whichever is not needed"
            )
        _rename_channel(stored, self.old, self.new)
        _rename_in_input(stored, self.old, self.new)


@dataclass(frozen=True, slots=True)
class RenameNode:
    """A node has another name."""

    old: str
    new: str
    graph: str = field(default="", kw_only=True)

    def apply(self, stored: Stored) -> None:
        """Move what the framework keeps under the name of the node; the ids of its tasks follow in `pending.py`."""
        for channel in {
            *stored.channel_versions,
            *stored.channels,
            *(write.channel for write in stored.pending_writes),
        }:
            renamed = self._channel(channel)
            if renamed != channel:
                _rename_channel(stored, channel, renamed)
        stored.versions_seen = {self._name(node): seen for node, seen in stored.versions_seen.items()}
        if _BUMPS in stored.versions_seen:
            bumps = stored.versions_seen[_BUMPS]
            stored.versions_seen[_BUMPS] = {self._name(node): marks for node, marks in bumps.items()}
        stored.channels = {name: self._value(name, value) for name, value in stored.channels.items()}
        stored.pending_writes = [
            write._replace(value=self._value(write.channel, write.value)) for write in stored.pending_writes
        ]

    def names(self) -> dict[str, str]:
        """Old names to new ones: of the node, and of the node that the framework makes to handle its errors."""
        return {self.old: self.new, f"{_HANDLER}{self.old}": f"{_HANDLER}{self.new}"}

    def _name(self, node: str) -> str:
        return self.names().get(node, node)

    def _channel(self, channel: str) -> str:
        if channel.startswith(BRANCH):
            return f"{BRANCH}{self._name(channel.removeprefix(BRANCH))}"
        joined = join_parts(channel)
        if joined is None:
            return channel
        starts, end = joined
        return f"{JOIN}{'+'.join(map(self._name, starts))}:{self._name(end)}"

    def _value(self, channel: str, value: Any) -> Any:
        """Names of nodes inside the values of the framework's own channels."""
        if channel == TASKS:
            return with_sends(lambda send: Send(self._name(send.node), send.arg, timeout=send.timeout), value)
        if channel == _ERROR_SOURCE and isinstance(value, str):
            return self._name(value)
        if join_parts(channel) is not None:
            return self._joined(value)
        return value

    def _joined(self, value: Any) -> Any:
        """The nodes that have arrived at a joining edge: a name when written, a set when stored, or (set, finished)."""
        if isinstance(value, str):
            return self._name(value)
        if isinstance(value, (set, frozenset)):
            return type(value)(self._name(name) if isinstance(name, str) else name for name in value)
        if isinstance(value, (tuple, list)):
            return type(value)(self._joined(part) for part in value)
        return value


@dataclass(frozen=True, slots=True)
class Drop:
    """A key of the state is gone, with its values."""

    channel: str
    graph: str = field(default="", kw_only=True)

    def apply(self, stored: Stored) -> None:
        """Remove everything of the channel."""
        stored.channels.pop(self.channel, None)
        stored.channel_versions.pop(self.channel, None)
        for seen in _version_tables(stored):
            seen.pop(self.channel, None)
        if stored.updated_channels is not None:
            stored.updated_channels = [name for name in stored.updated_channels if name != self.channel]
        stored.metadata.get(_COUNTERS, {}).pop(self.channel, None)
        stored.pending_writes = [write for write in stored.pending_writes if write.channel != self.channel]
        waiting = stored.channels.get(_START)
        if isinstance(waiting, dict) and self.channel in waiting:
            stored.channels[_START] = {name: value for name, value in waiting.items() if name != self.channel}


@dataclass(frozen=True, slots=True)
class Add:
    """A new key of the state; threads that do not have it get the default."""

    channel: str
    default: Any
    graph: str = field(default="", kw_only=True)

    def apply(self, stored: Stored) -> None:
        """Set the channel, unless it has a value, or the thread is new: nothing but its first input has come to it."""
        if self.channel in stored.channels or stored.channel_versions.keys() <= {_START}:
            return
        stored.channels[self.channel] = deepcopy(self.default)
        # Any version that exists is older than the next: the value counts as written, and triggers nothing.
        stored.channel_versions.setdefault(self.channel, max(stored.channel_versions.values()))


@dataclass(frozen=True, slots=True)
class Convert:
    """The values of a key are of another type: `fn` makes the new one of the old one.

    What nodes write to a key with a reducer may be of another type than its value: then `update` converts that.
    """

    channel: str
    fn: Callable[[Any], Any]
    update: Callable[[Any], Any] | None = None
    graph: str = field(default="", kw_only=True)

    def apply(self, stored: Stored) -> None:
        """Convert the value, what waits as input, and pending writes."""
        if self.channel in stored.channels:
            stored.channels[self.channel] = self._converted(stored, self.fn, stored.channels[self.channel])
        update = self.update or self.fn
        waiting = stored.channels.get(_START)
        if isinstance(waiting, dict) and self.channel in waiting:
            stored.channels[_START] = {**waiting, self.channel: self._converted(stored, update, waiting[self.channel])}
        stored.pending_writes = [
            write._replace(value=self._converted(stored, update, write.value))
            if write.channel == self.channel
            else write
            for write in stored.pending_writes
        ]

    def _converted(self, stored: Stored, fn: Callable[[Any], Any], value: Any) -> Any:
        if isinstance(value, _DeltaSnapshot):
            return _DeltaSnapshot(self._converted(stored, self.fn, value.value))
        if isinstance(value, Overwrite):
            return dataclasses.replace(value, value=self._converted(stored, self.fn, value.value))
        if isinstance(value, dict) and value.keys() == {_OVERWRITE}:
            return {_OVERWRITE: self._converted(stored, self.fn, value[_OVERWRITE])}
        return converted(stored, self.channel, fn, value)


@dataclass(frozen=True, slots=True)
class ConvertSend:
    """What is sent to a node by `Send` is of another form: `fn` makes the new argument of the old one."""

    node: str
    fn: Callable[[Any], Any]
    graph: str = field(default="", kw_only=True)

    def apply(self, stored: Stored) -> None:
        """Convert the arguments of Sends that wait."""

        def convert(send: Send) -> Send:
            if send.node != self.node:
                return send
            arg = converted(stored, TASKS, self.fn, send.arg)
            return Send(send.node, arg, timeout=send.timeout)

        if TASKS in stored.channels:
            stored.channels[TASKS] = with_sends(convert, stored.channels[TASKS])
        stored.pending_writes = [
            write._replace(value=with_sends(convert, write.value)) if write.channel == TASKS else write
            for write in stored.pending_writes
        ]


Migration = Rename | RenameNode | Drop | Add | Convert | ConvertSend


def converted(stored: Stored, channel: str, fn: Callable[[Any], Any], value: Any) -> Any:
    """What a function of a migration makes of a value.

    Raises:
        SchemaError: it failed.
    """
    try:
        return fn(value)
    except Exception as error:
        raise SchemaError(
            f"{stored.where()}: cannot convert channel {channel!r}: the function of the migration failed with "
            f"{type(error).__name__}: {error}; its value is {shortened(value)}"
        ) from error


def with_sends(change: Callable[[Send], Send], value: Any) -> Any:
    """A value of the channel of tasks with every Send in it changed."""
    if isinstance(value, Send):
        return change(value)
    if isinstance(value, list):
        return [with_sends(change, item) for item in value]
    if isinstance(value, tuple):
        return tuple(with_sends(change, item) for item in value)
    return value


def _rename_channel(stored: Stored, old: str, new: str) -> None:
    for table in (
        stored.channels,
        stored.channel_versions,
        stored.metadata.get(_COUNTERS, {}),
        *_version_tables(stored),
    ):
        if old in table:
            table[new] = table.pop(old)
    if stored.updated_channels is not None:
        stored.updated_channels = [new if name == old else name for name in stored.updated_channels]
    _rename_pending(stored, old, new)


def _rename_pending(stored: Stored, old: str, new: str) -> None:
    stored.pending_writes = [
        write._replace(channel=new) if write.channel == old else write for write in stored.pending_writes
    ]


def _rename_in_input(stored: Stored, old: str, new: str) -> None:
    """The input that no node has taken yet is one value, a dict by the keys of the state."""
    waiting = stored.channels.get(_START)
    if isinstance(waiting, dict) and old in waiting:
        stored.channels[_START] = {new if name == old else name: value for name, value in waiting.items()}


def _version_tables(stored: Stored) -> Iterator[dict[str, Any]]:
    """Every dict of versions by channel: of each node, and those kept aside for each node by snapshots."""
    for node, seen in stored.versions_seen.items():
        if node == _BUMPS:
            yield from (marks for marks in seen.values() if isinstance(marks, dict))
        else:
            yield seen
