"""Copy what counts of a state file into another storage, block by block and undecoded.

Blocks are copied as they are stored, with their checksums proved on the way, and get a new index: so a copy costs what
reading and writing its bytes costs, and has only those blocks that hold key groups of its subtask.

Invariant: nothing is copied that its checksum does not prove.

Not here: what is in blocks (`state.file_format`), copies of whole files (`writer.save_file`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from xxhash import xxh3_64

from flowpoint.codec.values import Codec
from flowpoint.errors import SnapshotError, StorageError
from flowpoint.model.manifest import SEAL, StateFile
from flowpoint.snapshot.reader import OpenedFiles, open_files
from flowpoint.snapshot.storage import SLICE_BYTES, Storage
from flowpoint.state.file_builder import FileBuilder
from flowpoint.state.file_format import FileReader


async def copy_state(source: Storage, file: StateFile, target: Storage, name: str) -> StateFile:
    """Copy what counts of a file to `name` in another storage.

    Raises:
        SnapshotError: the file is missing or damaged.
        StorageError: it cannot be read, or the copy not be written.
    """
    opened = await open_files(source, [file])
    try:
        copy = _Copy(source, file, opened)
        if not await target.put_if_absent(name, copy.slices()):
            raise StorageError(f"cannot write {name}: it exists already; each write needs a new name")
    finally:
        opened.close()
    extra = {**file.extra, SEAL: copy.seal}
    return StateFile(name, file.kind, copy.size, copy.checksum, copy.entries, file.groups, extra)


class _Copy:
    """The bytes of one copy, and what they came to."""

    def __init__(self, source: Storage, file: StateFile, opened: OpenedFiles) -> None:
        [(_, data)] = opened.files
        self._source = source
        self._file = file
        self._reader = FileReader(file.path, data, file.bytes, file.extra.get(SEAL, ""))
        placed = self._reader.placed
        self._builder = FileBuilder(Codec(), placed.max_parallelism if placed is not None else 0)
        self._digest = xxh3_64()
        self.size = 0

    async def slices(self) -> AsyncIterator[bytes]:
        """The copy in slices."""
        yield self._counted(self._builder.header())
        for span in self._reader.spans(self._file.groups, SLICE_BYTES):
            try:
                data = await self._source.get(self._file.path, span.offset, span.size)
            except FileNotFoundError as error:
                raise SnapshotError(
                    f"cannot copy the state file {self._file.path}: it was removed meanwhile; let nothing else write there"
                ) from error
            blocks = (self._reader.raw_block(span, one, data) for one in span.refs)
            yield self._counted(b"".join(map(self._builder.copied_block, blocks)))
        yield self._counted(self._builder.footer())

    def _counted(self, data: bytes) -> bytes:
        self._digest.update(data)
        self.size += len(data)
        return data

    @property
    def checksum(self) -> str:
        return self._digest.hexdigest()

    @property
    def entries(self) -> int:
        return self._builder.entries

    @property
    def seal(self) -> str:
        return self._builder.seal
