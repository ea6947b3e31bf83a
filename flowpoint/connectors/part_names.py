"""How the files of a FileSink are named, and how a name is read back.

    part-00000017-out-003-a7-1f3c9a2b0d4e.jsonl            committed: by checkpoint 17, sink "out", subtask 3, attempt 7
    .part-out-003-a7-000002-1f3c9a2b0d4e.jsonl             unfinished or not yet committed: the second part of that writer
    .committed-out-003-1f3c9a2b0d4e                        how far subtask 3 has published (`published.py`)
    .flowpoint-owner                                       whose folder it is (`folder_owner.py`)

The checkpoint's number comes first, so that `cat part-*` shows the output in the order it was committed. The attempt
fences: a part of a dead attempt is never written again, and never taken for a new one. The lineage says whose it is.
The uid keeps several sinks in one folder apart.

Invariant: `parse_*` of a name made here gives what it was made of, and None for every other file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from zlib import crc32

TAKEN_IN: Final = 1_000_000
"""Serials from here on are of parts that came out of a savepoint."""

_SLUG_LENGTH: Final = 40
_FINAL: Final = re.compile(r"part-(\d{8,})-(\w+)-(\d{3,})-a(\d+)-(\w+)\.\w+")
_HIDDEN: Final = re.compile(r"\.part-(\w+)-(\d{3,})-a(\d+)-(\d{6,})-(\w+)\.\w+")


@dataclass(frozen=True, slots=True)
class Part:
    """What the name of a part says. `checkpoint` is 0 for a hidden part: its number is not known yet."""

    uid: str
    subtask: int
    attempt: int
    lineage: str
    checkpoint: int = 0

    def belongs_to(self, uid: str, lineage: str) -> bool:
        """Whether the sink `uid` of this lineage wrote it."""
        return self.uid == slug(uid) and self.lineage == slug(lineage)


def final_name(part: Part, suffix: str) -> str:
    """The name under which readers see it."""
    tail = f"{slug(part.uid)}-{part.subtask:03d}-a{part.attempt}-{slug(part.lineage)}{suffix}"
    return f"part-{part.checkpoint:08d}-{tail}"


def hidden_name(part: Part, serial: int, suffix: str) -> str:
    """The name until then. `serial` counts the parts of one writer."""
    return f".part-{slug(part.uid)}-{part.subtask:03d}-a{part.attempt}-{serial:06d}-{slug(part.lineage)}{suffix}"


def parse_final(name: str) -> Part | None:
    """The part behind a committed file's name (its uid and lineage as slugs), or None."""
    match = _FINAL.fullmatch(name)
    if match is None:
        return None
    checkpoint, uid, subtask, attempt, lineage = match.groups()
    return Part(uid, int(subtask), int(attempt), lineage, int(checkpoint))


def parse_hidden(name: str) -> Part | None:
    """The part behind a hidden file's name, or None."""
    match = _HIDDEN.fullmatch(name)
    if match is None:
        return None
    uid, subtask, attempt, _, lineage = match.groups()
    return Part(uid, int(subtask), int(attempt), lineage)


def slug(text: str) -> str:
    """Text as it stands in file names: letters, digits and "_" only; a changed one gets a checksum, to stay unique.

    >>> slug("counts"), slug("word counts")
    ('counts', 'word_counts_d0ce6277')
    """
    safe = re.sub(r"[^A-Za-z0-9_]", "_", text)[:_SLUG_LENGTH]
    return safe if safe == text else f"{safe}_{crc32(text.encode(errors='surrogatepass')):08x}"
