"""Turn JSON that a person wrote, or a Python value, into a value of the stored type: the way back from `value_text`.

JSON has fewer types than state, so the stored value says what is meant: where a tuple is stored, an array becomes a
tuple; where a datetime is, ISO text becomes a datetime. What does not fit is refused, never converted as it were close.

Invariants: the result has the exact types of the stored value, all the way down; an object keeps its class and fields.

Not here: what JSON stands in for a key (`key_text`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Final
from uuid import UUID

from flowpoint.codec.raw import RAW, RawArray, RawEnum, RawObject, bare_name
from flowpoint.errors import UsageError
from flowpoint.model.texts import with_article
from flowpoint.snapshot.value_text import text_of, type_of

_FROM_TEXT: Final[dict[type, Callable[[str], Any]]] = {
    bytes: bytes.fromhex,
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    time: time.fromisoformat,
    Decimal: Decimal,
    UUID: UUID,
}
_ARRAYS: Final = frozenset({list, tuple, set, frozenset})
_CONTAINERS: Final = _ARRAYS | {dict, RawObject}
_SAMPLES_MAX: Final = 100


def fit(given: Any, stored: Any) -> Any:
    """The value `given`, from JSON or from Python, as a value like the one that is stored.

    Raises:
        UsageError: it does not fit.

    Example:
        >>> fit([3, "x"], (1, "y"))
        (3, 'x')
    """
    kind = type(stored)
    if stored is None or (type(given) is kind and kind not in _CONTAINERS):
        return given
    if kind is float and type(given) in (int, float):
        return float(given)
    if kind is timedelta and type(given) in (int, float):
        return timedelta(seconds=given)
    if kind in _FROM_TEXT and type(given) is str:
        return _from_text(given, stored)
    if kind in _ARRAYS and type(given) in (list, kind):
        return _fit_array(given, stored)
    if kind is dict and type(given) is dict:
        return _fit_dict(given, stored)
    if isinstance(stored, RawObject) and type(given) in (dict, RawObject):
        return _fit_object(dict(given.items()), stored)
    if isinstance(stored, RawEnum) and type(given) is type(stored.member):
        return RawEnum(stored.name, _member(given, stored))
    raise _misfit(given, stored)


def _from_text(given: str, stored: Any) -> Any:
    try:
        return _FROM_TEXT[type(stored)](given)
    except (ValueError, InvalidOperation) as error:
        raise _misfit(given, stored) from error


def _fit_array(given: Any, stored: Any) -> Any:
    if type(stored) is not tuple:
        try:
            return type(stored)(fit_any(item, stored) for item in given)
        except TypeError as error:  # something in a set that has no hash
            raise _misfit(given, stored) from error
    if len(given) != len(stored):
        raise _misfit(given, stored)
    return tuple(fit(item, like) for item, like in zip(given, stored, strict=True))


def _fit_dict(given: dict[str, Any], stored: dict[Any, Any]) -> dict[Any, Any]:
    known = {key if isinstance(key, str) else text_of(key): key for key in stored}
    fitted: dict[Any, Any] = {}
    for name, item in given.items():
        if name in known:
            fitted[known[name]] = fit(item, stored[known[name]])
        elif all(isinstance(key, str) for key in stored):
            fitted[name] = fit_any(item, stored.values())
        else:
            raise _misfit(given, stored)
    return fitted


def _fit_object(given: dict[str, Any], stored: RawObject) -> RawObject:
    if set(given) != set(stored.fields):
        raise UsageError(
            f"cannot make {with_article(bare_name(stored.name))} of {text_of(given, limit=200)}: it has the fields "
            f"{', '.join(stored.fields)}; give all of them"
        )
    return RawObject(stored.name, stored.fields, tuple(fit(given[name], like) for name, like in stored.items()))


def _member(given: str | int, stored: RawEnum) -> str | int:
    """The name of a member, which may be written with its class."""
    return given.removeprefix(f"{bare_name(stored.name)}.") if isinstance(given, str) else given


def fit_any(given: Any, samples: Iterable[Any]) -> Any:
    """The same where any of several stored values may be the model; without any, JSON is taken as it is.

    Raises:
        UsageError: it fits none of them.
    """
    refusal: UsageError | None = None
    for _, sample in zip(range(_SAMPLES_MAX), samples, strict=False):
        try:
            return fit(given, sample)
        except UsageError as error:
            refusal = refusal or error
    if refusal is not None:
        raise refusal
    return given


def _misfit(given: Any, stored: Any) -> UsageError:
    shown = text_of(given, limit=200), text_of(stored, limit=200)
    said = f"cannot put {shown[0]} where {shown[1]} is stored: it is of type {type_of(given)}"
    if isinstance(stored, RawArray):
        return UsageError(f"{said}, and numpy values cannot be edited here; use a job")
    if isinstance(stored, Enum) or (type(stored) not in _JSON_FORM and not isinstance(stored, RAW)):
        return UsageError(f"{said}, and {type_of(stored)} has no form in JSON; use a job")
    form = _JSON_FORM.get(type(stored), "")
    return UsageError(f"{said}, not {type_of(stored)}{form and f' (write {form})'}")


_JSON_FORM: Final[dict[type, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: 'text in quotes: "..."',
    bytes: "hex digits in quotes",
    datetime: "ISO text in quotes",
    date: "ISO text in quotes",
    time: "ISO text in quotes",
    timedelta: "seconds",
    Decimal: "its digits in quotes",
    UUID: "its digits in quotes",
    list: "an array",
    tuple: "an array of that length",
    set: "an array",
    frozenset: "an array",
    dict: "an object",
    RawObject: "an object of its fields",
    RawEnum: "the name of a member in quotes",
}
