"""The saver on a local RocksDB: one process, fast."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Self

from flowpoint.agents.conflicts import Event, OnConflict
from flowpoint.agents.core import Sizes
from flowpoint.agents.opening import core_on
from flowpoint.agents.reading import Upgrade
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
        self,
        path: str | os.PathLike[str],
        *,
        types: Iterable[Any] = (),
        schema: Upgrade | None = None,
        on_conflict: OnConflict = "branch",
        keys: Mapping[str, bytes] | None = None,
        on_event: Callable[[Event], None] | None = None,
        read_only: bool = False,
    ) -> None:
        """Open the store, which need not exist yet.

        Args:
            path: the folder.
            types: see `SaverOptions`, as for those that follow.
            schema: how checkpoints of older code become those of today's.
            on_conflict: what to do when two runs of one thread meet.
            keys: encrypt with these.
            on_event: called with every conflict, late write and note.
            read_only: open beside the process that writes; there must be a store.

        Raises:
            ConfigError: an option cannot be used.
            StoreInUseError: another process has it open for writing.
            UsageError: there is no store, and it is to be read.
        """
        kv = RocksKv(path, read_only=read_only)
        super().__init__(
            core_on(
                kv,
                SIZES,
                alone=not read_only,
                types=types,
                schema=schema,
                on_conflict=on_conflict,
                keys=keys,
                on_event=on_event,
            )
        )

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> Self:
        """A saver for a path, which may begin with `rocks://`; a context manager like every saver."""
        return cls(conn_string.removeprefix("rocks://"), **options)
