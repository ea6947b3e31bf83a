"""A value in a message: short, whatever it is.

Not here: values that stand in a message whole.
"""

from __future__ import annotations

import reprlib
from typing import Final

_REPR: Final = reprlib.Repr()
_REPR.maxother = 100  # of 30 characters the middle is left out, and with it the name of the class


def shortened(value: object) -> str:
    """A value as text short enough for a message; never fails."""
    try:
        text = _REPR.repr(value)
    except Exception as error:  # noqa: BLE001  a __repr__ of the user, or an int of more digits than may be printed
        text = f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"
    return text if len(text) <= 120 else f"{text[:117]}..."
