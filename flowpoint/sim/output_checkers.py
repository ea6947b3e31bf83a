"""What must hold at every moment of what others take out of a job: savepoints, and the output of a file sink.

Like `checkers`, they see only files. Both are held against the commit log, which `StorageChecker` knows.

Not here: whether the output is the right one (`Scenario.judge`).
"""

from __future__ import annotations

from flowpoint.sim.checkers import Checker, StorageChecker
from flowpoint.sim.files import Change
from flowpoint.sim.stored_names import Commit, files_of_manifest, parse_part
from flowpoint.sim.world import InvariantBroken, SimWorld


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


class CommittableChecker:
    """What sinks are told to do with what they have prepared.

    - Nothing is aborted that a checkpoint in the commit log names, or a savepoint that is there (rules 3 and 5).
    - Nothing is committed that was aborted before.
    """

    def __init__(self, world: SimWorld, storage: StorageChecker, savepoints: str) -> None:
        self._world = world
        self._storage = storage
        self._savepoints = savepoints
        self._aborted: set[str] = set()
        world.sink_calls.on_commit = self._on_commit
        world.sink_calls.on_abort = self._on_abort

    def _on_commit(self, name: str) -> None:
        if name in self._aborted:
            self._world.fail(InvariantBroken(f"{name} is to be committed, and was aborted before"))

    def _on_abort(self, name: str) -> None:
        self._aborted.add(name)
        self._world.trace.mark("aborted output")
        self._world.trace.tell("output", f"{name} is aborted")
        commit = self._storage.named_in(name)
        if commit is not None:
            self._world.fail(InvariantBroken(f"{name} is to be aborted, and commit {commit.number} names it"))
        for path, file in self._world.files.walk(self._savepoints):
            if path.endswith("/manifest.json") and name.encode() in file.data:
                self._world.fail(InvariantBroken(f"{name} is to be aborted, and {path} names it"))


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
