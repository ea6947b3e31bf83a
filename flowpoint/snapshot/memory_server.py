"""The coordinator's end of storage in its memory: answers what workers ask, over a private socket.

Each question is answered within one turn of the loop and moves one piece at most, so that the coordinator is never held
up. A worker has one link; what it had begun to write ends with that link, so a worker that dies leaves nothing.

Not here: the limit and the objects (`memory`), how a worker asks (`memory_client`).
"""

from __future__ import annotations

from flowpoint.errors import InternalError, LinkLost, StorageError, StorageLimit
from flowpoint.host.base import Host, Link, Listener
from flowpoint.snapshot.memory import MemoryObjects, Unpublished
from flowpoint.transport import storage_calls as calls


class MemoryServer:
    """Lets workers at the objects."""

    def __init__(self, host: Host, objects: MemoryObjects) -> None:
        self._host = host
        self._objects = objects
        self._listener: Listener | None = None
        self._sessions: set[_Session] = set()

    async def listen(self) -> str:
        """Open the socket; its address."""
        address = self._host.socket_address(f"s-{self._host.new_id()[:8]}")
        self._listener = await self._host.listen(address, self._on_link)
        return self._listener.address

    def _on_link(self, link: Link) -> None:
        _Session(link, self._objects, self._sessions).begin()

    def close(self) -> None:
        """Close the socket and all links; what is half-written is forgotten."""
        if self._listener is not None:
            self._listener.close()
        for session in list(self._sessions):
            session.close()


class _Session:
    """One worker's link. `sessions` is the set of those that are open."""

    def __init__(self, link: Link, objects: MemoryObjects, sessions: set[_Session]) -> None:
        self._link = link
        self._objects = objects
        self._sessions = sessions
        self._begun: dict[int, Unpublished] = {}
        self._is_known = False  # it has asked something

    def begin(self) -> None:
        self._sessions.add(self)
        self._link.start(self._on_frame, self._on_lost)

    def close(self) -> None:
        self._link.close()
        self._on_lost("")

    def _on_lost(self, _reason: str) -> None:
        self._sessions.discard(self)
        for unpublished in self._begun.values():
            unpublished.discard()
        self._begun.clear()

    def _on_frame(self, frame: bytes) -> None:
        question = self._read(frame)
        answer: calls.Answer | None
        try:
            answer = self._answer(question)
        except FileNotFoundError:
            answer = calls.Missing(question.call)
        except StorageError as error:
            self._give_up(question.call)
            answer = calls.Refused(question.call, str(error), is_limit=isinstance(error, StorageLimit))
        if answer is not None:
            self._link.send_nowait(calls.encode_answer(answer))

    def _read(self, frame: bytes) -> calls.Question:
        try:
            question = calls.decode_question(frame)
        except InternalError as error:
            if self._is_known:
                raise
            raise LinkLost(f"no worker of this job is at its other end ({error})") from None
        self._is_known = True
        return question

    def _answer(self, question: calls.Question) -> calls.Answer | None:
        call = question.call
        match question:
            case calls.Begin(_, name):
                unpublished = self._objects.begin(name)
                if unpublished is not None:
                    self._begun[call] = unpublished
                return calls.Done(call, unpublished is not None)
            case calls.Append(_, piece):
                self._written(call).append(piece)
                return calls.Done(call, yes=True)
            case calls.Publish():
                unpublished = self._written(call)
                del self._begun[call]
                return calls.Done(call, unpublished.publish())
            case calls.GiveUp():
                self._give_up(call)
                return None
            case calls.Get(_, name, offset, size):
                return calls.Got(call, self._objects.read(name, offset, min(size, calls.PIECE_BYTES)))
            case calls.ListNames(_, prefix):
                return calls.Listed(call, self._objects.listed(prefix))
            case calls.Delete(_, doomed):
                return calls.Done(call, self._objects.remove(*doomed))

    def _written(self, call: int) -> Unpublished:
        """What was begun under a number; its beginning may have gone with a link that broke."""
        unpublished = self._begun.get(call)
        if unpublished is None:
            raise StorageError("cannot go on writing to the coordinator's memory: the link broke meanwhile; try again")
        return unpublished

    def _give_up(self, call: int) -> None:
        unpublished = self._begun.pop(call, None)
        if unpublished is not None:
            unpublished.discard()
