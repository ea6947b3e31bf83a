"""The saver on a folder: many processes of one machine at once."""

from __future__ import annotations

import os
from typing import Final

from flowpoint.agents.core import Sizes
from flowpoint.agents.folder_kv import FolderKv
from flowpoint.agents.kv import Kv
from flowpoint.agents.opening import LocalSaver
from flowpoint.agents.values import Leaves

SIZES: Final = Sizes(changed=64_000, kept=64_000, written=64_000, leaves=Leaves(elements=64, alone=16_000))
"""An entry of its own is a file and two syncs here, so that only what is long stands apart."""


class FolderSaver(LocalSaver):
    """Keeps the threads of a graph in a folder of this machine, for as many processes as there are.

    Example:
        saver = FolderSaver("memory", types=types_of(builder), on_conflict="raise")
        graph = builder.compile(checkpointer=saver)
        invoke_with_retry(graph, {"question": "..."}, {"configurable": {"thread_id": "user-7"}})
    """

    scheme = "folder"
    sizes = SIZES
    keeps_others_out = False
    reads_wait = True
    writes_wait = True

    @staticmethod
    def _store(path: str | os.PathLike[str], *, read_only: bool) -> Kv:
        return FolderKv(path, read_only=read_only)
