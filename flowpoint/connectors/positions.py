"""The positions that a split can have, checked when a reader is opened.

A position comes from a snapshot, in which a person may have changed it (`flowpoint edit --position`). One outside of its
split would read what belongs to another split, or nothing for ever.

Not here: whether the input is still what it was (each source looks at that itself).
"""

from __future__ import annotations

from typing import Any

from flowpoint.errors import IncompatibleStateError
from flowpoint.runtime.contracts import ConnectorContext


def check_position(position: Any, split: str, first: int, last: int | None, ctx: ConnectorContext) -> None:
    """Refuse a position outside of `first` to `last` (None: no upper end is known). None as a position is the start.

    Raises:
        IncompatibleStateError: it is no whole number in that range.
    """
    if position is None:
        return
    is_number = isinstance(position, int) and not isinstance(position, bool)
    if is_number and first <= position and (last is None or position <= last):
        return
    wanted = f"{first} or more" if last is None else f"between {first} and {last}"
    raise IncompatibleStateError(
        f"source {ctx.uid!r} cannot read split {split!r} on from position {position!r}: it must be a whole number {wanted};"
        f" start from a snapshot with another one, as `flowpoint edit --position {ctx.uid}/{split}=...` makes it"
    )
