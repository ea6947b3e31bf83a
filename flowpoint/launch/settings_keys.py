"""Every configuration key: its name, and how a value of it is read and judged.

A parser takes what TOML, a Job's config, the environment or the shell holds and returns the value for
`model.settings`. It raises ValueError with the words for what it wanted, or NotSupportedError for a value that is right
but not built yet.

Invariant: the keys are exactly the fields of `model.settings.Settings` (a test compares them).

Not here: defaults (`model.settings`), where values come from and which one wins (`launch.config`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from flowpoint.launch.quantities import parse_duration, parse_size
from flowpoint.model.key_groups import MAX_PARALLELISM_LIMIT

LOG_BACKUPS_MAX: Final = 1000

Value = str | int | float | bool
V = TypeVar("V", bound=Value)
Parser = Callable[[object], V]


CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "checkpoint.incremental": ("true", "false"),
    "checkpoint.mode": ("exactly_once", "at_least_once"),
    "checkpoint.unaligned": ("true", "false"),
    "restart.strategy": ("exponential", "fixed", "failure_rate", "none"),
    "state.backend": ("rocksdb", "heap"),
}
"""The keys that take one of few words."""


class NotSupportedError(ValueError):
    """A value that FlowPoint does not support yet; the text says what to use."""


def _count(least: int, most: int | None = None) -> Parser[int]:
    upper = f" at most {most}" if most is not None else ""
    wanted = f"a whole number, at least {least}{' and' if upper else ''}{upper}"

    def parse(value: object) -> int:
        if isinstance(value, str):
            number = int(value) if value.strip().isascii() and value.strip().isdecimal() else None
        else:
            number = value if isinstance(value, int) and not isinstance(value, bool) else None
        if number is None or number < least or (most is not None and number > most):
            raise ValueError(wanted)
        return number

    return parse


def _number(least: float, most: float = math.inf) -> Parser[float]:
    wanted = f"a number, at least {least}" + ("" if math.isinf(most) else f" and at most {most}")

    def parse(value: object) -> float:
        try:
            number = float(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else math.nan
        except ValueError:
            number = math.nan
        if not least <= number <= most or math.isinf(number):
            raise ValueError(wanted)
        return number

    return parse


def _flag(value: object) -> bool:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in words:
        return words[value.strip().lower()]
    raise ValueError("true or false")


def _choice(key: str) -> Parser[str]:
    words = CHOICES[key]

    def parse(value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise ValueError(" or ".join(words))

    return parse


def _positive_duration(value: object) -> float:
    seconds = parse_duration(value)
    if seconds == 0:
        raise ValueError('a duration longer than 0, such as "10s"')
    return seconds


def _storage(value: object) -> str:
    """A folder, as a path or file:// address; "" for the one under the home; "memory" for the coordinator's."""
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("a folder, as a path or a file:// address, or memory")
    scheme = value.partition("://")[0] if "://" in value else ""
    if scheme and scheme != "file":
        raise NotSupportedError("use a folder, as a path or a file:// address, or memory")
    if scheme and not value.startswith("file:///"):
        raise ValueError("a file:// address with an absolute path, such as file:///var/checkpoints")
    return value


def _only(parse: Parser[V], supported: V, advice: str) -> Parser[V]:
    def parse_supported(value: object) -> V:
        result = parse(value)
        if result != supported:
            raise NotSupportedError(advice)
        return result

    return parse_supported


PARSERS: Final[Mapping[str, Parser[Value]]] = {
    "parallelism": _count(0, MAX_PARALLELISM_LIMIT),
    "max_parallelism": _count(1, MAX_PARALLELISM_LIMIT),
    "workers": _count(0, MAX_PARALLELISM_LIMIT),
    "buffer_timeout": parse_duration,
    "batch_size": _count(1),
    "checkpoint.interval": parse_duration,
    "checkpoint.timeout": _positive_duration,
    "checkpoint.max_concurrent": _count(1),
    "checkpoint.tolerable_failures": _count(0),
    "checkpoint.min_pause": parse_duration,
    "checkpoint.mode": _choice("checkpoint.mode"),
    "checkpoint.unaligned": _flag,
    "checkpoint.aligned_timeout": parse_duration,
    "checkpoint.retained": _count(1),
    "checkpoint.storage": _storage,
    "checkpoint.incremental": _flag,
    "checkpoint.memory_limit": parse_size,
    "state.backend": _choice("state.backend"),
    "state.cache_bytes": parse_size,
    "restart.strategy": _choice("restart.strategy"),
    "restart.delay": parse_duration,
    "restart.factor": _number(1),
    "restart.delay_max": parse_duration,
    "restart.jitter": _number(0, 1),
    "restart.attempts": _count(0),
    "restart.window": _positive_duration,
    "heartbeat.interval": _positive_duration,
    "heartbeat.timeout": _positive_duration,
    "log.max_bytes": parse_size,
    "log.backups": _count(1, LOG_BACKUPS_MAX),
}
