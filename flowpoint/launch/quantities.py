"""Durations and sizes as people write them: "10s", "250ms", "64MB".

Both raise ValueError whose text says what is wanted; the caller knows which key it was for.
"""

from __future__ import annotations

import math
import re
from typing import Final

DURATION_WANTED: Final = 'a duration: seconds as a number, or text such as "250ms", "10s", "5m", "1h" or "2d"'
SIZE_WANTED: Final = 'a size: bytes as a whole number, or text such as "512KB", "64MB" or "1GB"'

_QUANTITY: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}{ending}": 1024**power for power, letter in enumerate("kmg", 1) for ending in ("", "b", "ib")},
}


def parse_duration(value: object) -> float:
    """Seconds.

    Example:
        >>> parse_duration("250ms"), parse_duration("5m"), parse_duration(2)
        (0.25, 300.0, 2.0)
    """
    if isinstance(value, str):
        number, unit = _split(value, DURATION_WANTED)
        if unit not in _SECONDS:
            raise ValueError(DURATION_WANTED)
        return number / 1000 if unit == "ms" else number * _SECONDS[unit]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise ValueError(DURATION_WANTED)
    return float(value)


def parse_size(value: object) -> int:
    """Bytes. KB, MB and GB are powers of 1024, like KiB, MiB and GiB.

    Example:
        >>> parse_size("64MB"), parse_size("0.5 KiB"), parse_size(10)
        (67108864, 512, 10)
    """
    if isinstance(value, str):
        number, unit = _split(value, SIZE_WANTED)
        if unit not in _BYTES:
            raise ValueError(SIZE_WANTED)
        size = number * _BYTES[unit]
        if not size.is_integer():
            raise ValueError(SIZE_WANTED)
        return int(size)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(SIZE_WANTED)
    return value


def _split(text: str, wanted: str) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(wanted)
    return float(match[1]), match[2].lower()
