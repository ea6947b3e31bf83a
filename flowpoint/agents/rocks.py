"""The saver on a local RocksDB: one process, fast."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Self

from flowpoint.agents.core import Event, OnConflict, SaverCore, Sizes
from flowpoint.agents.encryption import AesGcmSealer
from flowpoint.agents.reading import Upgrade
from flowpoint.agents.rocks_kv import RocksKv
from flowpoint.agents.saver import CoreSaver, system_world
from flowpoint.agents.serde import StrictSerde
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
            types: classes that values may be of, beside the plain ones; `types_of(builder)` collects them.
            schema: how checkpoints of older code become those of today's, `Schema.of(builder, ...)`.
            on_conflict: what to do when two runs of one thread meet. "branch" keeps both histories, the head stays with
                the first; "raise" refuses the second with `ConcurrentRunError`.
            keys: encrypt with AES-GCM: key ids to keys; the first is used for new values.
            on_event: called with every conflict, late write and note, beside the log.
            read_only: open beside the process that writes.

        Raises:
            StoreInUseError: another process has it open.
        """
        kv = RocksKv(path, read_only=read_only)
        super().__init__(
            SaverCore(
                kv,
                StrictSerde(types),
                system_world(),
                SIZES,
                sealer=None if keys is None else AesGcmSealer(keys),
                schema=schema,
                on_conflict=on_conflict,
                on_event=on_event,
                alone=not read_only,
            )
        )

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> Self:
        """A saver for a path, which may begin with `rocks://`; a context manager like every saver."""
        return cls(conn_string.removeprefix("rocks://"), **options)
