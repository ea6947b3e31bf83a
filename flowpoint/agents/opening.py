"""Opening a saver: what it takes beside its path, and the core that these options make.

Not here: where a saver keeps its entries (`rocks`, `folder`).
"""

from __future__ import annotations

import itertools
import os
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Self, TypedDict, Unpack, get_args

from flowpoint.agents.appending import World
from flowpoint.agents.conflicts import Event, OnConflict
from flowpoint.agents.core import SaverCore, Sizes
from flowpoint.agents.encryption import AesGcmSealer
from flowpoint.agents.kv import Kv
from flowpoint.agents.reading import Upgrade
from flowpoint.agents.saver import CoreSaver
from flowpoint.agents.serde import StrictSerde
from flowpoint.errors import ConfigError


class SaverOptions(TypedDict, total=False):
    """The arguments of every saver beside its path, by keyword."""

    types: Iterable[Any]
    """Classes that values may be of, beside the plain ones; `types_of(builder)` collects them."""
    schema: Upgrade | None
    """How checkpoints of older code become those of today's, `Schema.of(builder, ...)`."""
    on_conflict: OnConflict
    """What to do when two runs of one thread meet. "branch" (the default) keeps both histories, the head stays with the
    first; "raise" refuses the second with `ConcurrentRunError`."""
    keys: Mapping[str, bytes] | None
    """Encrypt with AES-GCM: key ids to keys of 16, 24 or 32 bytes; the first is used for new values."""
    on_event: Callable[[Event], None] | None
    """Called with every conflict, late write and note, beside the log. It holds nobody up but the run it is about, and
    what it raises is logged: it cannot undo what happened."""


class LocalSaver(CoreSaver, ABC):
    """A saver on a folder of this machine: how its kinds are opened. Use `RocksSaver` or `FolderSaver`."""

    scheme: ClassVar[str]
    """What the path of `from_conn_string` may begin with, followed by `://`."""
    sizes: ClassVar[Sizes]
    keeps_others_out: ClassVar[bool]
    """Whether no other process writes to the store while this one has it open for writing."""

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
            read_only: only look, beside who writes; there must be a store.

        Raises:
            ConfigError: an option cannot be used.
            StoreInUseError: another process has it open for writing, and keeps others out.
            UsageError: there is no store, and it is to be read; or the folder is a store of another kind.
            StorageError: the folder cannot be made or opened.
        """
        super().__init__(
            core_on(
                self._store(path, read_only=read_only),
                self.sizes,
                alone=self.keeps_others_out and not read_only,
                types=types,
                schema=schema,
                on_conflict=on_conflict,
                keys=keys,
                on_event=on_event,
            )
        )

    @staticmethod
    @abstractmethod
    def _store(path: str | os.PathLike[str], *, read_only: bool) -> Kv:
        """The entries of a folder."""

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> Self:
        """A saver for a path, which may begin with its kind's scheme; a context manager like every saver."""
        return cls(conn_string.removeprefix(f"{cls.scheme}://"), **options)


def core_on(kv: Kv, sizes: Sizes, *, alone: bool, **options: Unpack[SaverOptions]) -> SaverCore:
    """The core of a saver with these options. `alone`: no other process writes to the store meanwhile.

    Raises:
        ConfigError: an option cannot be used; the store is closed again.
    """
    keys, on_conflict = options.get("keys"), options.get("on_conflict", "branch")
    try:
        if on_conflict not in get_args(OnConflict):
            raise ConfigError(
                f"cannot use on_conflict={on_conflict!r}; it is one of {', '.join(map(repr, get_args(OnConflict)))}"
            )
        return SaverCore(
            kv,
            StrictSerde(options.get("types", ())),
            system_world(),
            sizes,
            sealer=None if keys is None else AesGcmSealer(keys),
            schema=options.get("schema"),
            on_conflict=on_conflict,
            on_event=options.get("on_event"),
            alone=alone,
        )
    except BaseException:
        # Nobody has a saver to close, and others would be told that this process has the store open.
        kv.close()
        raise


def system_world() -> World:
    """The clock of this machine, and names that nobody else gives to a commit."""
    begun, numbers = secrets.token_bytes(8), itertools.count()
    return World(lambda: time.time_ns() // 1_000_000, lambda: begun + next(numbers).to_bytes(6, "big"))
