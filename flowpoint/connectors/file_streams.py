"""The bytes of one file in big blocks: as they are, or decompressed (.gz, .bz2, .xz).

Blocks are read through `Disk`. Decompressing happens on the loop, in slices of at most `BLOCK` bytes of output, so that
one slice takes milliseconds and a small file that inflates to gigabytes never stands in memory.

Invariants: a stream never reads beyond the size the file had when the job listed it. Offsets of a compressed file count
decompressed bytes. A file that ends early is LostInputError, never a silent end.
Not here: lines (`line_framing`), records (`line_formats`).
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Final, Protocol

from flowpoint.errors import BadRecordError, LostInputError, StorageError
from flowpoint.host.base import Disk

BLOCK: Final = 512 * 1024
_TAIL_BLOCK: Final = 64 * 1024


class ByteStream(Protocol):
    """Bytes in order."""

    async def read(self) -> bytes:
        """The next bytes, or b"" at the end."""


class PlainStream:
    """The bytes [offset, limit) of a file. Beyond `end` a reader only needs the rest of a line: small blocks."""

    def __init__(self, disk: Disk, path: str, offset: int, end: int, limit: int) -> None:
        self._disk = disk
        self._path = path
        self._offset = offset
        self._end = end
        self._limit = limit

    async def read(self) -> bytes:
        wanted = min(max(self._end - self._offset, _TAIL_BLOCK), BLOCK, self._limit - self._offset)
        if wanted <= 0:
            return b""
        block = await read_file(self._disk, self._path, self._offset, wanted)
        if len(block) < wanted:
            raise LostInputError(
                f"cannot read on in {self._path}: it ends at byte {self._offset + len(block)}, but had {self._limit}"
                " bytes when the job listed it; restore the file, or pass --skip-lost-input to go on without the rest"
            )
        self._offset += wanted
        return block


class _Inflater(Protocol):
    """What bz2 and lzma decompressors have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _GzipInflater:
    """zlib's decompressor in the form of the other two."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


_INFLATERS: Final[dict[str, Callable[[], _Inflater]]] = {
    ".gz": _GzipInflater,
    ".bz2": bz2.BZ2Decompressor,
    ".xz": lzma.LZMADecompressor,
}
COMPRESSED: Final = tuple(_INFLATERS)


class CompressedStream:
    """The decompressed bytes of a file, from its start. Files of several members one after another are one stream."""

    def __init__(self, disk: Disk, path: str, compression: str, size: int) -> None:
        self._file = PlainStream(disk, path, 0, size, size)
        self._path = path
        self._new_inflater = _INFLATERS[compression]
        self._inflater: _Inflater | None = self._new_inflater()
        self._rest = b""  # compressed bytes that the next member begins with

    async def read(self) -> bytes:
        while self._inflater is not None:
            if self._inflater.eof:
                await self._next_member()
                continue
            data = self._rest
            self._rest = b""
            if not data and self._inflater.needs_input:
                data = await self._file.read()
                if not data:
                    raise self._damaged("it ends in the middle of its compressed data")
            try:
                inflated = self._inflater.decompress(data, BLOCK)
            except (zlib.error, lzma.LZMAError, OSError, EOFError) as error:
                raise self._damaged(str(error)) from error
            if inflated:
                return inflated
        return b""

    async def _next_member(self) -> None:
        assert self._inflater is not None
        # Padding with zeros after the last member is legal (tar, tapes).
        rest = self._inflater.unused_data.lstrip(b"\0")
        while not rest:
            block = await self._file.read()
            if not block:
                self._inflater = None
                return
            rest = block.lstrip(b"\0")
        self._rest = rest
        self._inflater = self._new_inflater()

    def _damaged(self, reason: str) -> BadRecordError:
        return BadRecordError(f"cannot decompress {self._path}: {reason}; replace the file with an intact copy")


async def read_file(disk: Disk, path: str, offset: int, size: int) -> bytes:
    """Bytes of a file; errors of the file system become FlowPoint's, naming the file and the offset."""
    try:
        return await disk.read(path, offset, size)
    except FileNotFoundError:
        raise LostInputError(
            f"cannot read on in {path} at byte {offset}: the file is gone; restore it, or pass --skip-lost-input"
            " to go on without it"
        ) from None
    except OSError as error:
        # Never LostInputError: what is lost may be skipped, and this may be read later.
        advice = "make the file readable" if isinstance(error, PermissionError) else "check the disk it is on"
        raise StorageError(f"cannot read {path} at byte {offset}: {error.strerror or error}; {advice}") from error
