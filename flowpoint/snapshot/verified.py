"""Prove a snapshot: every checksum, every count, and that each entry is where a restore would look for it.

Each file is read twice, the second time out of the cache of the system: whole against its checksum in the manifest,
then block by block. So damage is told as closely as can be: which file, and which state and key groups in it.

Invariants: verifying goes on after the first damage and lists all of it; it holds about a megabyte at a time.

Not here: whether a job can be restored from it (`coordinator`, by the same files).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from flowpoint.codec.placement import place_width, places_of
from flowpoint.codec.raw import RawEnum, RawObject
from flowpoint.errors import BadRecordError, IncompatibleStateError, SnapshotError, StorageError
from flowpoint.host.blocking import run_now
from flowpoint.model.key_groups import overlap
from flowpoint.model.manifest import NO_GROUPS, StateFile, SubtaskState
from flowpoint.snapshot.channel_files import CHANNEL, read_channels
from flowpoint.snapshot.manifests import Damage, verify_file
from flowpoint.snapshot.names import MANIFEST
from flowpoint.snapshot.opened import Snapshot
from flowpoint.snapshot.reader import load
from flowpoint.snapshot.storage import SLICE_BYTES
from flowpoint.snapshot.writer import NATIVE, OUTPUT
from flowpoint.state.file_format import FileReader, RawBlock, StoredBlock


@dataclass
class Report:
    """What was looked at, and what is wrong with it."""

    files: int = 0
    blocks: int = 0
    entries: int = 0
    bytes: int = 0
    damages: list[Damage] = field(default_factory=list)
    unreadable: list[Damage] = field(default_factory=list)
    """Files that cannot be read at the moment: nothing is known of them."""

    @property
    def is_proof(self) -> bool:
        """Whether everything was looked at and is whole."""
        return not self.damages and not self.unreadable


def verify(snapshot: Snapshot) -> Report:
    """Look at every byte that a snapshot names. Its manifest was proved when it was opened.

    Raises:
        SnapshotError: the manifest contradicts itself so much that nothing can be looked at.
    """
    report = Report(damages=[*_check_splits(snapshot), *_check_groups(snapshot)])
    seen: set[str] = set()
    for operator in snapshot.operators.values():
        for subtask in operator.subtasks:
            for file in subtask.every_file():
                if file.path not in seen:
                    seen.add(file.path)
                    try:
                        _check_file(snapshot, subtask, file, report)
                    except StorageError as error:
                        report.unreadable.append(Damage(file.path, str(error)))
    return report


def _check_splits(snapshot: Snapshot) -> Iterator[Damage]:
    for uid, operator in snapshot.operators.items():
        counts = Counter(split.id for split in operator.splits)
        for split in sorted(split for split, count in counts.items() if count > 1):
            yield Damage(MANIFEST, f"source {uid!r} has the split {split!r} more than once")


def _check_groups(snapshot: Snapshot) -> Iterator[Damage]:
    """Each key group belongs to one subtask."""
    for uid, operator in snapshot.operators.items():
        owned = sorted((subtask.groups, index) for index, subtask in enumerate(operator.subtasks) if subtask.files)
        for (groups, index), (after, other) in pairwise(owned):
            if groups[1] >= after[0]:
                yield Damage(MANIFEST, f"subtasks {index} and {other} of operator {uid!r} own the same key groups")
        for groups, index in owned:
            if groups == NO_GROUPS:
                yield Damage(MANIFEST, f"subtask {index} of operator {uid!r} has files of state and no key groups")


def _check_file(snapshot: Snapshot, subtask: SubtaskState, file: StateFile, report: Report) -> None:
    report.files += 1
    report.bytes += file.bytes
    damage = run_now(verify_file(snapshot.location.storage, file, deep=True))
    report.damages += [damage] if damage else []
    if file in subtask.files and overlap(file.groups, subtask.groups) != file.groups:
        seen = f"it is to count for key groups {file.groups[0]}-{file.groups[1]}, its subtask has"
        report.damages.append(Damage(file.path, f"{seen} {subtask.groups[0]}-{subtask.groups[1]}"))
    if file.kind in (NATIVE, OUTPUT) or (damage is not None and damage.problem == "missing"):
        return
    if file.kind == CHANNEL:
        if damage is None:
            _check_channels(snapshot, file, report)
        return
    try:
        reader = snapshot.reader(file)
    except (SnapshotError, IncompatibleStateError) as error:
        report.damages.append(Damage(file.path, str(error)))
        return
    if reader.entries != file.entries:
        seen = f"{reader.entries} entries in it, {file.entries} in the manifest"
        report.damages.append(Damage(file.path, seen))
    for name, kind in reader.states:
        schema = subtask.states.get(name)
        if isinstance(schema, dict) and schema.get("kind") != kind:
            report.damages.append(
                Damage(file.path, f"state {name!r} is a {kind}, in the manifest {schema.get('kind')!r}")
            )
    _check_blocks(snapshot, file, reader, report)


def _check_channels(snapshot: Snapshot, file: StateFile, report: Report) -> None:
    """Records under way: each batch can be read, and none is missing."""
    everything = (0, snapshot.max_parallelism - 1)
    seen = 0
    try:
        for _, data in run_now(load(snapshot.location.storage, [file])):
            for _, batch in read_channels(file, data, snapshot.codec, everything):
                report.blocks += 1
                seen += len(batch)
    except (SnapshotError, BadRecordError, ValueError) as error:
        report.damages.append(Damage(file.path, str(error)))
        return
    report.entries += seen
    if seen != file.entries:
        report.damages.append(Damage(file.path, f"{seen} records in it, {file.entries} in the manifest"))


def _check_blocks(snapshot: Snapshot, file: StateFile, reader: FileReader, report: Report) -> None:
    for span in reader.spans((0, snapshot.max_parallelism - 1), SLICE_BYTES):
        data = run_now(snapshot.location.storage.get(file.path, span.offset, span.size))
        for one in span.refs:
            report.blocks += 1
            ref = one[0]
            where = (
                f"block at byte {ref.offset} (state {reader.states[ref.state][0]!r}, key groups {ref.first}-{ref.last})"
            )
            try:
                raw = reader.raw_block(span, one, data)
                block = reader.decoded(raw, snapshot.codec)
                report.entries += len(block.keys) + len(block.dead)
                if len(block.values) and (misplaced := _misplaced(block, raw, reader, snapshot.max_parallelism)):
                    report.damages.append(Damage(file.path, f"{where}: {misplaced}"))
            except (SnapshotError, IncompatibleStateError, BadRecordError, TypeError, ValueError) as error:
                report.damages.append(Damage(file.path, f"{where}: {error}"))


def _misplaced(block: StoredBlock, raw: RawBlock, reader: FileReader, max_parallelism: int) -> str:
    """What is wrong with where a block's keys are, or ""."""
    keys = [pair[0] for pair in block.keys] if block.kind == "map" else block.keys
    if keys and type(keys[0]) in (RawEnum, RawObject):
        return ""
    stated = [
        group
        for group, count in zip(block.live_groups[::2], block.live_groups[1::2], strict=True)
        for _ in range(count)
    ]
    places = places_of(keys, max_parallelism)
    width = place_width(max_parallelism)
    wrong = sum(place // width != group for place, group in zip(places, stated, strict=True))
    if wrong:
        return f"{wrong} entries are not in the key group of their key"
    if reader.placed is not None and places != raw.live_places.tolist():
        return "the index does not have the places of its keys, so that they would not be found"
    return ""
