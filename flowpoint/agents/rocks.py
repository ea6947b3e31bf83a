"""The saver on a local RocksDB: one process, fast."""

from __future__ import annotations

import os
from typing import Any, Final, Self, Unpack

from flowpoint.agents.core import Sizes
from flowpoint.agents.opening import SaverOptions, core_on
from flowpoint.agents.rocks_kv import RocksKv
from flowpoint.agents.saver import CoreSaver
from flowpoint.agents.values import Leaves

SIZES: Final = Sizes(changed=4096, kept=1024, written=4096, leaves=Leaves(elements=8, alone=1024))
"""An entry of its own costs next to nothing here, so that only what is short stands in the envelope."""


class RocksSaver(CoreSaver):
    """Keeps the threads of a graph in a folder of this machine, for one process at a time.

    Example:
        with RocksSaver("memory", types=types_of(builder)) as saver:
            graph = builder.compile(checkpointer=saver)
            graph.invoke({"question": "..."}, {"configurable": {"thread_id": "user-7"}})
    """

    def __init__(
        self, path: str | os.PathLike[str], *, read_only: bool = False, **options: Unpack[SaverOptions]
    ) -> None:
        """Open the store, which need not exist yet.

        Args:
            path: the folder.
            read_only: open beside the process that writes; there must be a store.
            options: see `SaverOptions`.

        Raises:
            StoreInUseError: another process has it open for writing.
            UsageError: there is no store, and it is to be read.
        """
        super().__init__(core_on(RocksKv(path, read_only=read_only), SIZES, alone=not read_only, **options))

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> Self:
        """A saver for a path, which may begin with `rocks://`; a context manager like every saver."""
        return cls(conn_string.removeprefix("rocks://"), **options)
