"""The saver on a local RocksDB: one process, fast."""

from __future__ import annotations

import os
from typing import Final

from flowpoint.agents.core import Sizes
from flowpoint.agents.kv import Kv
from flowpoint.agents.opening import LocalSaver
from flowpoint.agents.rocks_kv import RocksKv
from flowpoint.agents.values import Leaves

SIZES: Final = Sizes(changed=4096, kept=1024, written=4096, leaves=Leaves(elements=8, alone=1024))
"""An entry of its own costs next to nothing here, so that only what is short stands in the envelope."""


class RocksSaver(LocalSaver):
    """Keeps the threads of a graph in a folder of this machine, for one process at a time.

    Example:
        with RocksSaver("memory", types=types_of(builder)) as saver:
            graph = builder.compile(checkpointer=saver)
            graph.invoke({"question": "..."}, {"configurable": {"thread_id": "user-7"}})
    """

    scheme = "rocks"
    sizes = SIZES
    keeps_others_out = True

    @staticmethod
    def _store(path: str | os.PathLike[str], *, read_only: bool) -> Kv:
        return RocksKv(path, read_only=read_only)
