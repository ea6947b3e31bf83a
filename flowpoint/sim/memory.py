"""Storage in a simulated coordinator's memory, mirrored into the simulated files, where the checkers look.

Each object appears in the mirror, whole and durable, in the step that gives it its name, and goes in the step that
removes it. Nothing reads the mirror but checkers.

Not here: the storage itself, which is the real one (`snapshot.memory`).
"""

from __future__ import annotations

from flowpoint.sim.files import FileSystem
from flowpoint.snapshot.memory import MemoryObjects, Pieces


class MirroredObjects(MemoryObjects):
    """The objects of one coordinator; `root` is the folder of their mirror, emptied for a new one."""

    def __init__(self, limit: int, files: FileSystem, root: str) -> None:
        super().__init__(limit)
        self._files = files
        self._root = root
        files.remove_tree(root)

    def _keep(self, name: str, pieces: Pieces) -> bool:
        if not super()._keep(name, pieces):
            return False
        path = f"{self._root}/{name}"
        written = f"{path}.mirrored"
        # Renamed, since that is a change that checkers look at.
        self._files.write_whole(written, pieces.read(0, -1))
        self._files.rename(written, path)
        self._files.sync_dir(path.rpartition("/")[0])
        return True

    def _remove(self, name: str) -> bool:
        if not super()._remove(name):
            return False
        self._files.remove(f"{self._root}/{name}")
        self._files.sync_dir(f"{self._root}/{name}".rpartition("/")[0])
        return True
