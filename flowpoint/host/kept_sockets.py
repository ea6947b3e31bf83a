"""A Unix socket at which a process can be reached as long as it serves there, also when somebody removes the socket's file.

Whatever tidies temporary folders takes sockets that nobody has touched for days, and a person may remove a job's folder.
Who is connected notices nothing; but a worker that starts from then on could not join its job, and no command reach it. So
the file is looked at every `LOOK_SECONDS`, and made again, with its folder, when it is gone.

Invariants: a socket file is 0600 before anybody can connect to it. One that a dead process left is replaced, one at which
somebody else answers is left alone.
Not here: what is said over a connection (`links`, `launch.http`).
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

LOOK_SECONDS: Final = 0.5
"""Soon enough for a worker that is tried again after it could not join."""

Serve = Callable[[socket.socket], Awaitable[asyncio.AbstractServer]]
"""Begins to accept connections at a socket that is bound, and not listening yet."""


class KeptSocket:
    """A socket that is served. Get it from `serve_at`."""

    def __init__(self, address: str, serve: Serve, server: asyncio.AbstractServer) -> None:
        self.address = address
        self._serve = serve
        self._server = server
        self._inode = _inode(address)
        self._keeping = asyncio.create_task(self._keep(), name=f"keep {address}")

    def close(self) -> None:
        """Accept nothing any more, and remove the file. Connections that are there stay."""
        self._keeping.cancel()
        self._server.close()
        # The path may have a new owner by now; that one's socket is not ours to remove.
        if _inode(self.address) == self._inode:
            os.unlink(self.address)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if _inode(self.address) != self._inode:
                # What cannot be done now is tried again; who cannot connect meanwhile tells it.
                with suppress(OSError):
                    await self._serve_again()

    async def _serve_again(self) -> None:
        os.makedirs(os.path.dirname(self.address), 0o700, exist_ok=True)
        server = await _bound(self.address, self._serve)
        self._server.close()
        self._server, self._inode = server, _inode(self.address)


async def serve_at(address: str, serve: Serve) -> KeptSocket:
    """Bind a socket, private to the user, and serve there.

    Raises:
        OSError: somebody listens there already (EADDRINUSE), or the folder cannot be written.
    """
    return KeptSocket(address, serve, await _bound(address, serve))


async def _bound(address: str, serve: Serve) -> asyncio.AbstractServer:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(address)
        sock.bind(address)
        os.chmod(address, 0o600)
        sock.setblocking(False)
        return await serve(sock)
    except BaseException:
        sock.close()
        raise


def _inode(address: str) -> int:
    """Which file is at a path; 0 when there is none, or nobody can tell."""
    try:
        return os.stat(address).st_ino
    except OSError:
        return 0


def _remove_stale(address: str) -> None:
    """Remove a socket file that no process serves any more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        outcome = probe.connect_ex(address)
    if outcome == errno.ENOENT:
        return
    if outcome != errno.ECONNREFUSED or not stat.S_ISSOCK(os.stat(address).st_mode):
        raise OSError(errno.EADDRINUSE, "another process listens there, or it is no socket", address)
    os.unlink(address)
