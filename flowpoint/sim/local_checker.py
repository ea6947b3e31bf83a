"""What must hold of local state files: they are what the storage has, and a restore reads none that is not proved.

- A file gets its local name with the bytes of the storage's file of that name.
- When a worker says that it is deployed, each local file that it has open has the size and the seal in a manifest.
- When a job has ended well, no local name is left of what the storage has let go of.

Not here: what happens to local files (`local_trouble`).
"""

from __future__ import annotations

from flowpoint.model import messages
from flowpoint.sim.checkers import Checker, StorageChecker
from flowpoint.sim.files import Change
from flowpoint.sim.local_trouble import LOCAL
from flowpoint.sim.message_checker import MessageChecker
from flowpoint.sim.stored_names import seal_in_bytes
from flowpoint.sim.world import SimProcess, SimWorld


class LocalChecker(Checker):
    """The local files of one job."""

    def __init__(self, world: SimWorld, storage: StorageChecker, said: MessageChecker) -> None:
        super().__init__(world, LOCAL)
        self._storage = storage
        said.on_deployed = self._on_deployed

    def left_over(self) -> list[str]:
        """The local names of what the storage has no more."""
        names = [path.removeprefix(f"{LOCAL}/") for path, _ in self.files.walk(LOCAL)]
        return [name for name in names if self._storage.find(name) is None]

    def check(self, change: Change, name: str) -> None:
        """See `Checker`."""
        if change.kind not in ("link", "rename") or (stored := self._storage.find(name)) is None:
            return
        self.require(self.content(name) == stored.data, lambda: f"the local file {name} is not what the storage has")
        self.world.trace.mark("local file " + ("linked" if change.kind == "link" else "copied"))

    def _on_deployed(self, process: SimProcess, message: messages.Deployed) -> None:
        opened = [one for one in process.opened if one.path.startswith(f"{LOCAL}/")]
        if opened:
            self.world.trace.mark("restored from local files")
        for one in opened:
            self._check_proved(one.path.removeprefix(f"{LOCAL}/"), one.content, process, message.attempt)

    def _check_proved(self, name: str, content: bytes, process: SimProcess, attempt: int) -> None:
        self.require(
            self._storage.is_named(name, len(content), seal_in_bytes(content)),
            lambda: f"{process.name} restores attempt {attempt} from the local file {name}, which no manifest proves",
        )
