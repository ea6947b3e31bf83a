"""The saver on a folder: many processes of one machine at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Self

from flowpoint.agents.conflicts import Event, OnConflict
from flowpoint.agents.core import Sizes
from flowpoint.agents.folder_kv import FolderKv
from flowpoint.agents.opening import core_on
from flowpoint.agents.reading import Upgrade
from flowpoint.agents.saver import CoreSaver
from flowpoint.agents.values import Leaves

SIZES: Final = Sizes(changed=64_000, kept=64_000, written=64_000, leaves=Leaves(elements=64, alone=16_000))
"""An entry of its own is a file and two syncs here, so that only what is long stands apart."""


class FolderSaver(CoreSaver):
    """Keeps the threads of a graph in a folder of this machine, for as many processes as there are.

    Example:
        saver = FolderSaver("memory", types=types_of(builder), on_conflict="raise")
        graph = builder.compile(checkpointer=saver)
        invoke_with_retry(graph, {"question": "..."}, {"configurable": {"thread_id": "user-7"}})
    """

    reads_wait = True
    writes_wait = True

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
            read_only: only look, and need no right to write there; there must be a store.

        Raises:
            ConfigError: an option cannot be used.
            UsageError: there is no store, and it is to be read.
        """
        kv = FolderKv(path, read_only=read_only)
        super().__init__(
            core_on(
                kv,
                SIZES,
                alone=False,
                types=types,
                schema=schema,
                on_conflict=on_conflict,
                keys=keys,
                on_event=on_event,
            )
        )

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> Self:
        """A saver for a path, which may begin with `folder://`; a context manager like every saver."""
        return cls(conn_string.removeprefix("folder://"), **options)
