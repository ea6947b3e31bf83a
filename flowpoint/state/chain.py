"""When keyed state is written whole, when only its changes, and when small files of changes become one. Pure.

A snapshot names a chain of files: a base, then deltas, oldest first. Recovery reads the whole chain, so it must stay
short and not much bigger than the state itself.

- A delta holds what changed since the last file.
- After `SMALL_FILES_MAX` small deltas in a row, the next delta takes their entries in and replaces them, so that a big
  base need not be rewritten because of its many small changes.
- When the deltas outgrow the base, or there are `FILES_MAX` files all the same, a new base starts the chain over.

After a rescale a subtask goes on with the chains of several old ones, one after the other, as one chain with several
bases; each of them allows for `FILES_MAX` files.

Invariant: a chain has at most FILES_MAX files for each base, and deltas of at most the bases' size plus one delta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FILES_MAX: Final = 32
SMALL_FILES_MAX: Final = 16
SMALL_BYTES_MAX: Final = 1 << 20
# Below this many bytes of deltas a base is not rewritten: many tiny files are the cheaper evil.
DELTA_BYTES_FREE: Final = 256 << 10


@dataclass(slots=True)
class ChainFile:
    """One file of the chain. `data` is kept while it may be taken into a later delta: only for small ones."""

    size: int
    is_base: bool
    data: list[bytes] | None = None


class Chain:
    """The files that the newest snapshot of one backend consists of."""

    def __init__(self) -> None:
        self._files: list[ChainFile] = []
        # Set when these files do not make up the state, or are not wanted any more: only a base mends it.
        self.is_broken = False

    def __len__(self) -> int:
        return len(self._files)

    @property
    def must_restart(self) -> bool:
        """Whether the next file should be a base."""
        if self.is_broken or not self._files or not self._files[0].is_base:
            return True
        bases = [file.size for file in self._files if file.is_base]
        deltas = sum(file.size for file in self._files if not file.is_base)
        return len(self._files) >= FILES_MAX * len(bases) or deltas > max(sum(bases), DELTA_BYTES_FREE)

    def absorbable(self) -> list[ChainFile]:
        """The newest files that the next delta should replace, oldest first; usually none."""
        small: list[ChainFile] = []
        for file in reversed(self._files):
            if file.is_base or file.data is None:
                break
            small.append(file)
        return small[::-1] if len(small) >= SMALL_FILES_MAX else []

    def add(self, file: ChainFile, replaces: int) -> None:
        """A new file is durable; it takes the place of the `replaces` newest ones."""
        if file.is_base:
            self._files = [file]
            self.is_broken = False
            return
        del self._files[len(self._files) - replaces :]
        if file.size > SMALL_BYTES_MAX:
            file.data = None
        self._files.append(file)

    def clear(self) -> None:
        """The newest snapshot needs no file at all."""
        self._files = []
        self.is_broken = False

    def adopt(self, size: int, *, is_base: bool) -> None:
        """A file of the restored snapshot goes on being part of the chain."""
        self._files.append(ChainFile(size, is_base))
