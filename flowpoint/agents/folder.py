"""The saver on a folder: many processes of one machine at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Self

from flowpoint.agents.core import Event, OnConflict, SaverCore, Sizes
from flowpoint.agents.encryption import AesGcmSealer
from flowpoint.agents.folder_kv import FolderKv
from flowpoint.agents.reading import Upgrade
from flowpoint.agents.saver import CoreSaver, system_world
from flowpoint.agents.serde import StrictSerde
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
    ) -> None:
        """Open the store, which need not exist yet. The arguments are those of `RocksSaver`."""
        super().__init__(
            SaverCore(
                FolderKv(path),
                StrictSerde(types),
                system_world(),
                SIZES,
                sealer=None if keys is None else AesGcmSealer(keys),
                schema=schema,
                on_conflict=on_conflict,
                on_event=on_event,
            )
        )

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> Self:
        """A saver for a path, which may begin with `folder://`; a context manager like every saver."""
        return cls(conn_string.removeprefix("folder://"), **options)
