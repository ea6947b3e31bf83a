"""A worker's end of storage in the coordinator's memory: `Storage` over a link to the coordinator.

The link is opened by the first call and again after it broke. A call waits for its answer before it asks on, so that
each object being written or read has one piece under way: a slow coordinator slows down its writers.

Invariant: a call whose link breaks fails with StorageError, and reading back tells whether it was done; an object is
published by one last question, so nothing half-written ever gets its name.
Not here: the objects (`memory`), the answers (`memory_server`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import count

from flowpoint.errors import InternalError, LinkLost, StorageError, StorageLimit
from flowpoint.host.base import Host, Link
from flowpoint.snapshot import names
from flowpoint.snapshot.storage import Chunks, LocalFile, Names, one_by_one
from flowpoint.transport import storage_calls as calls


class CoordinatorStorage:
    """Storage that lies in the coordinator's memory."""

    def __init__(self, host: Host, address: str) -> None:
        """`address` is that of the coordinator's `MemoryServer`."""
        self._host = host
        self._address = address
        self._link: Link | None = None
        self._connecting = asyncio.Lock()
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[calls.Answer]] = {}

    async def put_if_absent(self, name: str, chunks: Chunks) -> bool:
        """See `Storage`. StorageError also when the coordinator's limit is reached."""
        names.require_object(name)
        call = next(self._numbers)
        if not await self._do(calls.Begin(call, name)):
            return False
        try:
            async with aclosing(_in_pieces(chunks)) as pieces:
                async for piece in pieces:
                    await self._do(calls.Append(call, piece))
            return await self._do(calls.Publish(call))
        except (Exception, asyncio.CancelledError):
            if self._link is not None:
                self._link.send_nowait(calls.encode_question(calls.GiveUp(call)))
            raise

    async def get(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        """See `Storage`."""
        names.require_object(name)
        found: list[bytes] = []
        left = size
        while left:
            wanted = calls.PIECE_BYTES if left < 0 else min(left, calls.PIECE_BYTES)
            data = await self._get(name, offset, wanted)
            found.append(data)
            if len(data) < wanted:
                break
            offset += len(data)
            left -= len(data) if left > 0 else 0
        return b"".join(found)

    async def open(self, name: str) -> None:
        """See `Storage`. Nothing is read here without waiting."""
        names.require_object(name)
        await self._get(name, 0, 0)

    async def list(self, prefix: str, *, unfinished: bool = False) -> Names:
        """See `Storage`. Interrupted writers leave nothing."""
        names.require_prefix(prefix)
        if unfinished:
            return []
        answer = await self._ask(calls.ListNames(next(self._numbers), prefix))
        if isinstance(answer, calls.Listed):
            return answer.names
        raise _unexpected(answer)

    async def delete(self, *doomed: str) -> bool:
        """See `Storage`."""
        for name in doomed:
            names.require_inside(name)
        return await self._do(calls.Delete(next(self._numbers), list(doomed)))

    async def adopt(self, local_path: str, name: str) -> bool:
        """See `Storage`. Always a copy."""
        return await self.put_if_absent(name, LocalFile(self._host.disk, local_path))

    def close(self) -> None:
        """See `Storage`."""
        if self._link is not None:
            self._link.close()
            self._on_lost(self._link, "it was closed here")

    # ------------------------------------------------------------------ asking

    async def _do(self, question: calls.Begin | calls.Append | calls.Publish | calls.Delete) -> bool:
        answer = await self._ask(question)
        if isinstance(answer, calls.Done):
            return answer.yes
        raise _unexpected(answer)

    async def _get(self, name: str, offset: int, size: int) -> bytes:
        answer = await self._ask(calls.Get(next(self._numbers), name, offset, size))
        if isinstance(answer, calls.Got):
            return answer.data
        raise _unexpected(answer)

    async def _ask(self, question: calls.Question) -> calls.Answer:
        """Ask and wait for the answer.

        Raises:
            StorageError: it was refused, or the link is lost.
            FileNotFoundError: there is no such object.
        """
        link = await self._connected()
        answer: asyncio.Future[calls.Answer] = asyncio.get_running_loop().create_future()
        self._waiting[question.call] = answer
        try:
            link.send_nowait(calls.encode_question(question))
            given = await answer
        finally:
            del self._waiting[question.call]
        match given:
            case calls.Refused(_, reason, is_limit):
                raise (StorageLimit if is_limit else StorageError)(reason)
            case calls.Missing():
                raise FileNotFoundError(f"no such object in the coordinator's memory, asked for by {question}")
        return given

    async def _connected(self) -> Link:
        async with self._connecting:
            if self._link is None:
                try:
                    link = await self._host.connect(self._address)
                except LinkLost as error:
                    raise StorageError(f"cannot reach the snapshots in the coordinator's memory: {error}") from error
                link.start(self._on_frame, lambda reason: self._on_lost(link, reason))
                self._link = link
            return self._link

    def _on_frame(self, frame: bytes) -> None:
        answer = calls.decode_answer(frame)
        waiting = self._waiting.get(answer.call)
        # Whoever was cancelled waits no longer.
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _on_lost(self, link: Link, reason: str) -> None:
        if link is not self._link:
            return
        self._link = None
        for waiting in self._waiting.values():
            if not waiting.done():
                text = f"the link to the snapshots in the coordinator's memory is lost: {reason}"
                waiting.set_exception(StorageError(text))


async def _in_pieces(chunks: Chunks) -> AsyncGenerator[bytes]:
    """Chunks, those that are too long cut up."""
    async for chunk in one_by_one(chunks):
        for start in range(0, len(chunk), calls.PIECE_BYTES):
            yield chunk[start : start + calls.PIECE_BYTES]


def _unexpected(answer: calls.Answer) -> InternalError:
    return InternalError(f"the coordinator gave the wrong answer about its memory: {type(answer).__name__}")
