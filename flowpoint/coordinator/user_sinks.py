"""Calling a user's sink in the coordinator: whatever it raises becomes an error that names it, and is a failed attempt.

A sink is the author's code, also here: what it raises is never a bug of the coordinator, which would end by it. Text
that differs between two runs of the same failure (addresses) is left out: the restart policy recognises an error that
comes again by its message.

Not here: sinks in workers (`runtime.failures`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from flowpoint.errors import FlowPointError, InternalError, TransientError, UserCodeError

_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")


@contextmanager
def naming_sink(uid: str, doing: str) -> Iterator[None]:
    """What a sink raises in this block, with the sink named.

    Errors of ours stay what they are; trouble of the surroundings (OSError) may go away; the rest is the author's.

    Args:
        doing: such as "begin()".
    """
    try:
        yield
    except InternalError:
        raise
    except FlowPointError as error:
        error.operator = error.operator or uid
        raise
    except Exception as error:  # a user's sink may raise anything
        kind = TransientError if isinstance(error, OSError) else UserCodeError
        said = _ADDRESS.sub("", str(error))
        named = kind(f"sink '{uid}': {doing} failed: {type(error).__name__}: {said}")
        named.operator = uid
        raise named from error
