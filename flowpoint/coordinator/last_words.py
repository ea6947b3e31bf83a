"""What a worker printed last, to be told with its end.

Workers print into the job's log, which also takes the job's events; these begin with their time (`launch.job_log`). A log
that is shorter than it was has been turned over (`host.log_files`): what was printed before may be in the file before.

Not here: the whole of it (`flowpoint logs`).
"""

from __future__ import annotations

import re
from typing import Final

from flowpoint.host.base import Disk

_EVENT: Final = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]+Z ")
LOOKED_AT_BYTES_MAX = 16_384
LINE_CHARACTERS_MAX = 300


class LastWords:
    """The log of one job; None: there is none."""

    def __init__(self, disk: Disk, log_path: str | None) -> None:
        self._disk = disk
        self._path = log_path

    async def size(self) -> int:
        """Its size now: what is printed from now on stands behind that."""
        if self._path is None:
            return 0
        try:
            stat = await self._disk.stat(self._path)
        except OSError:
            # The end of a worker is to be told also when the reason for it cannot be.
            return 0
        return stat.size if stat is not None else 0

    async def _end_of(self, path: str) -> bytes:
        stat = await self._disk.stat(path)
        return await self._read(path, max(0, stat.size - LOOKED_AT_BYTES_MAX)) if stat is not None else b""

    async def _read(self, path: str, offset: int) -> bytes:
        """Not to the end: others may print faster than that comes."""
        return await self._disk.read(path, offset, LOOKED_AT_BYTES_MAX)

    async def since(self, size: int) -> str:
        """The last line that was printed since the log had this size; "" when there is none, or it cannot be read."""
        if self._path is None:
            return ""
        try:
            now = await self.size()
            text = await self._read(self._path, max(size if now >= size else 0, now - LOOKED_AT_BYTES_MAX))
            if now < size:
                text = await self._end_of(f"{self._path}.1") + text
        except OSError:
            return ""
        lines = [line.strip() for line in text.splitlines() if line.strip() and not _EVENT.match(line)]
        return lines[-1].decode(errors="replace")[:LINE_CHARACTERS_MAX] if lines else ""
