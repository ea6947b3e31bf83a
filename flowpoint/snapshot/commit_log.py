"""The commit log of a job: what happened, as numbered entries that are created only if absent, never overwritten.

Creating the next number is the one compare-and-swap of the whole protocol. A coordinator that starts appends "attempt k
begins"; from then on every older attempt runs into that entry when it appends, and is fenced. What an entry says
counts from the moment it is durable: only then do sinks commit.

An append that failed may have happened all the same. It is settled by trying again: the name is then taken, and the
nonce tells by whom (rule 5). When even that gives no answer, the append raises OutcomeUnknown and the attempt ends.
After each append comes a look that nothing newer exists, since an old number may have been cleaned away and free again.

Invariants:
- A number is written once; entries with higher numbers are newer; attempts never decrease along the numbers.
- Each entry repeats the attempt and the newest checkpoint of its lineage, so the newest entry alone tells both.
- Nothing read here counts for a new attempt before its own "attempt" entry, which repeats it, is durable.
- Recovery reads these entries, never a listing of folders (rule 4).
- The newest entry is never deleted. A log that has lost it is never taken for a new or an older one (LostLogError).
- After Fenced or OutcomeUnknown from `append` no sink aborts anything: the entry may stand, and others act on it.

Not here: what to restore (`protocol.recovery`), which entries may go (`retention`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from flowpoint.errors import Fenced, LostLogError, OutcomeUnknown, SnapshotError, StorageError
from flowpoint.host.base import Host
from flowpoint.model.commits import CommitEntry, CommitKind
from flowpoint.snapshot import encoding, names
from flowpoint.snapshot.storage import Storage

COMMIT_FORMAT = 1
WHAT = "commit entry"

_TRIES_MAX = 3
_CONFLICTS_MAX = 100

_FIELDS: Mapping[str, type] = {
    "kind": str,
    "attempt": int,
    "lineage": str,
    "checkpoint": str,
    "checkpoint_id": int,
    "parent": int,
    "nonce": str,
    "created": int,
    "extra": dict,
}


@dataclass(frozen=True, slots=True)
class _Newest:
    """The checkpoint that an entry repeats."""

    checkpoint: int = 0
    directory: str = ""
    parent: int = 0


class CommitLog:
    """The log in one storage. One object per coordinator; its appends go one after the other."""

    def __init__(self, storage: Storage, prefix: str, host: Host) -> None:
        """`prefix` is where the job's objects begin in `storage`: "" when the storage is the job's own folder."""
        self._storage = storage
        self._prefix = f"{prefix.rstrip('/')}/" if prefix else ""
        self._host = host
        self._known: dict[int, CommitEntry] = {}
        self._lock = asyncio.Lock()

    async def entries(self) -> list[CommitEntry]:
        """All entries, oldest first. Each is read from storage once in the life of this object.

        Raises:
            LostLogError: the newest entry that this object has seen is not there any more.
            SnapshotError: an entry is damaged.
            StorageError: the log cannot be read.
        """
        # Before looking: what is appended meanwhile may be missing from the listing.
        known = max(self._known, default=0)
        numbers = await self._numbers()
        if known and (not numbers or numbers[-1] < known):
            raise self._lost(known, numbers)
        listed: dict[int, CommitEntry] = {}
        for number in numbers:
            entry = self._known.get(number) or await self._read(number)
            if entry is not None:
                listed[number] = entry
        # What was appended meanwhile must stay known: the number after it is the next one to take.
        newest = numbers[-1] if numbers else 0
        self._known = listed | {number: entry for number, entry in self._known.items() if number > newest}
        return list(listed.values())

    async def begin_attempt(self, lineage: str, *, extra: Mapping[str, Any] | None = None) -> CommitEntry:
        """Begin the next attempt: append "attempt", which fences every older one.

        The entry repeats the newest checkpoint of `lineage`, if the log has one. Should another coordinator begin an
        attempt at the same time, this one goes behind it and fences it.

        Args:
            lineage: the lineage that the attempt continues or founds.
            extra: further facts for the entry.

        Raises:
            LostLogError: entries that this object knows have been removed.
            SnapshotError: an entry is damaged.
            StorageError: not begun.
            OutcomeUnknown: it cannot be told whether it has begun; beginning again is safe.
            Fenced: it began, and an even newer one has begun since.
        """
        async with self._lock:
            for _ in range(_CONFLICTS_MAX):
                nonce = self._host.new_id()
                entries = await self.entries()
                attempt = max((entry.attempt + 1 for entry in entries), default=1)
                number = entries[-1].number + 1 if entries else 1
                newest = _newest_of(entries, lineage)
                entry = self._entry(number, CommitKind.ATTEMPT, attempt, lineage, newest, nonce, extra)
                # An older attempt that was quick may have gone on, and cleaned this number away: then once more.
                if await self._create(entry) and await self._is_newest(entry):
                    return entry
            raise self._crowded(CommitKind.ATTEMPT)

    async def append(
        self,
        kind: str,
        attempt: int,
        *,
        checkpoint: int | None = None,
        directory: str = "",
        parent: int = 0,
        extra: Mapping[str, Any] | None = None,
    ) -> CommitEntry:
        """Append what happened in `attempt`; its entry is durable when this returns.

        Args:
            kind: any `CommitKind` but an attempt's, which `begin` appends.
            attempt: the attempt it happened in, which this object began.
            checkpoint: the new newest checkpoint, with its `directory` and `parent`; None repeats the newest so far.
            directory: see `checkpoint`.
            parent: see `checkpoint`.
            extra: further facts for the entry.

        Raises:
            asyncio.CancelledError: as OutcomeUnknown.
            Fenced: a newer attempt has begun. This one must end at once and abort nothing.
            OutcomeUnknown: it may have happened. The attempt must end and abort nothing.
            StorageError: it has not happened.
        """
        async with self._lock:
            nonce = self._host.new_id()
            for _ in range(_CONFLICTS_MAX):
                tail = await self._tail(attempt)
                newest = _Newest(tail.checkpoint, tail.directory, tail.parent)
                if checkpoint is not None:
                    newest = _Newest(checkpoint, directory, parent)
                entry = self._entry(tail.number + 1, kind, attempt, tail.lineage, newest, nonce, extra)
                if await self._create(entry):
                    if not await self._is_newest(entry):
                        raise self._unknown(entry, SnapshotError("its number is an old one that was cleaned away"))
                    # From here on the entry counts.
                    return entry
                # Another number is not tried blindly: it might be one that was cleaned away.
                await self.entries()
            raise self._crowded(kind)

    async def _tail(self, attempt: int) -> CommitEntry:
        """The newest entry that is known, which is one of `attempt`."""
        if not self._known:
            await self.entries()
        if not self._known:
            raise SnapshotError(
                f"the commit log at {self._prefix}{names.COMMITS} is empty, though attempt {attempt} began in it: "
                "something removed its files; put them back"
            )
        tail = self._known[max(self._known)]
        if tail.attempt > attempt:
            _fenced(attempt, tail)
        return tail

    async def _create(self, entry: CommitEntry) -> bool:
        """Create the entry's file; False when another entry has its number, which is then among the known ones."""
        name = self._name(entry.number)
        data = encode_entry(entry)
        failure: StorageError | None = None
        for _ in range(_TRIES_MAX):
            try:
                created = await self._storage.put_if_absent(name, (data,))
            except OutcomeUnknown:
                raise
            except StorageError as error:
                failure = error
                continue
            if created or await self._is_ours(entry):
                self._known[entry.number] = entry
                return True
            return False
        assert failure is not None
        await self._settle(entry, failure)
        raise failure

    async def _is_ours(self, entry: CommitEntry) -> bool:
        """Whether the existing entry is this one. Another one's is remembered; one cleaned away since is not ours."""
        try:
            found = await self._read(entry.number)
        except (StorageError, SnapshotError) as error:
            raise self._unknown(entry, error) from error
        if found is not None and found.nonce != entry.nonce:
            self._known[entry.number] = found
        return found is not None and found.nonce == entry.nonce

    async def _settle(self, entry: CommitEntry, failure: StorageError) -> None:
        """After the last try failed too: return when the entry is certainly not there."""
        try:
            found = await self._read(entry.number)
        except (StorageError, SnapshotError) as error:
            raise self._unknown(entry, error) from error
        if found is not None and found.nonce == entry.nonce:
            # It can be read, but no try has shown that it is durable.
            raise self._unknown(entry, failure) from failure

    async def _is_newest(self, entry: CommitEntry) -> bool:
        """Whether nothing newer exists. If so, the number was an old one, cleaned away, or a newer attempt fences us."""
        is_newest = True
        try:
            for number in await self._numbers():
                found = await self._read(number) if number > entry.number else None
                if found is None:
                    continue
                is_newest = False
                self._known[number] = found
                if found.attempt > entry.attempt:
                    _fenced(entry.attempt, found)
        except (StorageError, SnapshotError) as error:
            raise self._unknown(entry, error) from error
        return is_newest

    async def _numbers(self) -> list[int]:
        listed = await self._storage.list(self._prefix + names.COMMITS)
        parsed = (names.parse_commit_entry(name.removeprefix(self._prefix)) for name in listed)
        return sorted(number for number in parsed if number is not None)

    async def _read(self, number: int) -> CommitEntry | None:
        """An entry; None when it has been cleaned away."""
        name = self._name(number)
        try:
            data = await self._storage.get(name)
        except FileNotFoundError:
            return None
        return decode_entry(data, name, number)

    def _name(self, number: int) -> str:
        return self._prefix + names.commit_entry(number)

    def _entry(
        self,
        number: int,
        kind: str,
        attempt: int,
        lineage: str,
        newest: _Newest,
        nonce: str,
        extra: Mapping[str, Any] | None,
    ) -> CommitEntry:
        return CommitEntry(
            number=number,
            kind=kind,
            attempt=attempt,
            lineage=lineage,
            checkpoint=newest.checkpoint,
            directory=newest.directory,
            parent=newest.parent,
            nonce=nonce,
            created=self._host.wall_ms(),
            extra=dict(extra or {}),
        )

    def _unknown(self, entry: CommitEntry, error: StorageError | SnapshotError) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"cannot tell whether {self._name(entry.number)} ({entry.kind}, attempt {entry.attempt}) has been "
            f"appended: {error}"
        )

    def _lost(self, known: int, numbers: list[int]) -> LostLogError:
        seen = f"ends at entry {numbers[-1]}" if numbers else "is empty"
        return LostLogError(
            f"the commit log in {self._prefix}{names.COMMITS} {seen} now, though entry {known} was in it: something "
            "removed files of the job's checkpoints while it ran; put them back and run it again, or start over with --fresh"
        )

    def _crowded(self, kind: str) -> StorageError:
        return StorageError(
            f'cannot append "{kind}" to {self._prefix}{names.COMMITS}: {_CONFLICTS_MAX} numbers in a row were taken by '
            "others; see which other coordinators use this storage, and stop them"
        )


def encode_entry(entry: CommitEntry) -> bytes:
    """An entry as its file holds it. "checkpoint" is the folder's name, as a person looks for it."""
    return encoding.encode(
        {
            "format": COMMIT_FORMAT,
            "kind": entry.kind,
            "attempt": entry.attempt,
            "lineage": entry.lineage,
            "checkpoint": entry.directory,
            "checkpoint_id": entry.checkpoint,
            "parent": entry.parent,
            "nonce": entry.nonce,
            "created": entry.created,
            "extra": entry.extra,
        }
    )


def decode_entry(data: bytes, path: str, number: int) -> CommitEntry:
    """The reverse of `encode_entry`.

    Raises:
        SnapshotError: the file is damaged or of a newer format.
    """
    body = encoding.decode(data, path, newest_format=COMMIT_FORMAT, what=WHAT)
    for field, expected in _FIELDS.items():
        if type(body.get(field)) is not expected:
            raise encoding.damaged(path, WHAT, f"{field!r} is {body.get(field)!r}, not of type {expected.__name__}")
    return CommitEntry(
        number=number,
        kind=body["kind"],
        attempt=body["attempt"],
        lineage=body["lineage"],
        checkpoint=body["checkpoint_id"],
        directory=body["checkpoint"],
        parent=body["parent"],
        nonce=body["nonce"],
        created=body["created"],
        extra=body["extra"],
    )


def _newest_of(entries: list[CommitEntry], lineage: str) -> _Newest:
    """The newest checkpoint of a lineage."""
    for entry in reversed(entries):
        if entry.lineage == lineage:
            return _Newest(entry.checkpoint, entry.directory, entry.parent)
    return _Newest()


def _fenced(attempt: int, by: CommitEntry) -> NoReturn:
    raise Fenced(
        f"attempt {attempt} is fenced: attempt {by.attempt} has begun (entry {by.number} of the commit log); "
        "this one ends and touches nothing more"
    )
