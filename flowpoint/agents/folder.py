"""The saver on a folder: many processes of one machine at once."""

from __future__ import annotations

import os
from typing import Any, Final, Self, Unpack

from flowpoint.agents.core import Sizes
from flowpoint.agents.folder_kv import FolderKv
from flowpoint.agents.opening import SaverOptions, core_on
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
        self, path: str | os.PathLike[str], *, read_only: bool = False, **options: Unpack[SaverOptions]
    ) -> None:
        """Open the store, which need not exist yet.

        Args:
            path: the folder.
            read_only: only look, and need no right to write there; there must be a store.
            options: see `SaverOptions`.

        Raises:
            UsageError: there is no store, and it is to be read.
        """
        super().__init__(core_on(FolderKv(path, read_only=read_only), SIZES, alone=False, **options))

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> Self:
        """A saver for a path, which may begin with `folder://`; a context manager like every saver."""
        return cls(conn_string.removeprefix("folder://"), **options)
