"""By what values of a type can be told from those of another, and what else a look at a schema says of its values.

A *head* is the name of a class, of a plain type or of a container: what the type of a value shows without looking into it.

Not here: what may become what (`conversion.py`).
"""

from __future__ import annotations

from typing import Any, Final

from flowpoint.codec.raw import RawEnum, RawObject, bare_name
from flowpoint.state.schema import CLASSES, Form, TypeSchema

MADE_OF: Final[dict[Form, type]] = {
    Form.LIST: list,
    Form.SET: set,
    Form.FROZENSET: frozenset,
    Form.TUPLE: tuple,
    Form.TUPLE_OF: tuple,
    Form.DICT: dict,
    Form.FIELDS: dict,
}


def members(schema: TypeSchema) -> tuple[TypeSchema, ...]:
    """The members of a union; of any other type itself."""
    return schema.args if schema.form is Form.UNION else (schema,)


def head_of(schema: TypeSchema) -> str:
    """The head of all values of a type."""
    made_of = MADE_OF.get(schema.form)
    return schema.name if made_of is None else made_of.__name__


def head_of_value(value: Any) -> str:
    """The head of a value, as it is stored or as it is in the job."""
    if value is None:
        return "None"
    if type(value) is RawObject or type(value) is RawEnum:
        return bare_name(value.name)
    return type(value).__qualname__


def looks_above(schema: TypeSchema) -> bool:
    """Whether a type means a record that it stands in, which may have changed."""
    inner = (*schema.args, *(each.type for each in schema.fields))
    return schema.form is Form.ABOVE or any(map(looks_above, inner))


def has_classes(schema: TypeSchema) -> bool:
    """Whether values may hold instances, which are stored as something else."""
    inner = (*schema.args, *(each.type for each in schema.fields))
    return schema.form in CLASSES or schema.form in (Form.ANY, Form.ENUM) or any(map(has_classes, inner))
