"""What every saver is opened with, and the core that these options make.

Not here: where a saver keeps its entries (`rocks`, `folder`).
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, get_args

from flowpoint.agents.appending import World
from flowpoint.agents.conflicts import Event, OnConflict
from flowpoint.agents.core import SaverCore, Sizes
from flowpoint.agents.encryption import AesGcmSealer
from flowpoint.agents.kv import Kv
from flowpoint.agents.reading import Upgrade
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


def core_on(
    kv: Kv,
    sizes: Sizes,
    *,
    alone: bool,
    types: Iterable[Any] = (),
    schema: Upgrade | None = None,
    on_conflict: OnConflict = "branch",
    keys: Mapping[str, bytes] | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> SaverCore:
    """The core of a saver with these `SaverOptions`. `alone`: no other process writes to the store meanwhile.

    Raises:
        ConfigError: an option cannot be used; the store is closed again.
    """
    try:
        if on_conflict not in get_args(OnConflict):
            raise ConfigError(
                f"cannot use on_conflict={on_conflict!r}; it is one of {', '.join(map(repr, get_args(OnConflict)))}"
            )
        return SaverCore(
            kv,
            StrictSerde(types),
            system_world(),
            sizes,
            sealer=None if keys is None else AesGcmSealer(keys),
            schema=schema,
            on_conflict=on_conflict,
            on_event=on_event,
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
