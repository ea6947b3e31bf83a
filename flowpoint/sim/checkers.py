"""What must hold at every moment of a run, checked whenever the simulated disk changes.

`StorageChecker` looks at a job's checkpoint storage, `OutputChecker` at the folder of a file sink. Both see only files,
as a person with `cat` would, so they hold for any code that keeps the formats of the snapshot room. What is
broken ends the run before anybody takes another step.

After a power failure what they know is read anew: a commit whose folder was not yet synced may rightly be gone.

Not here: whether the output is the right one (`Scenario.judge`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from flowpoint.model.manifest import StateFile, SubtaskState
from flowpoint.sim.files import Change, File
from flowpoint.sim.world import InvariantBroken, SimWorld

_COMMIT = re.compile(r"(\d{8,})\.json")
_DIRECTORY = re.compile(r"chk-(\d+)-a(\d+)")
_PART = re.compile(r"part-(\d+)-(?:\w+-)?(\d+)-a(\d+)-([^.]+)\..+")
CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class Commit:
    """An entry of the commit log, as far as checkers look at it.

    taken_from: the snapshot that a checkpoint was made of by linking or copying it, "" for all others.
    savepoint: the folder of the savepoint that a "savepoint" entry tells of.
    """

    number: int
    kind: str
    attempt: int
    lineage: str
    checkpoint: int
    directory: str
    taken_from: str = ""
    savepoint: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """What the name of a committed output file says."""

    checkpoint: int
    subtask: int
    attempt: int
    lineage: str


def parse_commit(number: int, data: bytes) -> Commit:
    """An entry from its JSON. The one place that knows its shape."""
    body = json.loads(data)
    directory = str(body.get("directory") or body.get("checkpoint") or "")
    match = _DIRECTORY.fullmatch(directory)
    return Commit(
        number,
        body["kind"],
        body["attempt"],
        body["lineage"],
        int(match[1]) if match else 0,
        directory if match else "",
        str(body.get("extra", {}).get("from", "")) if body["kind"] == CHECKPOINT else "",
        str(body.get("extra", {}).get("savepoint", "")) if body["kind"] == "savepoint" else "",
    )


def checkpoint_of(directory: str) -> tuple[int, int] | None:
    """(checkpoint, attempt) of a checkpoint's folder."""
    match = _DIRECTORY.fullmatch(directory)
    return (int(match[1]), int(match[2])) if match else None


def parse_part(name: str) -> Part | None:
    """What a file name in the output folder says; None when it is not a committed part. The one place that knows."""
    match = _PART.fullmatch(name)
    return Part(int(match[1]), int(match[2]), int(match[3]), match[4]) if match else None


def files_of_manifest(data: bytes) -> list[StateFile]:
    """The files that a manifest names."""
    operators: dict[str, Any] = json.loads(data)["operators"]
    subtasks = [subtask for operator in operators.values() for subtask in operator["subtasks"]]
    return [file for subtask in subtasks for file in SubtaskState.from_data(subtask).every_file()]


class Checker:
    """Watches one folder of the simulated disk. What `check` raises ends the run."""

    def __init__(self, world: SimWorld, root: str) -> None:
        self.world = world
        self.files = world.files
        self.root = root.rstrip("/")
        world.files.watch(self._on_change)

    def check(self, change: Change, name: str) -> None:
        """Look at a change at `name`, relative to the folder; after a crash `name` is empty."""
        raise NotImplementedError

    def require(self, condition: bool, complaint: Callable[[], str]) -> None:
        """End the run unless the condition holds."""
        if not condition:
            raise InvariantBroken(complaint())

    def content(self, name: str) -> bytes:
        """The bytes of a file below the folder."""
        return bytes(self.files.file(f"{self.root}/{name}").data)

    def find(self, name: str) -> File | None:
        """The file at a name below the folder."""
        node = self.files.find(f"{self.root}/{name}")
        return node if isinstance(node, File) else None

    def _on_change(self, change: Change) -> None:
        crashed = change.kind == "crash"
        if not crashed and not change.path.startswith(self.root + "/"):
            return
        try:
            self.check(change, "" if crashed else change.path.removeprefix(self.root + "/"))
        except InvariantBroken as error:
            self.world.trace.tell("checker", f"BROKEN: {error}")
            # The change was made by some process; the error is not its to handle.
            self.world.fail(error)


class StorageChecker(Checker):
    """The storage of one job: commit log, manifests and the files that they name.

    - A commit entry, once visible, never changes; numbers and attempts ascend; so do checkpoints inside a lineage.
    - Nothing of an older attempt is committed after a newer one began.
    - One manifest per checkpoint and attempt, and it never changes.
    - Whatever a manifest names is durable, whole, when the manifest appears and as long as its commit is retained.
    """

    def __init__(self, world: SimWorld, root: str) -> None:
        super().__init__(world, root)
        self.commits: dict[int, Commit] = {}
        self.on_savepoint: Callable[[Commit], None] = lambda _: None
        self._bytes: dict[int, bytes] = {}
        self._manifests: dict[str, bytes] = {}
        self._named: dict[str, list[StateFile]] = {}
        self._written_in: dict[str, int] = {}
        self._damaged: set[str] = set()

    @property
    def newest(self) -> Commit | None:
        """The entry with the highest number ever seen."""
        return self.commits[max(self.commits)] if self.commits else None

    def has_checkpoint(self, checkpoint: int) -> bool:
        """Whether a checkpoint of this number was ever committed."""
        return any(one.kind == CHECKPOINT and one.checkpoint == checkpoint for one in self.commits.values())

    def is_committed(self, checkpoint: int, attempt: int, lineage: str) -> bool:
        """Whether a checkpoint of this attempt and lineage, this one or a later, was ever committed."""
        return any(
            commit.kind == CHECKPOINT
            and commit.checkpoint >= checkpoint
            and commit.directory == f"chk-{commit.checkpoint}-a{attempt}"
            and commit.lineage.startswith(lineage)
            and self._is_settled(commit.number)
            for commit in self.commits.values()
        )

    def _is_settled(self, number: int) -> bool:
        """Whether no crash can undo this entry: it is durable, or so old that it was cleaned away."""
        path = f"{self.root}/commits/{number:08d}.json"
        return self.files.find(path) is None or self.files.is_durable(path)

    def retained(self) -> list[Commit]:
        """The checkpoint entries that are in the log now, oldest first."""
        names = self.files.list(f"{self.root}/commits")
        numbers = [int(match[1]) for match in map(_COMMIT.fullmatch, names) if match is not None]
        found = [self.commits[number] for number in numbers if number in self.commits]
        return [commit for commit in found if commit.kind == CHECKPOINT and commit.directory]

    def unnamed(self) -> list[str]:
        """Files of state that no checkpoint in the log names."""
        named = {file.path for commit in self.retained() for file in self._named_by(commit.directory)}
        return [name for base in self.files.list(f"{self.root}/shared") if (name := f"shared/{base}") not in named]

    def take_away_unnamed(self) -> list[str]:
        """Remove every file of state, and every manifest, that the newest checkpoint does not need; says which."""
        newest = self.retained()[-1].directory
        needed = {f"{newest}/manifest.json", *(file.path for file in self._named_by(newest))}
        names = [path.removeprefix(f"{self.root}/") for path, _ in self.files.walk(self.root)]
        gone = [name for name in names if name.startswith(("shared/", "chk-")) and name not in needed]
        self._damaged.update(gone)
        for name in gone:
            self.files.remove(f"{self.root}/{name}")
        return gone

    def damage_newest(self) -> str | None:
        """Rot one file of the newest committed checkpoint, if it has an older one behind it; says which."""
        retained = self.retained()
        own = [commit.directory for commit in retained if commit.lineage == retained[-1].lineage]
        if len(set(own)) < 2:
            return None
        directories = list(dict.fromkeys(commit.directory for commit in retained))
        newest, older = directories[-1], directories[:-1]
        shared = {file.path for one in older for file in self._named_by(one)}
        rotten = [file.path for file in self._named_by(newest) if file.path not in shared and file.bytes]
        path = self.world.stream("rot").choice([*rotten, f"{newest}/manifest.json"])
        if self.find(path) is None:
            return None
        self._damaged.add(path)
        self.files.damage(f"{self.root}/{path}")
        return f"{self.root}/{path}"

    def check(self, change: Change, name: str) -> None:
        if change.kind == "crash":
            self._after_crash()
        elif change.kind in ("link", "rename", "create") and name.startswith("commits/"):
            self._on_commit(name)
        elif change.kind in ("link", "rename") and name.endswith("/manifest.json"):
            self._on_manifest(name)
        elif change.kind in ("link", "rename", "create") and name.startswith("shared/"):
            self._written_in[name] = self.newest.attempt if self.newest is not None else 0
        elif change.kind == "remove":
            self._on_remove(name)

    # ------------------------------------------------------------------ events

    def _on_commit(self, name: str) -> None:
        match = _COMMIT.fullmatch(name.removeprefix("commits/"))
        if match is None:
            return
        number, data = int(match[1]), self.content(name)
        entry = self.find(name)
        self.require(
            entry is not None and entry.durable, lambda: f"commit {number} became visible before it was durable"
        )
        known = self._bytes.get(number)
        if known is not None and number < max(self.commits):
            # A number that was cleaned away and is free again. Its writer will see the newer ones and know it is late.
            return
        self.require(known is None or known == data, lambda: f"commit {number} was overwritten")
        commit = parse_commit(number, data)
        self._check_order(commit)
        self.commits[number], self._bytes[number] = commit, data
        if commit.savepoint and commit.kind == "savepoint":
            self.on_savepoint(commit)
        self.world.trace.tell(
            "storage", f"commit {number}: {commit.kind} {commit.directory} of attempt {commit.attempt}"
        )
        if commit.kind == CHECKPOINT and commit.directory:
            self._check_whole(commit.directory, f"commit {number}")

    def _check_order(self, commit: Commit) -> None:
        newest = self.newest
        if newest is None:
            return
        self.require(
            commit.number > newest.number or commit == newest,
            lambda: f"commit {commit.number} appeared after {newest.number}",
        )
        self.require(
            commit.attempt >= newest.attempt,
            lambda: f"attempt {commit.attempt} committed {commit.number} after attempt {newest.attempt} began",
        )
        if commit.kind == CHECKPOINT:
            ids = [c.checkpoint for c in self.commits.values() if c.kind == CHECKPOINT and c.lineage == commit.lineage]
            self.require(
                commit.checkpoint > max(ids, default=0),
                lambda: f"commit {commit.number} has checkpoint {commit.checkpoint}, after {max(ids)} was committed",
            )

    def _on_manifest(self, name: str) -> None:
        directory = name.removesuffix("/manifest.json")
        match = _DIRECTORY.fullmatch(directory)
        if match is None:
            return
        data = self.content(name)
        known = self._manifests.setdefault(directory, data)
        self.require(known == data, lambda: f"the manifest of {directory} was written twice")
        body = json.loads(data)
        self.require(
            (body["id"], body["attempt"]) == (int(match[1]), int(match[2])),
            lambda: f"the manifest in {directory} says checkpoint {body['id']} of attempt {body['attempt']}",
        )
        self._named[directory] = files_of_manifest(data)
        if any(file.kind == "channel" for file in self._named[directory]):
            self.world.trace.mark("checkpoint with channel state")
        for file in self._named[directory]:
            self.check_file(file, f"the manifest of {directory}")
            self._check_origin(file, directory, body["attempt"])

    def _check_origin(self, file: StateFile, directory: str, attempt: int) -> None:
        """A file is the attempt's own, or that of a committed checkpoint: never what a dead attempt left (rule 4)."""
        written_in = self._written_in.get(file.path, 0)
        if written_in >= attempt or not written_in:
            return
        committed = {commit.directory for commit in self.commits.values() if commit.kind == CHECKPOINT}
        self.require(
            any(_is_share_of(file, held) for one in committed for held in self._named_by(one)),
            lambda: (
                f"the manifest of {directory} names {file.path}, which another attempt wrote "
                "and no committed checkpoint holds"
            ),
        )

    def _on_remove(self, name: str) -> None:
        for commit in self.retained():
            named = {file.path for file in self._named_by(commit.directory)} | {f"{commit.directory}/manifest.json"}
            if name in named - self._damaged:
                raise InvariantBroken(f"{name} was removed, and commit {commit.number} still needs it")

    def _after_crash(self) -> None:
        names = self.files.list(f"{self.root}/commits")
        present = {int(match[1]) for match in map(_COMMIT.fullmatch, names) if match is not None}
        # The newest ones may have been unsynced; older ones that are missing were cleaned away.
        while self.commits and max(self.commits) not in present:
            newest = max(self.commits)
            del self.commits[newest], self._bytes[newest]
        for directory in list(self._manifests):
            if self.find(f"{directory}/manifest.json") is None:
                del self._manifests[directory], self._named[directory]
        for commit in self.retained():
            self._check_whole(commit.directory, f"commit {commit.number}, after the power failure")

    # ------------------------------------------------------------------ files

    def _named_by(self, directory: str) -> list[StateFile]:
        return self._named.get(directory, [])

    def _check_whole(self, directory: str, who: str) -> None:
        path = f"{directory}/manifest.json"
        if path not in self._damaged:
            self.require(
                self.files.is_durable(f"{self.root}/{path}"), lambda: f"{who} needs {path}, which is not durable"
            )
        for file in self._named_by(directory):
            self.check_file(file, who)

    def check_file(self, file: StateFile, who: str) -> None:
        """End the run unless a file of state is there, whole and durable."""
        if file.path in self._damaged:
            return
        found = self.find(file.path)
        size = len(found.data) if found is not None else -1
        self.require(size == file.bytes, lambda: f"{who} names {file.path} with {file.bytes} bytes; there are {size}")
        self.require(
            self.files.is_durable(f"{self.root}/{file.path}"), lambda: f"{who} names {file.path}, which is not durable"
        )


class SavepointChecker(Checker):
    """A folder in which savepoints are made.

    - Whatever the manifest of a savepoint names is in its folder, durable and whole, when the manifest appears.
    - A savepoint that the commit log tells of is there, durably, when its entry appears.
    """

    def __init__(self, world: SimWorld, root: str, storage: StorageChecker) -> None:
        super().__init__(world, root)
        self._storage = storage
        storage.on_savepoint = self._on_entry

    def check(self, change: Change, name: str) -> None:
        folder, _, base = name.partition("/")
        if change.kind == "link" and base == "manifest.json":
            self.check_whole(folder)

    def check_whole(self, folder: str) -> None:
        """End the run unless everything that a savepoint's manifest names is there."""
        for file in files_of_manifest(self.content(f"{folder}/manifest.json")):
            found = self.find(f"{folder}/{file.path}")
            size = len(found.data) if found is not None else -1
            self.require(
                size == file.bytes and self.files.is_durable(f"{self.root}/{folder}/{file.path}"),
                lambda file=file, size=size: (  # type: ignore[misc]
                    f"savepoint {folder} names {file.path} with {file.bytes} bytes; there are {size}, or not durably"
                ),
            )

    def _on_entry(self, commit: Commit) -> None:
        path = f"{commit.savepoint}/manifest.json"
        self.require(
            self.files.is_durable(path), lambda: f"commit {commit.number} tells of {path}, which is not durable"
        )


class OutputChecker(Checker):
    """The folder of a file sink.

    - A part becomes visible whole, durable in content, and never changes.
    - It is visible only after a checkpoint of its own attempt and lineage, its own or a later one, was committed.
    - It disappears only when it is newer than the checkpoint that the running attempt started from, and never where
      the sink cannot take back (rule 1).
    """

    def __init__(self, world: SimWorld, root: str, storage: StorageChecker, *, takes_back: bool = True) -> None:
        super().__init__(world, root)
        self._takes_back = takes_back
        self._storage = storage
        self._parts: dict[str, bytes] = {}

    def visible(self) -> list[str]:
        """The names of the committed parts that are there now."""
        return [name for name in self.files.list(self.root) if parse_part(name) is not None]

    def check(self, change: Change, name: str) -> None:
        if change.kind == "crash":
            self._after_crash()
        elif change.kind in ("create", "link", "rename") and parse_part(name) is not None:
            self._on_part(name)
        elif change.kind == "remove" and name in self._parts:
            self._on_removed(name)

    def _on_part(self, name: str) -> None:
        part, file = parse_part(name), self.find(name)
        assert part is not None
        assert file is not None
        self.require(file.durable, lambda: f"{name} became visible before its content was durable")
        data = self._parts.setdefault(name, bytes(file.data))
        self.require(data == file.data, lambda: f"{name} was committed a second time with other content")
        self.require(
            self._storage.is_committed(part.checkpoint, part.attempt, part.lineage),
            lambda: (
                f"{name} became visible, and no checkpoint {part.checkpoint} or later of attempt {part.attempt} "
                f"is in the commit log"
            ),
        )
        self.world.trace.tell("output", f"{name} is committed, {len(file.data)} bytes")

    def _on_removed(self, name: str) -> None:
        part, newest = parse_part(name), self._storage.newest
        assert part is not None
        began = newest is not None and newest.kind in ("attempt", "restored") and newest.attempt > part.attempt
        self.require(
            began and self._takes_back,
            lambda: f"committed {name} was removed, and not by an attempt that takes it back",
        )
        del self._parts[name]
        self.world.trace.tell("output", f"{name} is taken back")

    def _after_crash(self) -> None:
        # A rename that was not synced may be undone: the part is then hidden again, and will be committed again.
        for name in list(self._parts):
            file = self.find(name)
            if file is None:
                del self._parts[name]
            elif bytes(file.data) != self._parts[name]:
                raise InvariantBroken(f"a power failure changed {name}")


def _is_share_of(file: StateFile, held: StateFile) -> bool:
    """Whether they are the same file, of which no more counts than did: a rescale deals its key groups out."""
    first, last = held.groups
    return replace(file, groups=held.groups) == held and first <= file.groups[0] and file.groups[1] <= last
