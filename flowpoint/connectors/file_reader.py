"""Reads one split of a file: blocks of bytes to lines to records, with an exact byte position after every read.

Files are read in big blocks, and decoded in pieces of whole lines that are handed out in slices. How many bytes the
records handed out took is only worked out when somebody asks for the position (at a checkpoint), by splitting the raw
piece once: nothing is counted per record. Only a piece with a bad or blank line is decoded line by line, and then
remembers an offset per record. The number of a bad line is known where reading began with the file's first line: a piece
has as many lines as it gave records. Elsewhere the lines before would have to be read for it.

The position is the offset of the first line not yet returned: bytes of the file, or of the decompressed text for a
compressed one. None means that nothing was returned and the start of the split is still to be found.

Invariants: `position` describes what `read` has returned, also while a read waits, because all state changes together
after the last await. A restored position must be the beginning of a line, else the file is not the one it was.
Not here: which files and splits there are (`files_source`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from flowpoint.connectors.file_streams import ByteStream, CompressedStream, PlainStream
from flowpoint.connectors.line_formats import LineFormat
from flowpoint.connectors.line_framing import LineFramer, LineTooLongError
from flowpoint.errors import BadRecordError, LostInputError
from flowpoint.host.base import FileStat
from flowpoint.runtime.contracts import END, ConnectorContext, EndOfSplit

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
# Small enough that the records of a piece die young: with 512 kB decoding JSON takes four times as long, because the
# garbage collector walks over thousands of new lists and the caches are too small for them.
_PIECE: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class FileRange:
    """What a split of a file is: the lines that begin in [start, end) of a file of `size` bytes.

    `mtime_ms` is when the file was last changed. `compression` is a suffix such as ".gz", "" for a plain file.
    """

    path: str
    start: int
    end: int
    size: int
    mtime_ms: int
    compression: str = ""


@dataclass(slots=True)
class _Piece:
    """Decoded lines. `offsets` is None when record i is simply the i-th line of `raw`."""

    base: int
    end: int
    raw: bytes
    records: list[Any]
    offsets: list[int] | None = None
    given: int = 0

    def position(self) -> int:
        if self.given == len(self.records):
            return self.end
        if self.offsets is not None:
            return self.offsets[self.given]
        unread = self.raw.split(b"\n", self.given)[self.given]
        return self.base + len(self.raw) - len(unread)


class FileReader:
    """One split of a file of lines. Make it with `open_reader`."""

    def __init__(
        self, part: FileRange, line_format: LineFormat, skip_bad: bool, ctx: ConnectorContext, position: int | None
    ) -> None:
        self._part = part
        self._format = line_format
        self._skip_bad = skip_bad
        self._ctx = ctx
        self._position = position
        self._piece: _Piece | None = None
        self._framer: LineFramer | None = None
        self._stream: ByteStream | None = None
        self._lines = b""  # whole lines, read but not all decoded
        self._lines_base = 0
        self._decoded = 0
        self._line: int | None = None  # the number of the next line to be decoded, where it is known

    async def read(self, n: int) -> list[Any] | EndOfSplit:
        """The next `n` records; fewer at the end of a piece."""
        piece = self._piece
        while piece is None or piece.given == len(piece.records):
            if self._decoded == len(self._lines) and not await self._read_lines():
                return END
            piece = self._piece = self._next_piece()
        records = piece.records[piece.given : piece.given + n]
        piece.given += len(records)
        return records

    def position(self) -> int | None:
        """Where the first line not yet returned begins."""
        return self._position if self._piece is None else self._piece.position()

    async def close(self) -> None:
        """Nothing to release: no file stays open between reads."""

    async def _read_lines(self) -> bool:
        """Reads the next whole lines; False at the end of the split."""
        try:
            first = b""
            if self._framer is None or self._stream is None:
                self._stream, self._framer, first = await self._enter()
            framer = self._framer
            base = framer.offset if self._piece is None else self._piece.end
            raw = framer.feed(first) if first and not framer.done else b""
            while not raw and not framer.done:
                block = await self._stream.read()
                raw = framer.feed(block) if block else framer.finish()
        except LostInputError as error:
            if not self._ctx.skip_lost_input:
                raise
            self._ctx.log(f"source {self._ctx.uid!r}: skipped lost input: {error}")
            return False
        except LineTooLongError as error:
            raise BadRecordError(
                f"source {self._ctx.uid!r} cannot read {self._part.path}: {error}; is it a text file?"
            ) from None
        self._lines, self._lines_base, self._decoded = raw, base, 0
        return bool(raw)

    def _next_piece(self) -> _Piece:
        """Decodes about _PIECE bytes of the lines that were read."""
        assert self._framer is not None
        first = self._decoded
        self._decoded = self._lines.find(b"\n", first + _PIECE) + 1 or len(self._lines)
        raw = self._lines[first : self._decoded]
        base = self._lines_base + first
        # The last line may have got a newline that is not in the file.
        end = min(base + len(raw), self._framer.offset)
        try:
            piece = _Piece(base, end, raw, self._format.decode(raw))
            lines = len(piece.records)
        except (ValueError, RecursionError):
            piece = self._decode_line_by_line(base, end, raw)
            lines = raw.count(b"\n")
        if self._line is not None:
            self._line += lines
        return piece

    async def _enter(self) -> tuple[ByteStream, LineFramer, bytes]:
        """Goes to where the first line begins; also gives the bytes from there on that were read already."""
        part = self._part
        end = None if part.compression else part.end
        start = part.start if self._position is None else self._position
        if start == 0:
            self._line = 1
            stream = self._open_stream(0)
            head = await stream.read()
            if head.startswith(_BYTE_ORDER_MARK):
                return stream, LineFramer(len(_BYTE_ORDER_MARK), end), head[len(_BYTE_ORDER_MARK) :]
            return stream, LineFramer(0, end), head
        stream = self._open_stream(start - 1)
        offset = start - 1
        if part.compression:
            offset, head = await self._pass_over(stream, start - 1)
        else:
            head = await stream.read()
        if self._position is not None and not head.startswith(b"\n"):
            if len(head) == 1:
                head += await stream.read()
            if len(head) > 1:  # else the position is the end of a text without a last newline
                self._refuse_moved_line(start)
        while True:
            newline = head.find(b"\n")
            if newline >= 0:
                return stream, LineFramer(offset + newline + 1, end), head[newline + 1 :]
            offset += len(head)
            if not head or (end is not None and offset >= end):
                return stream, LineFramer(offset, offset), b""
            head = await stream.read()

    def _open_stream(self, offset: int) -> ByteStream:
        part = self._part
        if part.compression:
            return CompressedStream(self._ctx.disk, part.path, part.compression, part.size)
        return PlainStream(self._ctx.disk, part.path, offset, part.end, part.size)

    async def _pass_over(self, stream: ByteStream, count: int) -> tuple[int, bytes]:
        """Reads a compressed stream up to `count`: there is no jumping. Gives the offset and the bytes after it."""
        offset = 0
        while block := await stream.read():
            if offset + len(block) > count:
                return count, block[count - offset :]
            offset += len(block)
        raise LostInputError(
            f"cannot continue reading {self._part.path} at position {count + 1}: it has only {offset} bytes of text now;"
            " restore the file, or pass --skip-lost-input to go on without the rest"
        )

    def _refuse_moved_line(self, start: int) -> None:
        text = (
            f"cannot continue reading {self._part.path} at position {start}: no line begins there, so the file is not"
            " the one it was; restore the file, or pass --skip-lost-input to go on at the next line"
        )
        if not self._ctx.skip_lost_input:
            raise LostInputError(text)
        self._ctx.log(f"source {self._ctx.uid!r}: {text}")

    def _decode_line_by_line(self, base: int, end: int, raw: bytes) -> _Piece:
        records: list[Any] = []
        offsets: list[int] = []
        bad = _BadLines(self._ctx.uid, self._part.path, self._format.name)
        offset = base
        for number, line in enumerate(raw.split(b"\n")[:-1], self._line or 0):
            try:
                found = self._format.decode_line(line)
            except ValueError as error:
                bad.add(number if self._line is not None else None, offset, error)
                if not self._skip_bad:
                    raise BadRecordError(f'{bad.text()}; mend the line, or use on_error="skip"') from error
                found = []
            records += found
            offsets += [offset] * len(found)
            offset += len(line) + 1
        bad.report(self._ctx.metrics, self._ctx.log)
        return _Piece(base, end, raw, records, offsets)


class _BadLines:
    """The bad lines of one piece, so that a file full of them makes one log line per piece."""

    def __init__(self, uid: str, path: str, format_name: str) -> None:
        self._uid = uid
        self._path = path
        self._format = format_name
        self._count = 0
        self._first = ""

    def add(self, number: int | None, offset: int, error: ValueError) -> None:
        self._count += 1
        if self._count == 1:
            which = f"line {number}" if number is not None else "a line"
            unknown = "" if number is not None else " (its number is not known, as reading did not begin at line 1)"
            what = f"is not {_expected(self._format)}: {error}"
            self._first = f"{which} at byte offset {offset} {what}{unknown}"

    def text(self) -> str:
        return f"source {self._uid!r} cannot read {self._path}: {self._first}"

    def report(self, metrics: dict[str, int], log: Callable[[str], None]) -> None:
        if self._count:
            metrics["lines_skipped"] = metrics.get("lines_skipped", 0) + self._count
            log(f"skipped {self._count} bad line(s), the first: {self.text()}")


def _expected(format_name: str) -> str:
    return "JSON" if format_name == "jsonl" else "UTF-8 text"


async def open_reader(
    part: FileRange, line_format: LineFormat, skip_bad: bool, position: int | None, ctx: ConnectorContext
) -> FileReader | EmptyReader:
    """A reader at `position`, after a look whether the file still has what the job was promised.

    Raises LostInputError when the file is gone, has become shorter, or no line begins at the position any more.
    """
    if position is not None and not part.compression and position >= part.end:
        return EmptyReader(position)
    stat = await ctx.disk.stat(part.path)
    seen = _what_is_wrong(stat, part)
    if seen:
        text = (
            f"cannot read {part.path} from position {part.start if position is None else position}: {seen}, but it had"
            f" {part.size} bytes when the job listed it; restore the file, or pass --skip-lost-input to go on without"
        )
        if not ctx.skip_lost_input:
            raise LostInputError(text)
        ctx.log(f"source {ctx.uid!r}: {text}")
        if stat is None or stat.is_dir or stat.is_other or (position or part.start) >= stat.size:
            return EmptyReader(position)
        part = replace(part, end=min(part.end, stat.size), size=stat.size)
    elif position is not None and stat is not None and stat.size == part.size and stat.mtime_ms != part.mtime_ms:
        ctx.log(f"source {ctx.uid!r}: {part.path} was changed since the job listed it; going on at byte {position}")
    return FileReader(part, line_format, skip_bad, ctx, position)


def _what_is_wrong(stat: FileStat | None, part: FileRange) -> str:
    """Why the file cannot be the one that was listed; "" when it may be."""
    if stat is None:
        return "the file is gone"
    if stat.is_dir or stat.is_other:
        return "it is a folder now" if stat.is_dir else "it is no regular file now"
    return f"it ends at byte {stat.size} now" if stat.size < part.size else ""


class EmptyReader:
    """A split with nothing more to read."""

    def __init__(self, position: int | None) -> None:
        self._position = position

    async def read(self, n: int) -> list[Any] | EndOfSplit:
        """Always the end."""
        return END

    def position(self) -> int | None:
        """The position it was opened at."""
        return self._position

    async def close(self) -> None:
        """Nothing to release."""
