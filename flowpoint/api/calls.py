"""An author's call of a stream's method, for messages: where it stands, and what to say of a method that is not there.

Not here: what the methods do (`stream.py`, `connected.py`).
"""

from __future__ import annotations

import os
import sys

_OWN_MODULES = "flowpoint.api."


def call_place() -> str:
    """Where the author's code called into FlowPoint, as "file:line"."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OWN_MODULES):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def refuse_unless(others: tuple[type, ...], stream: object, attribute: str) -> None:
    """Raise the usual error for an attribute that streams of other kinds do not have either."""
    if attribute.startswith("_") or not any(hasattr(other, attribute) for other in others):
        text = f"{type(stream).__name__!r} object has no attribute {attribute!r}"
        raise AttributeError(text, name=attribute, obj=stream)
