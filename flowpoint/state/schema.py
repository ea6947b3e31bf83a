"""The schema of a state's type: what its values are made of, as data that a manifest can hold.

A schema says more than a type and less than a class: its form, the names and types of its fields, and which of them have
a default. It is compared with the schema that the job has now (`conversion.py`), so a snapshot never needs the classes it
was made with, and nothing is imported because a file names it.

    "int"                                                                  a plain type, by its name
    null                                                                   anything
    {"form": "list", "of": ["int"]}                                        a container, a union
    {"form": "dataclass", "name": "Account", "fields": [["total", "int", true]]}    [name, type, has a default]
    {"form": "enum", "name": "Color", "members": ["RED"]}
    {"form": "above", "name": "Tree"}                                      the record of this name that it stands in

Invariants: two schemas are equal when values of one are values of the other as they are; whether a field has a default
does not count. `from_data(to_data(s)) == s`.

Not here: how annotations become schemas (`annotations.py`), what may become what (`conversion.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from flowpoint.errors import SnapshotError


class Form(StrEnum):
    """How a type is made. The values stand in manifests: never to change."""

    ANY = "any"
    PLAIN = "plain"
    LIST = "list"
    SET = "set"
    FROZENSET = "frozenset"
    TUPLE = "tuple"
    TUPLE_OF = "tuple_of"
    DICT = "dict"
    UNION = "union"
    ENUM = "enum"
    DATACLASS = "dataclass"
    NAMED_TUPLE = "named_tuple"
    STRUCT = "struct"
    MODEL = "model"
    FIELDS = "fields"
    ABOVE = "above"


CLASSES: Final = frozenset({Form.DATACLASS, Form.NAMED_TUPLE, Form.STRUCT, Form.MODEL})
"""Records that are instances of a class. FIELDS is a dict whose keys are known."""

RECORDS: Final = CLASSES | {Form.FIELDS}


@dataclass(frozen=True, slots=True)
class FieldSchema:
    """One field of a record.

    default: makes the value of a field that older values do not have; only in schemas that come from code. None where
        there is no default, and where a key of a dict may simply be missing (`has_default` tells these apart).
    """

    name: str
    type: TypeSchema
    has_default: bool = field(default=False, compare=False)
    default: Callable[[], Any] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TypeSchema:
    """A type.

    name: of a plain type, class or Enum.
    args: what a container holds (a dict: keys and values), or the members of a union, in a fixed order.
    members: the names of an Enum's members, sorted.
    cls: the class itself; only in schemas that come from code.
    """

    form: Form
    name: str = ""
    args: tuple[TypeSchema, ...] = ()
    fields: tuple[FieldSchema, ...] = ()
    members: tuple[str, ...] = ()
    cls: type | None = field(default=None, compare=False, repr=False)

    @property
    def is_any(self) -> bool:
        """Whether nothing is known of the values."""
        return self.form is Form.ANY

    def field_named(self, name: str) -> FieldSchema | None:
        """One of its fields."""
        return next((each for each in self.fields if each.name == name), None)

    def to_data(self) -> Any:
        """As JSON-able data."""
        if self.form is Form.ANY:
            return None
        if self.form is Form.PLAIN:
            return self.name
        data: dict[str, Any] = {"form": self.form.value}
        if self.name:
            data["name"] = self.name
        if self.args:
            data["of"] = [arg.to_data() for arg in self.args]
        if self.form in RECORDS:
            data["fields"] = [[each.name, each.type.to_data(), each.has_default] for each in self.fields]
        if self.form is Form.ENUM:
            data["members"] = list(self.members)
        return data

    @classmethod
    def from_data(cls, data: Any) -> TypeSchema:
        """The reverse of `to_data`.

        Raises:
            SnapshotError: it is no schema.
        """
        try:
            return _from_data(data)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise SnapshotError(
                f"cannot read the schema of a state: {data!r:.200} is none ({error}); use another snapshot"
            ) from error

    def __str__(self) -> str:
        return _text(self)


ANY: Final = TypeSchema(Form.ANY)


def plain(name: str) -> TypeSchema:
    """The schema of a plain type.

    Example:
        >>> str(TypeSchema(Form.LIST, args=(plain("int"),)))
        'list[int]'
    """
    return TypeSchema(Form.PLAIN, name)


def _from_data(data: Any) -> TypeSchema:
    if data is None:
        return ANY
    if isinstance(data, str):
        return plain(data)
    return TypeSchema(
        form=Form(data["form"]),
        name=str(data.get("name", "")),
        args=tuple(_from_data(arg) for arg in data.get("of", ())),
        fields=tuple(
            FieldSchema(str(name), _from_data(kind), bool(has_default))
            for name, kind, has_default in data.get("fields", ())
        ),
        members=tuple(str(member) for member in data.get("members", ())),
    )


def _text(schema: TypeSchema) -> str:
    """A type as an author would write it."""
    args = ", ".join(map(_text, schema.args))
    match schema.form:
        case Form.ANY:
            return "anything"
        case Form.PLAIN | Form.ENUM | Form.ABOVE:
            return schema.name
        case Form.UNION:
            return " | ".join(map(_text, schema.args))
        case Form.TUPLE:
            return f"tuple[{args or '()'}]"
        case Form.TUPLE_OF:
            return f"tuple[{args}, ...]"
        case Form.LIST | Form.SET | Form.FROZENSET | Form.DICT:
            return f"{schema.form.value}[{args}]"
        case _ if schema.name:
            return schema.name
        case _:
            return "{" + ", ".join(f"{each.name}: {each.type}" for each in schema.fields) + "}"
