"""What the shell needs of a store of threads: opening it whatever it is, and showing what is in it.

Values of classes that the shell does not know are shown as `StoredObject`, and stay as they are.

Not here: arguments and tables (`cli.threads`), the agent's code (`shell_code`), time travel (`shell_fork`).
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, Unpack

from flowpoint.agents.core import SaverCore, stored_of
from flowpoint.agents.entry_names import Place
from flowpoint.agents.every_thread import UNREADABLE
from flowpoint.agents.files import Files
from flowpoint.agents.folder import FolderSaver
from flowpoint.agents.folder_kv import FolderKv
from flowpoint.agents.kinds import is_folder, is_rocks
from flowpoint.agents.kv import Section, part
from flowpoint.agents.opening import SaverOptions
from flowpoint.agents.reading import Saved
from flowpoint.agents.rocks import RocksSaver
from flowpoint.agents.saver import CoreSaver
from flowpoint.agents.schema import CheckReport, Schema
from flowpoint.agents.serde import StrictSerde
from flowpoint.agents.stored import StoredObject
from flowpoint.errors import FlowPointError, NotFoundError, StorageError, UnknownTypeError, UsageError

_SHOWN_MAX: Final = 5
"""How many of the right names an error about a wrong one shows."""


class LookingSerde(StrictSerde):
    """Shows what it does not know."""

    def decode(self, data: bytes, *, thread: str, channel: str) -> Any:
        """See `StrictSerde`."""
        return self.decode_old(data, thread=thread, channel=channel)

    def with_types(self, types: Iterable[Any]) -> LookingSerde:
        """See `StrictSerde`."""
        return LookingSerde(types)


def open_store(path: str, *, change: bool, **options: Unpack[SaverOptions]) -> CoreSaver:
    """The store in a folder: of a RocksSaver or of a FolderSaver. To change one, nobody else may have it open.

    Values of unknown classes are shown, unless `types` are given: then they are refused, as for a graph that runs.

    Raises:
        NotFoundError: there is no store.
        StoreInUseError: somebody has it open, and it shall be changed.
    """
    if is_rocks(path):
        saver: CoreSaver = RocksSaver(path, read_only=not change, **options)
    elif is_folder(path):
        saver = FolderSaver(path, read_only=not change, **options)
        if isinstance(saver.core.kv, FolderKv):
            saver.core.kv.claim()
    else:
        raise NotFoundError(f"cannot open {path}: there is no store of threads; check the path")
    if "types" not in options:
        saver.core.values = saver.core.reader.values = saver.core.values.with_serde(LookingSerde())
    return saver


@contextmanager
def open_or_make(path: str, **options: Unpack[SaverOptions]) -> Iterator[CoreSaver]:
    """The store in a folder, to change it. One that is made is there when the block ends without an error, or not at all.

    Raises:
        UsageError: the folder holds something else.
    """
    if is_store(path):
        with open_store(path, change=True, **options) as saver:
            yield saver
        return
    if os.path.exists(path) and (not os.path.isdir(path) or os.listdir(path)):
        raise UsageError(f"cannot make a store in {path}: there is something else; give a path that is free")
    target = os.path.abspath(path)
    made = f"{target}.new-{secrets.token_hex(4)}"
    try:
        with RocksSaver(made, **options) as saver:
            yield saver
        _give_name(made, target)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _give_name(made: str, target: str) -> None:
    try:
        os.rename(made, target)
        Files().sync_folder(os.path.dirname(target))
    except OSError as error:
        raise StorageError(f"cannot make a store in {target}: {error.strerror}; check the path") from error


def is_store(path: str) -> bool:
    """Whether there is a store of threads in a folder."""
    return is_rocks(path) or is_folder(path)


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
        spaces = ", ".join(map(repr, spaces_of(core, thread)[:_SHOWN_MAX]))
        raise NotFoundError(f"thread {thread!r} has no namespace {ns!r}; give one of those it has with --ns: {spaces}")
    matching = [one for one in ids if id and (one.startswith(id) or one.endswith(id))]
    if len(matching) != 1:
        several = f"; give its end: {', '.join(one[-6:] for one in matching[:_SHOWN_MAX])}" if matching else ""
        raise NotFoundError(
            f"{len(matching) or 'no'} checkpoints of thread {thread!r} match {id!r}"
            + (several or "; `flowpoint threads history` shows their ids")
        )
    saved = core.get(place, matching[0], for_run=False)
    if saved is None:
        raise NotFoundError(
            f"checkpoint {matching[0]} of thread {thread!r} has just been removed; `flowpoint threads history` shows those "
            "there are"
        )
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


def is_taken_in(core: SaverCore, saved: Saved) -> bool:
    """Whether what tasks have written at a checkpoint is no longer pending: another checkpoint was made from it."""
    place = saved.place
    for head in core.index.newest(*place):
        if head.number <= saved.number:
            return False
        with suppress(*UNREADABLE):  # nobody can tell what that one was made from
            record = core.reader.indexed(place, head)
            if record is not None and record.header.parent == saved.id:
                return True
    return False


def checked(core: SaverCore, schema: Schema, threads: Iterable[str]) -> CheckReport:
    """What a run of the code would make of the head of every namespace. The core reads as such a run does."""
    report = CheckReport()
    for thread in threads:
        for ns in core.index.namespaces(thread):
            try:
                saved = core.reader.get(Place(thread, ns), None)
            except FlowPointError as error:
                hint = "; or give it with --types" if isinstance(error, UnknownTypeError) else ""
                report.add(CheckReport(threads=1, refused=[f"{error}{hint}"]))
                continue
            if saved is not None:
                report.add(schema.check([stored_of(saved)]))
    return report


def plain(value: Any) -> Any:
    """A value as JSON shows it: objects by the name of their class and their fields, what else JSON cannot as Python
    writes it."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {key if isinstance(key, str) else repr(key): plain(one) for key, one in value.items()}
    if isinstance(value, StoredObject):
        return {"type": value.type_name, "fields": plain(value.fields)}
    if hasattr(value, "model_dump"):
        return {"type": _name_of(value), "fields": plain(value.model_dump())}
    if dataclasses.is_dataclass(value):
        fields = {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"type": _name_of(value), "fields": fields}
    return repr(value)


def _name_of(value: object) -> str:
    return f"{type(value).__module__}:{type(value).__qualname__}"
