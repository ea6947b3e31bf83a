"""What must hold at every moment of a run, checked whenever the simulated disk changes.

A `Checker` watches one folder; `StorageChecker` looks at a job's checkpoint storage. They see only files, as a person
with `cat` would, so they hold for any code that keeps the formats of the snapshot room. What is broken ends the run before
anybody takes another step.

After a power failure what they know is read anew: a commit whose folder was not yet synced may rightly be gone.

Not here: savepoints and output (`output_checkers`), whether the output is the right one (`Scenario.judge`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from flowpoint.model.manifest import StateFile
from flowpoint.sim.files import Change, File
from flowpoint.sim.stored_names import (
    CHECKPOINT,
    COMMIT_NAME,
    DIRECTORY_NAME,
    STATE_NAME,
    Commit,
    files_of_manifest,
    parse_commit,
)
from flowpoint.sim.world import InvariantBroken, SimWorld


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

    def is_named(self, name: str, size: int, seal: str) -> bool:
        """Whether a manifest that is there names a file of state with this size and seal."""
        named = (file for files in self._named.values() for file in files if file.path == name)
        return any((file.bytes, file.extra.get("seal")) == (size, seal) for file in named)

    def named_in(self, name: str) -> Commit | None:
        """The checkpoint in the log whose manifest has this name in it, such as that of a part of output."""
        for commit in self.commits.values():
            if commit.kind == CHECKPOINT and name.encode() in self._manifests.get(commit.directory, b""):
                return commit
        return None

    def _is_settled(self, number: int) -> bool:
        """Whether no crash can undo this entry: it is durable, or so old that it was cleaned away."""
        path = f"{self.root}/commits/{number:08d}.json"
        return self.files.find(path) is None or self.files.is_durable(path)

    def retained(self) -> list[Commit]:
        """The checkpoint entries that are in the log now, oldest first."""
        names = self.files.list(f"{self.root}/commits")
        numbers = [int(match[1]) for match in map(COMMIT_NAME.fullmatch, names) if match is not None]
        found = [self.commits[number] for number in numbers if number in self.commits]
        return [commit for commit in found if commit.kind == CHECKPOINT and commit.directory]

    def unnamed(self) -> list[str]:
        """Files of state that no checkpoint in the log names, as far as it is this lineage that cleans up (rule 9)."""
        named = {file.path for commit in self.retained() for file in self._named_by(commit.directory)}
        found = [name for base in self.files.list(f"{self.root}/shared") if (name := f"shared/{base}") not in named]
        newest = self.newest
        others = {commit.attempt for commit in self.commits.values() if newest and commit.lineage != newest.lineage}
        return [name for name in found if not ((match := STATE_NAME.fullmatch(name)) and int(match[1]) in others)]

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
        match = COMMIT_NAME.fullmatch(name.removeprefix("commits/"))
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
        match = DIRECTORY_NAME.fullmatch(directory)
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
        present = {int(match[1]) for match in map(COMMIT_NAME.fullmatch, names) if match is not None}
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


def _is_share_of(file: StateFile, held: StateFile) -> bool:
    """Whether they are the same file, of which no more counts than did: a rescale deals its key groups out."""
    if file.path != held.path:
        return False
    first, last = held.groups
    return replace(file, groups=held.groups) == held and first <= file.groups[0] and file.groups[1] <= last
