"""FileSource: files of lines as an input, listed once and cut so that every subtask has something to read.

The listing (rule 19) is the only place in the connectors that looks at the file system without `Disk`: `Source.splits`
is blocking by contract, runs once in the life of a job and in the coordinator, and what it found is state from then on.
All reading goes through `file_reader`.

Splits are in path order, the ranges of a file one after another. A subtask that reads its splits one after another
therefore sees each file's lines in order.
Not here: bytes, lines, records.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from glob import glob
from itertools import pairwise
from typing import Any, Final

from flowpoint.connectors.file_reader import EmptyReader, FileRange, FileReader, open_reader
from flowpoint.connectors.file_streams import COMPRESSED
from flowpoint.connectors.line_formats import line_format
from flowpoint.connectors.positions import check_position
from flowpoint.errors import PlanError
from flowpoint.runtime.contracts import ConnectorContext, Split

Paths = str | os.PathLike[str]

_SMALLEST_RANGE: Final = 1024 * 1024
_LARGEST_RANGE: Final = 64 * 1024 * 1024
_WANTED_SPLITS: Final = 64


class FileSource:
    """Records from files: a path, a glob (`**` goes into folders), a folder, or a list of these.

    Replayable: after a failure reading goes on at the exact line, so with an exactly-once sink the output is exact.
    A folder means the files in it. Names that begin with a dot are left out, as in a shell. Relative paths are relative
    to the working directory of `run`. Files ending in .gz, .bz2 or .xz are decompressed; each is one split. Other files
    are cut into ranges of 1 to 64 MB. The files are listed once: what is appended or added later is not read.

    Records are str for `lines` (a line ends with a newline; a carriage return before it is removed) and the value that
    the line is in JSON for `jsonl` (blank lines are passed over; NaN is not JSON). The encoding is UTF-8. A bad line
    fails the job with the file, the byte offset and, if it is known, the number of the line (`on_error="fail"`) or is
    counted and logged (`on_error="skip"`).

    >>> FileSource("books/*.txt")
    FileSource('books/*.txt')
    >>> FileSource(["2024.jsonl.gz", "2025.jsonl"], format="jsonl", on_error="skip")
    FileSource(['2024.jsonl.gz', '2025.jsonl'], format='jsonl', on_error='skip')
    """

    guarantee = "replayable: exactly-once"

    def __init__(
        self, paths: Paths | Sequence[Paths], format: str = "lines", on_error: str = "fail", watch: bool = False
    ) -> None:
        """Raises PlanError for a format or option that there is not (yet)."""
        self._paths = (
            (os.fspath(paths),) if isinstance(paths, str | os.PathLike) else tuple(os.fspath(path) for path in paths)
        )
        self._is_list = not isinstance(paths, str | os.PathLike)
        self._folder = os.getcwd()
        self._format = line_format(format, "FileSource")
        if on_error not in ("fail", "skip"):
            raise PlanError(f"FileSource: on_error={on_error!r} is not supported; use 'fail' or 'skip'")
        if watch:
            raise PlanError("FileSource: watch=True is not supported yet; run the job again for new files")
        self._on_error = on_error

    def __repr__(self) -> str:
        paths = repr(list(self._paths)) if self._is_list else repr(self._paths[0])
        options = f", format={self._format.name!r}" if self._format.name != "lines" else ""
        return f"FileSource({paths}{options}{', on_error=' + repr(self._on_error) if self._on_error != 'fail' else ''})"

    def splits(self) -> list[Split]:
        """The files as they are now, in path order. Raises PlanError when there is none, or one cannot be read."""
        files = [(path, os.stat(path)) for path in self._files()]
        wanted = sum(stat.st_size for _, stat in files) // _WANTED_SPLITS
        step = min(max(wanted, _SMALLEST_RANGE), _LARGEST_RANGE)
        return [
            Split(f"{part.path}@{part.start}", asdict(part))
            for path, stat in files
            for part in _ranges(path, stat.st_size, stat.st_mtime_ns // 1_000_000, step)
        ]

    async def open(self, split: Split, position: Any, ctx: ConnectorContext) -> FileReader | EmptyReader:
        """A reader for a range of a file.

        Raises LostInputError when the file is not what it was, IncompatibleStateError for a position outside of the range.
        """
        part = FileRange(**split.data)
        # The last line of a range may reach beyond its end. How much text a compressed file has shows when it is read.
        check_position(position, split.id, part.start, None if part.compression else part.size, ctx)
        return await open_reader(part, self._format, self._on_error == "skip", position, ctx)

    def _files(self) -> list[str]:
        found: set[str] = set()
        for pattern in self._paths:
            matches = [path for path in self._matching(pattern) if not os.path.isdir(path)]
            if not matches:
                raise PlanError(
                    f"FileSource: no file matches {pattern!r} (working directory {self._folder});"
                    " check the path, or start the job in another folder"
                )
            found.update(matches)
        files = sorted(found)
        for path in files:
            _refuse_unreadable(path)
        return files

    def _matching(self, pattern: str) -> Iterable[str]:
        path = os.path.abspath(os.path.join(self._folder, os.path.expanduser(pattern)))
        if os.path.isdir(path):
            return (os.path.join(path, name) for name in os.listdir(path) if not name.startswith("."))
        # A file of exactly that name wins, so that "a[1].txt" needs no escaping.
        return [path] if os.path.lexists(path) else glob(path, recursive=True)


def _refuse_unreadable(path: str) -> None:
    if not os.path.exists(path):
        raise PlanError(f"FileSource: {path} cannot be read: it is a link to nowhere; mend it or leave it out")
    if not os.path.isfile(path):
        raise PlanError(f"FileSource: {path} cannot be read: it is not a regular file; leave it out")
    if not os.access(path, os.R_OK):
        raise PlanError(f"FileSource: {path} cannot be read: permission denied; make it readable or leave it out")
    if path.endswith((".zst", ".zip", ".7z")):
        raise PlanError(f"FileSource: {path} is compressed in a way that is not supported; use .gz, .bz2 or .xz")


def _ranges(path: str, size: int, mtime_ms: int, step: int) -> Iterator[FileRange]:
    compression = next((suffix for suffix in COMPRESSED if path.endswith(suffix)), "")
    if compression or size <= step:
        yield FileRange(path, 0, size, size, mtime_ms, compression)
        return
    # Equal ranges: no small one is left over at the end.
    count = -(-size // step)
    cuts = [size * i // count for i in range(count + 1)]
    for start, end in pairwise(cuts):
        yield FileRange(path, start, end, size, mtime_ms)
