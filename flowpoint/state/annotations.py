"""From what an author writes as a type (an annotation, a class, a dict of fields) to its schema.

    int, list[str], dict[str, float], Account | None       as in an annotation
    a dataclass, NamedTuple, pydantic model, msgspec Struct    by its fields; fields of other classes too
    a TypedDict                                            a dict whose keys are known; NotRequired ones may be missing
    {"name": str, "visits": (int, 0)}                      the same, written down in place: a type, or (type, default)

What cannot be resolved or is not known here is "anything": nothing is then checked of it, and nothing converted.

Not here: which classes the codec is told of (`plan.record_types`).
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import is_dataclass
from enum import Enum
from functools import partial
from typing import Any, Final

from flowpoint.codec.registry import PYDANTIC_REST, Shape, annotations_of, shape_of
from flowpoint.errors import PlanError
from flowpoint.state.schema import ANY, FieldSchema, Form, TypeSchema, plain

_CONTAINERS: Final[dict[Any, tuple[Form, int]]] = {
    list: (Form.LIST, 1),
    set: (Form.SET, 1),
    frozenset: (Form.FROZENSET, 1),
    dict: (Form.DICT, 2),
}


def schema_of(annotation: Any) -> TypeSchema:
    """The schema of a type.

    Raises:
        PlanError: it is no type.

    Example:
        >>> str(schema_of(dict[str, int | None]))
        'dict[str, None | int]'
        >>> str(schema_of({"name": str, "visits": (int, 0)}))
        '{name: str, visits: int}'
    """
    if annotation is None:
        return ANY
    if isinstance(annotation, str | int | float | bytes | list | tuple | set):
        raise PlanError(f"cannot use {annotation!r} as the type of a state: write a type, such as int or a dataclass")
    return _schema(annotation, ())


def return_schema(function: object) -> TypeSchema:
    """The schema of what a function returns, as far as it is annotated."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, type):
        return _schema(function, ())
    called = function if isinstance(function, types.FunctionType | types.MethodType) else type(function).__call__
    try:
        hints = typing.get_type_hints(called)
    except Exception:  # noqa: BLE001  resolving runs the user's annotations, which may raise anything
        return ANY
    return _schema(hints["return"], ()) if "return" in hints else ANY


def _schema(annotation: Any, above: tuple[type, ...]) -> TypeSchema:
    """`above`: the records that this type stands in, outermost first."""
    if annotation is None or annotation is types.NoneType:
        return plain("None")
    if isinstance(annotation, dict):
        return _written_down(annotation, above)
    if typing.is_typeddict(annotation):
        return _typed_dict(annotation, above)
    supertype = getattr(annotation, "__supertype__", None)
    if supertype is not None:
        return _schema(supertype, above)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated or origin in (typing.Required, typing.NotRequired):
        return _schema(args[0], above)
    if origin in (typing.Union, types.UnionType):
        return _union([_schema(arg, above) for arg in args])
    if origin is typing.Literal:
        return _union([_schema(type(arg), above) for arg in args])
    if annotation is tuple or origin is tuple:
        return _tuple(args, above)
    container = _CONTAINERS.get(origin or annotation)
    if container is not None:
        form, count = container
        held = tuple(_schema(arg, above) for arg in args) if len(args) == count else (ANY,) * count
        return TypeSchema(form, args=held)
    return _class(origin or annotation, above)


def _class(cls: Any, above: tuple[type, ...]) -> TypeSchema:
    if not isinstance(cls, type) or cls is object:
        return ANY
    if issubclass(cls, Enum):
        return TypeSchema(Form.ENUM, cls.__qualname__, members=tuple(sorted(cls.__members__)), cls=cls)
    shape = shape_of(cls)
    if shape is None:
        return plain(cls.__qualname__) if _is_final(cls) else ANY
    if cls in above:
        return TypeSchema(Form.ABOVE, cls.__qualname__, cls=cls)
    hints = annotations_of(cls)
    fields = tuple(
        FieldSchema(
            name,
            _schema(hints[name], (*above, cls)) if name in hints else ANY,
            has_default=shape.has_default(name),
            default=partial(shape.default, name) if shape.has_default(name) else None,
        )
        for name in shape.fields
        if name != PYDANTIC_REST
    )
    return TypeSchema(_form_of(cls, shape), cls.__qualname__, fields=fields, cls=cls)


def _form_of(cls: type, shape: Shape) -> Form:
    if issubclass(cls, tuple):
        return Form.NAMED_TUPLE
    if is_dataclass(cls):
        return Form.DATACLASS
    return Form.MODEL if PYDANTIC_REST in shape.fields else Form.STRUCT


def _is_final(cls: type) -> bool:
    """Whether values of an annotation with this class are of this very class: not so for what is meant to be extended."""
    return not getattr(cls, "_is_protocol", False) and not getattr(cls, "__abstractmethods__", None)


def _tuple(args: tuple[Any, ...], above: tuple[type, ...]) -> TypeSchema:
    if not args:
        return TypeSchema(Form.TUPLE_OF, args=(ANY,))
    if len(args) == 2 and args[1] is Ellipsis:
        return TypeSchema(Form.TUPLE_OF, args=(_schema(args[0], above),))
    return TypeSchema(Form.TUPLE, args=tuple(_schema(arg, above) for arg in args))


def _union(schemas: list[TypeSchema]) -> TypeSchema:
    """A union; its members in one order, each once."""
    flat: dict[TypeSchema, None] = {}
    for schema in schemas:
        flat.update(dict.fromkeys(schema.args if schema.form is Form.UNION else (schema,)))
    if ANY in flat:
        return ANY
    members = sorted(flat, key=str)
    return members[0] if len(members) == 1 else TypeSchema(Form.UNION, args=tuple(members))


def _typed_dict(annotation: Any, above: tuple[type, ...]) -> TypeSchema:
    hints: Mapping[str, Any] = typing.get_type_hints(annotation, include_extras=True)
    fields = tuple(
        FieldSchema(name, _schema(hint, above), has_default=_may_be_missing(annotation, name, hint))
        for name, hint in hints.items()
    )
    return TypeSchema(Form.FIELDS, annotation.__qualname__, fields=fields)


def _may_be_missing(annotation: Any, name: str, hint: Any) -> bool:
    # Python itself does not see a NotRequired that stands in an annotation that is text.
    said = typing.get_origin(hint)
    return said is typing.NotRequired or (name in annotation.__optional_keys__ and said is not typing.Required)


def _written_down(fields: dict[Any, Any], above: tuple[type, ...]) -> TypeSchema:
    made = []
    for name, declared in fields.items():
        if not isinstance(name, str):
            raise PlanError(f"cannot use {fields!r} as the type of a state: its key {name!r} is not a str")
        if not isinstance(declared, tuple):
            made.append(FieldSchema(name, _schema(declared, above)))
            continue
        if len(declared) != 2:
            raise PlanError(
                f"cannot use {declared!r} for the field {name!r} of a state: write a type, or (type, default)"
            )
        annotation, default = declared
        make: Callable[[], Any] = default if isinstance(default, type) else partial(deepcopy, default)
        made.append(FieldSchema(name, _schema(annotation, above), has_default=True, default=make))
    return TypeSchema(Form.FIELDS, fields=tuple(made))
