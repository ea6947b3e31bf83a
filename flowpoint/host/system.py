"""The real world behind `host.base.Host`: this machine, seen from one process. Small and boring on purpose.

Two pools of threads: disk operations have their own, so that blocking calls of users and clients never hold them up.
The parts are `links`, `disk`, `processes` and `heartbeat`; here they are put together.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from random import Random, SystemRandom
from typing import Any, TypeVar

from flowpoint.host import heartbeat, links, processes, short_folder
from flowpoint.host.base import Disk, Link
from flowpoint.host.disk import SystemDisk
from flowpoint.host.strangers import Strangers

T = TypeVar("T")

DISK_THREADS = 4
BLOCKING_THREADS = 32


class SystemHost:
    """This process's door to the machine. `run_dir` is the private folder for sockets; it is made when needed."""

    def __init__(self, name: str, run_dir: str) -> None:
        self.name = name
        self.random: Random = SystemRandom()
        self.pid = os.getpid()
        # Several workers in one process have numbers in place of pids: only this tells a copy from what it was made of.
        self._made_in = self.pid
        self.start_time = processes.start_time_of(self.pid)
        self._run_dir = run_dir
        self._has_short_dir = False
        self._links: set[links.SystemLink] = set()
        self._listeners: set[links.SystemListener] = set()
        self._strangers = Strangers(_tell_stranger, time.monotonic)
        self._disk_threads = ThreadPoolExecutor(DISK_THREADS, "disk")
        self._threads = ThreadPoolExecutor(BLOCKING_THREADS, "blocking")
        self.disk: Disk = SystemDisk(self._disk_threads)

    def wall_ms(self) -> int:
        """See `host.base.Host`."""
        return time.time_ns() // 1_000_000

    def new_id(self) -> str:
        """See `host.base.Host`."""
        return secrets.token_hex(8)

    def socket_address(self, name: str) -> str:
        """See `host.base.Host`. Falls back to the job's `short_folder` when `run_dir` is too long."""
        address = short_folder.address_for(self._run_dir, name)
        self._has_short_dir |= os.path.dirname(address) != os.path.normpath(self._run_dir)
        return address

    async def listen(self, address: str, on_link: Callable[[Link], None]) -> links.SystemListener:
        """See `host.base.Host`. A socket file that a dead process left is replaced, a live one is refused (OSError)."""
        return await links.listen(address, self._links, self._listeners, on_link, self._strangers)

    async def connect(self, address: str) -> links.SystemLink:
        """See `host.base.Host`."""
        return await links.connect(address, self._links)

    @property
    def open_links(self) -> frozenset[links.SystemLink]:
        """The links of this process whose sockets are open."""
        return frozenset(self._links)

    async def run_blocking(self, fn: Callable[..., T], *args: Any) -> T:
        """See `host.base.Host`."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(fn, *args))

    async def start_process(self, role: str, args: Sequence[str], log_path: str | None) -> processes.SystemProcess:
        """See `host.base.Host`. The child calls `processes.die_with_parent` first of all."""
        return await processes.start_process(processes.module_of(role), args, log_path)

    def end_copy(self) -> None:
        """See `host.base.Host`."""
        if os.getpid() != self._made_in:
            processes.end_copy(self.name)

    async def kill_stale(self, pid: int, start_time: float) -> bool:
        """See `host.base.Host`."""
        return await self.run_blocking(processes.kill_stale, pid, start_time)

    def start_heartbeat(self, address: str, frame: bytes, interval: float) -> Callable[[], None]:
        """See `host.base.Host`."""
        return heartbeat.start_heartbeat(address, frame, interval)

    async def close(self, timeout: float = 2.0) -> None:
        """End in an orderly way: send what closed links still hold, for `timeout` seconds at most, and cut the rest.

        Called last in a main. A blocking call that hangs is left behind; the interpreter would wait for it at its end,
        so a main that must end whatever happens leaves by `os._exit`.
        """
        for listener in list(self._listeners):
            listener.close()
        gone = [link.gone for link in self._links]
        for link in list(self._links):
            link.close()
        if gone:
            await asyncio.wait(gone, timeout=timeout)
            for link in list(self._links):
                link.abort()
            await asyncio.wait(gone)
        # A loop may close sockets in its next turn only.
        await asyncio.sleep(0)
        self._disk_threads.shutdown(wait=False)
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._has_short_dir:
            # Others of this job may have sockets in it: then the last one of them removes it.
            with suppress(OSError):
                os.rmdir(short_folder.path_for(self._run_dir))


def _tell_stranger(line: str) -> None:
    """Where the loop tells what belongs to nobody: on stderr, as a line."""
    asyncio.get_running_loop().call_exception_handler({"message": line})
