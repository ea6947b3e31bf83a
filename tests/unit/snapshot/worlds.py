"""A small job around one disk, for tests: its coordinator's view of storage and log, and what it writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from flowpoint.model.commits import CommitEntry
from flowpoint.model.manifest import Manifest, OperatorState, StateFile, SubtaskState
from flowpoint.snapshot import names
from flowpoint.snapshot.commit_log import CommitLog
from flowpoint.snapshot.manifests import write_manifest
from flowpoint.snapshot.retention import Cleaner
from flowpoint.snapshot.storage import FolderStorage
from flowpoint.snapshot.writer import write_state
from tests.unit.snapshot.fakes import FakeHost, MemoryDisk

ROOT = "/storage/job"
UID = "counts"


@dataclass(frozen=True)
class Frozen:
    """Frozen state made of given slices."""

    slices: Sequence[bytes] = (b"state",)
    entries: int = 1
    full: bool = False
    native: Sequence[str] = ()
    seal: str = ""
    key_types: frozenset[str] = frozenset()
    has_plain_keys: bool = False

    def chunks(self) -> Iterator[bytes]:
        return iter(self.slices)


@dataclass
class Coordinator:
    """One coordinator process: it begins attempts and takes checkpoints of one subtask."""

    disk: MemoryDisk
    name: str = "c"
    lineage: str = "L1"
    retained: int = 3
    attempt: int = 0
    files: list[StateFile] = field(default_factory=list)
    sequence: int = 0

    def __post_init__(self) -> None:
        host = FakeHost(self.disk, self.name)
        self.storage = FolderStorage(self.disk, host.new_id, ROOT)
        self.log = CommitLog(self.storage, "", host)

    async def begin(self) -> CommitEntry:
        entry = await self.log.begin_attempt(self.lineage)
        self.attempt = entry.attempt
        return entry

    def cleaner(self) -> Cleaner:
        return Cleaner(self.storage, self.log, lineage=self.lineage, attempt=self.attempt, retained=self.retained)

    async def write(self, *, full: bool = False, data: bytes = b"state") -> None:
        """Write one state file, which the next manifests name until a full one comes."""
        self.sequence += 1
        kind = "base" if full else "delta"
        name = names.state_file(UID, 0, self.attempt, self.sequence, kind)
        written = await write_state(self.storage, Frozen([data], full=full), name, groups=(0, 127))
        self.files = written if full else [*self.files, *written]

    def manifest(self, checkpoint: int) -> Manifest:
        return manifest_of(checkpoint, self.attempt, self.lineage, self.files)

    async def complete(self, checkpoint: int, *, full: bool = False, claimed: str = "") -> CommitEntry:
        """A whole checkpoint: state, manifest, commit. `claimed`: made of the snapshot at this path."""
        await self.write(full=full)
        directory = await write_manifest(self.storage, self.manifest(checkpoint))
        return await self.log.append(
            "checkpoint",
            self.attempt,
            checkpoint=checkpoint,
            directory=directory,
            parent=checkpoint - 1,
            extra={"from": claimed, "claim": True} if claimed else None,
        )


def manifest_of(checkpoint: int, attempt: int, lineage: str, files: Sequence[StateFile]) -> Manifest:
    state = SubtaskState(files=tuple(files), states={"count": {"kind": "value"}})
    return Manifest(
        kind="checkpoint",
        job="job",
        id=checkpoint,
        attempt=attempt,
        lineage=lineage,
        parent=checkpoint - 1,
        created=1_700_000_000_000,
        plan={"job": "job"},
        operators={UID: OperatorState(1, (state,))},
    )
