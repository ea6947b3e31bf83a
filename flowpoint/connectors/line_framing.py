"""Cuts a stream of bytes into blocks of whole lines, under the rule "a line belongs to the split of its first byte".

A split owns the lines that begin in [start, end). Its reader begins one byte before `start`: if that byte is a newline,
a line begins at `start`, else the line there belongs to the split before and is passed over. It ends with the line that
holds byte `end - 1`, however far that line reaches. So every line has one owner, wherever the cuts fall.

No I/O here, and no decoding: a newline byte is never part of another UTF-8 character, which is why cutting first and
decoding afterwards is safe.
"""

from __future__ import annotations

from typing import Final

MAX_LINE: Final = 64 * 1024 * 1024


class LineTooLongError(ValueError):
    """A line longer than MAX_LINE: most likely not a text file."""


class LineFramer:
    """Feed it blocks; it gives back blocks of whole lines. `offset` is where the next fed byte stands in the file.

    >>> framer = LineFramer(0, end=None)
    >>> framer.feed(b"one\\ntw"), framer.feed(b"o\\nthr"), framer.finish()
    (b'one\\n', b'two\\n', b'thr\\n')
    """

    def __init__(self, offset: int, end: int | None) -> None:
        """The first fed byte begins a line. `end` None: to the last byte."""
        self.offset = offset
        self._end = end
        self._parts: list[bytes] = []
        self._held = 0
        self.done = end is not None and offset >= end

    def feed(self, block: bytes) -> bytes:
        """The whole lines that are complete with this block, or b"". Sets `done` after the last line of the split."""
        first = self.offset
        self.offset += len(block)
        if self._end is not None and self.offset >= self._end:
            newline = block.find(b"\n", max(0, self._end - 1 - first))
            self.done = newline >= 0
        else:
            newline = block.rfind(b"\n")
        if newline < 0:
            self._hold(block)
            return b""
        lines = b"".join((*self._parts, block[: newline + 1]))
        self._parts.clear()
        self._held = 0
        if not self.done:
            self._hold(block[newline + 1 :])
        return lines

    def finish(self) -> bytes:
        """The stream has ended: what is held is the last line, and gets the newline it lacks."""
        self.done = True
        rest = b"".join(self._parts)
        self._parts.clear()
        return rest if not rest or rest.endswith(b"\n") else rest + b"\n"

    def _hold(self, piece: bytes) -> None:
        if piece:
            self._parts.append(piece)
            self._held += len(piece)
        if self._held > MAX_LINE:
            raise LineTooLongError(f"a line is longer than {MAX_LINE} bytes")
