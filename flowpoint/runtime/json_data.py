"""What authors give to be kept in snapshots and sent in messages: positions, splits, committables.

Invariants: what is accepted comes back from JSON and from messages as it was given.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgpack

from flowpoint.errors import BadRecordError
from flowpoint.runtime.failures import shorten

_ADVICE: Final = "use None, bool, int of up to 64 bits, float, str, lists, and dicts with str keys"


def checked_json(value: Any, what: str) -> Any:
    """A copy of `value`, if JSON and messages carry it unchanged. Raises BadRecordError saying what to return instead."""
    try:
        copy = json.loads(json.dumps(value))
        msgpack.packb(copy, unicode_errors="surrogatepass")
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadRecordError(f"{what} is not JSON data ({error}); {_ADVICE}") from error
    if copy != value:
        raise BadRecordError(f"{what} does not survive JSON (saw {shorten(value)}); {_ADVICE}")
    return copy
