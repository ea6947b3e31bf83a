"""Dataclasses to bytes and back: the class's name and its fields, as msgpack.

One `FieldsCodec` knows a closed set of flat dataclasses. Nothing else can be decoded, so no byte that comes in can name
a class of its own choice. Both ends run the same version of FlowPoint; whatever does not fit is a bug and says so.

Not here: users' values (`codec`), which keep their Python types; these fields hold only what msgpack carries.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Generic, TypeVar, get_origin, get_type_hints

import msgpack

from flowpoint.errors import InternalError
from flowpoint.model.texts import with_article

T = TypeVar("T")

_ANY_STR = "surrogatepass"
"""A path that is not UTF-8 has lone surrogates in Python, and so may any text of a user: they come out as they went in."""


class FieldsCodec(Generic[T]):
    """Encodes and decodes the given dataclasses. Immutable once built."""

    def __init__(self, types: Iterable[type[T]]) -> None:
        self._types = {tp.__name__: tp for tp in types}
        self._fields = {name: _field_types(tp) for name, tp in self._types.items()}

    def encode(self, value: T) -> bytes:
        """As bytes.

        Raises:
            InternalError: it is none of the known classes, or a field holds what msgpack cannot carry.
        """
        name = type(value).__name__
        if self._types.get(name) is not type(value):
            raise InternalError(f"cannot encode {value!r}: {name} is not among {', '.join(self._types)}")
        content = {field: getattr(value, field) for field in self._fields[name]}
        try:
            data: bytes = msgpack.packb([name, content], unicode_errors=_ANY_STR)
        except (TypeError, ValueError, OverflowError) as error:
            raise InternalError(f"cannot encode {value!r}: {error}") from error
        return data

    def decode(self, data: bytes) -> T:
        """The reverse of `encode`.

        Raises:
            InternalError: the bytes are damaged, name an unknown class, or its fields do not fit.
        """
        try:
            name, content = msgpack.unpackb(data, unicode_errors=_ANY_STR)
            expected = self._fields[name]
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise InternalError(f"cannot decode {len(data)} bytes {data[:40]!r}...: {error}") from error
        except KeyError as error:
            raise InternalError(f"cannot decode a {error}: it is not among {', '.join(self._types)}") from error
        _check(name, content, expected)
        return self._types[name](**content)


def _field_types(tp: type) -> dict[str, tuple[type, ...]]:
    """Field name -> the classes that its value may have."""
    hints = get_type_hints(tp)
    return {field.name: _accepted(hints[field.name]) for field in fields(tp)}


def _accepted(hint: Any) -> tuple[type, ...]:
    concrete = get_origin(hint) or hint
    # msgpack carries a float that is a whole number as a float, but callers may well have put an int there.
    return (float, int) if concrete is float else (concrete,)


def _check(name: str, content: Any, expected: dict[str, tuple[type, ...]]) -> None:
    if not isinstance(content, dict) or content.keys() != expected.keys():
        seen = sorted(map(str, content)) if isinstance(content, dict) else content
        raise InternalError(f"cannot decode {with_article(name)}: its fields are {sorted(expected)}, but {seen} came")
    for field, types in expected.items():
        # By exact class: a bool is an int to isinstance.
        if type(content[field]) not in types:
            raise InternalError(
                f"cannot decode {with_article(name)}: {field} is {content[field]!r}, not of type {types[0].__name__}"
            )
