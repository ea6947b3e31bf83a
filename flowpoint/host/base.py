"""The one door to the world, as interfaces. `host.system` is the real world, `sim.world` the simulated one.

Monotonic time is the event loop's (`asyncio.get_running_loop().time()`, seconds); wall time is `Host.wall_ms`.
Nothing above this room opens a file, a socket or a process, reads a clock or draws a random number by itself, except
user code and RocksDB's own files.

Invariants every implementation keeps (the conformance suite checks both):
- A `Link` carries whole frames, in order, each at most once; `on_lost` is called exactly once, after the last frame.
- `Disk.create` + `DiskFile.sync` + `Disk.sync_dir` make a file durable; before that a crash may lose or tear it.
- `Disk.link` and exclusive `create` fail with FileExistsError when the target is there: the compare-and-swap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

ORPHANED_EXIT_CODE = 75
"""How a child ends whose parent is gone, as far as it knows."""

COPY_EXIT_CODE = 76
"""How a copy of a process ends that came out of user code (`Host.end_copy`)."""


class Link(Protocol):
    """One end of an ordered connection that carries frames (bytes)."""

    def start(self, on_frame: Callable[[bytes], None], on_lost: Callable[[str], None]) -> None:
        """Begin delivery. Frames that came before are kept until now.

        An exception in `on_frame` closes the link and is reported; LinkLost: the other end does not speak the protocol.
        """

    def send_nowait(self, *parts: bytes) -> None:
        """Queue one frame, given in parts that are joined. Silently dropped once the link is closing or lost."""

    def close(self) -> None:
        """Send what is queued, then close. No callback comes after this returns, on this side."""

    @property
    def queued_bytes(self) -> int:
        """Bytes accepted by `send_nowait` that the other side's kernel has not taken yet."""


class Listener(Protocol):
    """A bound address."""

    @property
    def address(self) -> str:
        """What others pass to `connect`."""

    def close(self) -> None:
        """Stop accepting and remove the address. Links already made stay."""


class DiskFile(Protocol):
    """A file open for sequential writing."""

    async def write(self, data: bytes) -> None:
        """Append all of `data` or, when it raises OSError (ENOSPC, EIO), nothing: the same write may be tried again."""

    async def sync(self) -> None:
        """Make all that was written durable. After a failed sync the file counts as lost (rule 23)."""

    async def close(self) -> None:
        """Close without syncing. Idempotent."""


class OpenFile(Protocol):
    """A file open for reading. It stays readable when all its names are removed."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`, at once: for state that is read in the midst of a batch. OSError (EIO)."""

    def close(self) -> None:
        """Let go of it. Idempotent."""


@dataclass(frozen=True, slots=True)
class FileStat:
    """Facts about a path. `mtime_ms` is epoch ms. `is_other`: neither a regular file nor a folder, such as a FIFO."""

    size: int
    mtime_ms: int
    is_dir: bool
    is_other: bool = False


class Disk(Protocol):
    """The local file system. Paths are absolute strings.

    New folders are 0700 and new files 0600. What a person is meant to read (`private=False`) gets the user's umask.
    """

    async def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """Bytes from `offset`, at most `size` (-1: all). FileNotFoundError when missing."""

    async def open(self, path: str) -> OpenFile:
        """A file to read piece by piece. FileNotFoundError when missing."""

    async def create(self, path: str, *, private: bool = True) -> DiskFile:
        """A new, empty file. FileExistsError when there is one."""

    async def link(self, source: str, target: str) -> None:
        """A second name for a file. FileExistsError when `target` exists."""

    async def rename(self, source: str, target: str) -> None:
        """Rename, replacing `target`. FileNotFoundError when `source` is missing."""

    async def remove(self, path: str) -> bool:
        """Remove a file; False when it was not there."""

    async def remove_tree(self, path: str) -> None:
        """Remove a folder and all in it; nothing happens when it is not there."""

    async def list(self, path: str) -> list[str]:
        """The names in a folder, sorted; empty when the folder does not exist."""

    async def stat(self, path: str) -> FileStat | None:
        """Facts about a path, or None when nothing is there."""

    async def is_link(self, path: str) -> bool:
        """Whether a symbolic link is at this path, which every other call follows."""

    async def make_dirs(self, path: str, *, private: bool = True) -> None:
        """Make a folder and its parents (durable: parents are synced)."""

    async def sync_dir(self, path: str) -> None:
        """Make the names in a folder durable."""


class Process(Protocol):
    """A child process that this host started."""

    @property
    def pid(self) -> int: ...

    @property
    def start_time(self) -> float:
        """When it started, as the operating system tells (pid + start time identify a process for ever)."""

    async def wait(self) -> int:
        """Its exit status (negative: the signal). May be awaited by several."""

    def kill(self) -> None:
        """SIGKILL. Nothing happens when it has ended."""


class Host(Protocol):
    """Everything a coordinator or worker may touch of the outside world."""

    name: str
    random: Random
    disk: Disk
    pid: int
    start_time: float

    def wall_ms(self) -> int:
        """Wall-clock time, epoch ms. May jump."""

    def new_id(self) -> str:
        """16 random hex digits, unique for ever."""

    def socket_address(self, name: str) -> str:
        """An address for `listen`, private to the user, short enough for a Unix socket."""

    async def listen(self, address: str, on_link: Callable[[Link], None]) -> Listener:
        """Accept links at an address; `on_link` is called for each and must call `Link.start` soon."""

    async def connect(self, address: str) -> Link:
        """Open a link. Raises LinkLost when nobody listens there."""

    async def run_blocking(self, fn: Callable[..., T], *args: Any) -> T:
        """Run a blocking function beside the loop (a thread; in simulation inline after a delay)."""

    async def start_process(self, role: str, args: Sequence[str], log_path: str | None) -> Process:
        """Start a child that dies with this process. `role` is "worker"; its output goes to `log_path`, if that can be.

        Raises:
            WorkerLost: the system refuses another process.
        """

    def end_copy(self) -> None:
        """End this process at once if it is not the one the host was made in: a function has called `os.fork` and returned
        twice. The copy has the same links and files open; it must not get to use them. Cheap: asked for every batch.
        """

    async def kill_stale(self, pid: int, start_time: float) -> bool:
        """SIGKILL a process of an earlier run and wait until it is gone; False when that very process is not there."""

    def start_heartbeat(self, address: str, frame: bytes, interval: float) -> Callable[[], None]:
        """Send `frame` to `address` every `interval` seconds, independent of the loop (own thread, own link).

        Ends this process at once, with ORPHANED_EXIT_CODE, when that link is lost. Returns the function that stops it.
        """
