"""Links over Unix sockets: `host.base.Link` and `Listener` for the real world.

A link is an `asyncio.Protocol`: the loop calls it with bytes, it calls its owner with frames; no task, no stream object,
no wait. Before `start` at most one chunk of bytes is read and its frames are kept; then reading pauses, so that a link
nobody started holds a bounded amount and the kernel holds the rest back.

Closing is a handshake: what is queued is sent, then the end of the stream, and what still comes in is read and thrown
away until the other end closes too. Closing the socket at once would break the other end's writes, and with them its
reading of our last frames.

Invariants: `on_lost` is called exactly once, after the last frame, unless this side closed; after `close` or `on_lost`
no callback comes.
Not here: the socket that links come in at (`kept_sockets`), retries, reconnecting, what frames mean.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast

from flowpoint.errors import InternalError, LinkLost
from flowpoint.host.base import Link
from flowpoint.host.framing import FRAME_BYTES_MAX, FrameDecoder, pack_length
from flowpoint.host.kept_sockets import KeptSocket, serve_at
from flowpoint.host.strangers import Strangers

JOIN_BYTES_MAX = 64 * 1024
"""Frames up to this size are joined and sent in one write: the copy is cheaper than a gathering system call."""

LINGER_SECONDS = 10.0
"""How long a closed link waits for the other end to take what is queued and to close too."""

BACKLOG = 512


class SystemLink(asyncio.Protocol):
    """One end of a connection.

    Args:
        links: those that are open, kept by their host.
        on_link: takes this one, when it came in at a listener.
        on_stranger: hears why it is closed, when it came in and its other end does not speak the protocol.
    """

    def __init__(
        self,
        links: set[SystemLink],
        on_link: Callable[[Link], None] | None = None,
        on_stranger: Callable[[str], None] | None = None,
    ) -> None:
        self._links = links
        self._on_link = on_link
        self._on_stranger = on_stranger
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._on_frame: Callable[[bytes], None] | None = None
        self._on_lost: Callable[[str], None] | None = None
        self._kept: list[bytes] = []
        self._delivering = False
        self._silent = False
        self._lost: str | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # ------------------------------------------------------------------ what the owner calls

    def start(self, on_frame: Callable[[bytes], None], on_lost: Callable[[str], None]) -> None:
        """See `host.base.Link`. The first callback comes in a later turn of the loop, never from inside this call."""
        if self._on_frame is not None:
            raise InternalError("a link was started twice")
        self._on_frame, self._on_lost = on_frame, on_lost
        asyncio.get_running_loop().call_soon(self._begin)

    def send_nowait(self, *parts: bytes) -> None:
        """See `host.base.Link`."""
        transport = self._transport
        if self._silent or transport is None or transport.is_closing():
            return
        length = sum(map(len, parts))
        if length > FRAME_BYTES_MAX:
            raise InternalError(f"a frame of {length} bytes was to be sent; the limit is {FRAME_BYTES_MAX}")
        if length <= JOIN_BYTES_MAX:
            transport.write(b"".join((pack_length(length), *parts)))
        else:
            transport.writelines((pack_length(length), *parts))

    def close(self) -> None:
        """See `host.base.Link`."""
        if self._silent:
            return
        self._fall_silent()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write_eof()
        transport.resume_reading()
        self._linger = asyncio.get_running_loop().call_later(LINGER_SECONDS, transport.abort)

    @property
    def queued_bytes(self) -> int:
        """See `host.base.Link`."""
        transport = self._transport
        return 0 if transport is None or transport.is_closing() else transport.get_write_buffer_size()

    def abort(self) -> None:
        """Close without sending what is queued."""
        self._fall_silent()
        if self._transport is not None:
            self._transport.abort()

    @property
    def gone(self) -> asyncio.Future[None]:
        """Done when the socket is closed. After `close`: when the other side has taken everything and closed too."""
        return self._gone

    # ------------------------------------------------------------------ what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, since uvloop's transports do not derive from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._links.add(self)
        if self._on_link is not None:
            self._on_link(self)

    def data_received(self, data: bytes) -> None:
        if self._silent:
            return
        try:
            frames = self._decoder.feed(data)
        except LinkLost as error:
            self._refuse(str(error))
            return
        if self._delivering:
            self._deliver(frames)
        else:
            self._kept += frames
            assert self._transport is not None
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._links.discard(self)
        self._gone.set_result(None)
        if self._linger is not None:
            self._linger.cancel()
        if self._silent:
            return
        torn = "" if self._decoder.is_between_frames else " in the middle of a frame"
        self._end(f"the other end closed the link{torn}" if exc is None else f"the link broke{torn}: {exc}")

    # ------------------------------------------------------------------ inside

    def _begin(self) -> None:
        """The owner is ready: hand over what was kept, then go on as the bytes come."""
        if self._silent:
            return
        self._delivering = True
        kept, self._kept = self._kept, []
        self._deliver(kept)
        if self._lost is not None:
            self._tell_lost(self._lost)
        elif self._transport is not None and not self._silent:
            self._transport.resume_reading()

    def _deliver(self, frames: list[bytes]) -> None:
        on_frame = self._on_frame
        assert on_frame is not None
        for frame in frames:
            if self._silent:
                return
            try:
                on_frame(frame)
            except LinkLost as error:
                self._refuse(str(error))
            except Exception as error:  # noqa: BLE001  whatever it is, it is reported and ends this link only
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a frame could not be handled; its link is closed", "exception": error}
                )
                self._fail(f"a frame could not be handled: {type(error).__name__}: {error}")

    def _refuse(self, reason: str) -> None:
        """The other end does not speak the protocol."""
        if self._on_stranger is not None:
            self._on_stranger(reason)
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        """Break the link from this side."""
        if self._transport is not None:
            self._transport.abort()
        self._end(reason)

    def _end(self, reason: str) -> None:
        """Tell the owner, now or as soon as it has started the link. The first reason is the true one."""
        if self._lost is None:
            self._lost = reason
        if self._delivering:
            self._tell_lost(self._lost)

    def _tell_lost(self, reason: str) -> None:
        on_lost = self._on_lost
        if self._silent or on_lost is None:
            return
        self._fall_silent()
        on_lost(reason)

    def _fall_silent(self) -> None:
        """No callback from here on. The callbacks are dropped, so that a dead link keeps nobody alive."""
        self._silent = True
        self._kept.clear()
        self._on_frame = self._on_lost = self._on_link = None


class SystemListener:
    """A bound Unix socket. `listeners` is the set of those that are open, kept by their host."""

    def __init__(self, listeners: set[SystemListener], kept: KeptSocket) -> None:
        self._listeners = listeners
        listeners.add(self)
        self._kept = kept

    @property
    def address(self) -> str:
        """See `host.base.Listener`."""
        return self._kept.address

    def close(self) -> None:
        """See `host.base.Listener`."""
        self._listeners.discard(self)
        self._kept.close()


async def listen(
    address: str,
    links: set[SystemLink],
    listeners: set[SystemListener],
    on_link: Callable[[Link], None],
    strangers: Strangers,
) -> SystemListener:
    """Bind a Unix socket, private to the user, and call `on_link` for every link that comes in.

    A socket file that a dead process left is replaced; one at which somebody answers is refused.

    Raises:
        OSError: somebody listens there already (EADDRINUSE), or the folder cannot be written.
    """
    on_stranger = partial(strangers.note, address)

    def serve(sock: socket.socket) -> Awaitable[asyncio.AbstractServer]:
        loop = asyncio.get_running_loop()
        return loop.create_unix_server(lambda: SystemLink(links, on_link, on_stranger), sock=sock, backlog=BACKLOG)

    return SystemListener(listeners, await serve_at(address, serve))


async def connect(address: str, links: set[SystemLink]) -> SystemLink:
    """Open a link to a listener.

    Raises:
        LinkLost: nobody listens at `address`.
    """
    try:
        _, link = await asyncio.get_running_loop().create_unix_connection(lambda: SystemLink(links), address)
    except OSError as error:
        raise LinkLost(
            f"cannot connect to {address}: {error.strerror or error}; the process there has ended"
        ) from error
    return link
