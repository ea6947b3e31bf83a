"""Writes the parts of one subtask of a FileSink: one part per checkpoint, hidden until the checkpoint commits it.

Batches are encoded in one go and gathered to blocks of `BLOCK` bytes, so that the disk is asked once per block and not
once per batch. A part is created with its first block, so a checkpoint without records makes no file.

`prepare` takes the part off the writer *when it is called*, before anything waits. So the caller may start it, go on
writing (into the next part) and await it later: the sync of the old part runs beside the stream.

Invariants: memory stays under BLOCK and one batch per part. Once a write or sync has failed the writer refuses
everything (rule 23): what is on disk is unknown, and the records before it must be read again.
Not here: publishing and taking back (`files_sink`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any, Final

from flowpoint.connectors.durable_files import naming_errors
from flowpoint.connectors.folder_owner import noticing_loss
from flowpoint.connectors.line_formats import LineFormat, UnwritableError
from flowpoint.connectors.part_names import Part, final_name, hidden_name
from flowpoint.errors import BadRecordError, FlowPointError, StorageError
from flowpoint.host.base import DiskFile
from flowpoint.runtime.contracts import ConnectorContext

BLOCK: Final = 512 * 1024


class _OpenPart:
    """One part while it is written."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.file: DiskFile | None = None
        self.blocks: list[bytes] = []
        self.buffered = 0
        self.records = 0
        self.bytes = 0

    def add(self, encoded: bytes, records: int) -> None:
        self.blocks.append(encoded)
        self.buffered += len(encoded)
        self.bytes += len(encoded)
        self.records += records

    def take_buffer(self) -> bytes:
        block = b"".join(self.blocks)
        self.blocks.clear()
        self.buffered = 0
        return block


class PartWriter:
    """A SinkWriter whose committables are `{"folder", "hidden", "final", "subtask", "checkpoint", "bytes", "records"}`."""

    prepares_beside = True

    def __init__(self, folder: str, line_format: LineFormat, ctx: ConnectorContext) -> None:
        self._folder = folder
        self._format = line_format
        self._ctx = ctx
        self._serial = 0
        self._part: _OpenPart | None = None
        self._unfinished: list[DiskFile] = []
        self._broken = ""
        self._creating: asyncio.Task[DiskFile] | None = None

    async def write(self, batch: list[Any]) -> None:
        """Raises BadRecordError for a value the format cannot hold, StorageError when the disk refuses."""
        if not batch:
            return
        self._refuse_when_broken()
        try:
            encoded = self._format.encode(batch)
        except UnwritableError as error:
            raise BadRecordError(f"sink {self._ctx.uid!r} cannot write {error}") from None
        part = self._part
        if part is None:
            part = self._part = self._new_part()
        part.add(encoded, len(batch))
        if part.buffered >= BLOCK:
            await self._flush(part)

    def prepare(self, checkpoint: int) -> Coroutine[Any, Any, dict[str, Any] | None]:
        """Takes the part off at once; awaiting the result makes it durable and gives its committable."""
        part, self._part = self._part, None
        return self._finish(part, checkpoint)

    async def close(self) -> None:
        """Close what is open. Parts that no checkpoint has taken stay hidden; `clean` of the next attempt removes them."""
        self._part = None
        if self._creating is not None:
            # Whoever waited for it was cancelled; it comes to be all the same.
            await asyncio.wait([self._creating])
            if self._creating.exception() is None:
                self._unfinished.append(self._creating.result())
            self._creating = None
        for file in self._unfinished:
            await file.close()
        self._unfinished.clear()

    async def _finish(self, part: _OpenPart | None, checkpoint: int) -> dict[str, Any] | None:
        self._refuse_when_broken()
        if part is None:
            return None
        await self._flush(part)
        file = part.file
        assert file is not None
        try:
            with naming_errors(f"make {self._path(part)} durable"), noticing_loss(self._folder, self._ctx):
                await file.sync()
                await file.close()
                await self._ctx.disk.sync_dir(self._folder)
        except FlowPointError as error:
            self._broken = str(error)
            raise
        self._unfinished.remove(file)
        ctx = self._ctx
        identity = Part(ctx.uid, ctx.subtask, ctx.attempt, ctx.lineage, checkpoint)
        return {
            "folder": self._folder,
            "hidden": part.name,
            "final": final_name(identity, self._format.suffix),
            "subtask": ctx.subtask,
            "checkpoint": checkpoint,
            "bytes": part.bytes,
            "records": part.records,
        }

    def _new_part(self) -> _OpenPart:
        self._serial += 1
        ctx = self._ctx
        identity = Part(ctx.uid, ctx.subtask, ctx.attempt, ctx.lineage)
        return _OpenPart(hidden_name(identity, self._serial, self._format.suffix))

    async def _flush(self, part: _OpenPart) -> None:
        block = part.take_buffer()
        try:
            with naming_errors(f"write {self._path(part)}"), noticing_loss(self._folder, self._ctx):
                if part.file is None:
                    part.file = await self._create(self._path(part))
                    self._unfinished.append(part.file)
                if block:
                    await part.file.write(block)
        except FlowPointError as error:
            self._broken = str(error)
            raise

    async def _create(self, path: str) -> DiskFile:
        self._creating = asyncio.create_task(self._ctx.disk.create(path, private=False), name=f"create {path}")
        try:
            file = await asyncio.shield(self._creating)
        except Exception:
            self._creating = None
            raise
        self._creating = None
        return file

    def _path(self, part: _OpenPart) -> str:
        return os.path.join(self._folder, part.name)

    def _refuse_when_broken(self) -> None:
        if self._broken:
            raise StorageError(f"sink {self._ctx.uid!r} does not go on after a failed write: {self._broken}")
