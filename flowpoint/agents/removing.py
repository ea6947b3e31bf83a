"""Removes entries of a thread that no longer count: some, or all without reading any of them.

Who follows the log of a thread is told before its numbers have gaps, by a mark (`replayed_index`). A log that cannot be
read is ended by its names alone: the last number tells where the cut goes, behind which nothing counts.

Invariants: nothing is removed before a cut says that it does not count; an entry whose name is none never did. A mark
goes before a cut that is made unread: who follows such a log may be in the midst of it, and would append there.
Not here: what goes (`retention`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from flowpoint.agents.core import SaverCore
from flowpoint.agents.entry_names import Place, commits_prefix, cut_name, number_of, root, writes_prefix
from flowpoint.agents.kv import Section, part
from flowpoint.agents.stored_index import StoredIndex
from flowpoint.errors import DamagedStoreError

_DELETE_BATCH: Final = 1000


def remove(core: SaverCore, thread: str, doomed: Sequence[str]) -> None:
    """Remove entries of a thread. In a section for cutting, after the cut."""
    if not doomed:
        return
    if not isinstance(core.index, StoredIndex):
        # Those who follow the log must look anew before its numbers have gaps.
        _mark(core, thread)
    for start in range(0, len(doomed), _DELETE_BATCH):
        core.kv.write([], doomed[start : start + _DELETE_BATCH])


def remove_all(core: SaverCore, thread: str) -> None:
    """Remove what is left of a thread of which nothing counts. Nothing is read: what is damaged goes, too."""
    below = root(thread)
    commits = unneeded_commits(core, thread)
    remove(core, thread, [*commits, *core.kv.keys(f"{below}w/"), *core.kv.keys(f"{below}b/")])


def remove_writes(core: SaverCore, thread: str, checkpoints: Iterable[tuple[str, str]]) -> None:
    """Remove what tasks have written for checkpoints that a thread does not have, but is about to be given.

    They are of a run whose thread was deleted, or of an earlier try.
    """
    doomed = [key for ns, id_ in checkpoints for key in core.kv.keys(writes_prefix(Place(thread, ns), id_))]
    if doomed:
        with core.kv.section(part(thread), Section.CUT):
            core.index.refresh(thread)
            if not core.index.namespaces(thread):
                remove(core, thread, doomed)


def unneeded_commits(core: SaverCore, thread: str) -> Iterator[str]:
    """The commits of a thread that the log can do without, whether they are checkpoints that count or not."""
    for key in core.kv.keys(commits_prefix(thread)):
        if not core.index.is_needed(thread, number_of(key)):
            yield key


def remove_misnamed(core: SaverCore, thread: str) -> None:
    """Remove what stands among commits and marks under a name that is none, so that their numbers can be told."""
    misnamed = [key for below in "cg" for key in core.kv.keys(f"{root(thread)}{below}/") if _number(key) is None]
    if misnamed:
        core.kv.write([], misnamed)


def cut_unread(core: SaverCore, thread: str, why: str) -> None:
    """End a log that cannot be read, so that nothing of it counts. In a section for cutting, without misnamed entries."""
    _mark(core, thread)
    core.log.cut_unread(thread, _last(core, thread, "c"), why)
    core.index.refresh(thread)


def _mark(core: SaverCore, thread: str) -> None:
    core.kv.write([(cut_name(thread, _last(core, thread, "g") + 1), b"")])


def _last(core: SaverCore, thread: str, below: str) -> int:
    key = next(core.kv.keys(f"{root(thread)}{below}/", reverse=True), None)
    return 0 if key is None else number_of(key)


def _number(key: str) -> int | None:
    try:
        return number_of(key)
    except DamagedStoreError:
        return None
