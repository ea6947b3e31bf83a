"""What a worker printed last, to be told with its end.

Workers print into the job's log, which also takes the job's events; these begin with their time (`launch.job_log`).

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

    async def since(self, size: int) -> str:
        """The last line that was printed since the log had this size; "" when there is none, or it cannot be read."""
        if self._path is None:
            return ""
        try:
            start = max(size, await self.size() - LOOKED_AT_BYTES_MAX)
            text = await self._disk.read(self._path, start)
        except OSError:
            return ""
        lines = [line.strip() for line in text.splitlines() if line.strip() and not _EVENT.match(line)]
        return lines[-1].decode(errors="replace")[:LINE_CHARACTERS_MAX] if lines else ""
