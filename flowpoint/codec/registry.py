"""The classes whose instances a job's records and state may contain, and how each is taken apart and rebuilt.

A class is known by its qualified name (`Order`, `Outer.Item`) without its module, so that a job file may be renamed or
moved and still read its snapshots. Two declared classes of one name are told apart by their module; a snapshot that
holds only the bare name is then refused.

How it works: `TypeRegistry` is built once per process from the types the job declares or uses in annotations. It also
takes in what those mention: the fields of a dataclass, the arguments of `list[Order]`. For each class a `Shape` is
kept, which turns an instance into a tuple of field values and back.

Invariants: no class is ever found by importing what some bytes name. Rebuilding does not run `__init__` or
`__post_init__` (msgspec excepted, which offers no other way): the fields come back exactly as they were.

Not here: the bytes (`values.py`).
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, Flag
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, Final

from xxhash import xxh3_64_hexdigest

from flowpoint.codec.models import Note, facts_of, settled
from flowpoint.errors import BadRecordError, UnknownTypeError
from flowpoint.host.module_path import JOB_MODULE

_BUILT_IN: Final = (str, bytes, bytearray, int, float, complex, list, tuple, dict, set, frozenset)


class _NoDefault:
    """The type of `_NO_DEFAULT`."""


_NO_DEFAULT: Final = _NoDefault()


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """How the instances of one class are taken apart and rebuilt.

    fields: their names, in the order of the class.
    take: an instance to the tuple of its field values.
    make: the tuple of all field values, in that order, to an instance.
    default: the value of a field that older bytes do not have, or `_NO_DEFAULT`.
    settle: makes what an older version of the class had besides its fields fit, where it may have something; takes the
        tuple for `make`, and is told what it leaves behind.
    facts: what decides on that, besides the fields.
    """

    cls: type
    fields: tuple[str, ...]
    take: Callable[[Any], tuple[Any, ...]]
    make: Callable[[tuple[Any, ...]], Any]
    default: Callable[[str], Any]
    settle: Callable[[tuple[Any, ...], Note], tuple[Any, ...]] | None = None
    facts: tuple[str, ...] = ()

    def has_default(self, name: str) -> bool:
        """Whether a field may be missing in older bytes."""
        return self.default(name) is not _NO_DEFAULT

    def rebuild(self, fields: tuple[str, ...], values: tuple[Any, ...]) -> Any:
        """An instance from named values, which may be of an older version of the class.

        Raises:
            BadRecordError: a field was removed from the class, or a new one has no default.
        """
        if fields == self.fields:
            return self.make(values)
        return self.make(self.arrange(fields)(values))

    def arrange(
        self, fields: tuple[str, ...], *, may_drop: bool = False
    ) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
        """The function that brings values of `fields` into the order of this class and fills in defaults.

        may_drop: fields that the class no longer has are left out; whoever allows it says so to the person.
        """
        unknown = [name for name in fields if name not in self.fields]
        if unknown and not may_drop:
            raise BadRecordError(
                f"cannot read a stored {self.cls.__qualname__}: it has the field {unknown[0]!r}, which the class no "
                f"longer has; put the field back (it may have a default)"
            )
        missing = [name for name in self.fields if name not in fields and not self.has_default(name)]
        if missing:
            raise BadRecordError(
                f"cannot read a stored {self.cls.__qualname__}: it has no field {missing[0]!r}, which the class now "
                f"requires; give the field a default"
            )

        def arranged(values: tuple[Any, ...]) -> tuple[Any, ...]:
            named = dict(zip(fields, values, strict=True))
            return tuple(named[name] if name in named else self.default(name) for name in self.fields)

        return arranged


class TypeRegistry:
    """The classes that the bytes of one job may name.

    Example:
        >>> import dataclasses
        >>> @dataclasses.dataclass
        ... class Point:
        ...     x: int
        >>> TypeRegistry([Point]).name_of(Point)
        'Point'
    """

    def __init__(self, types: Iterable[Any] = (), *, with_modules: bool = False) -> None:
        """`types` may hold anything that stands in an annotation; what needs no declaration is passed over.

        `with_modules` writes every name with its module, so that a class of the same name may be declared later; the
        module is still only looked at when there are several of that name.
        """
        self._classes: dict[type, Shape | None] = {}
        self._names: dict[type, str] = {}
        self._by_name: dict[str, list[type]] = {}
        waiting = list(types)
        seen: list[Any] = []
        while waiting:
            tp = waiting.pop()
            if any(tp is other for other in seen):
                continue
            seen.append(tp)
            waiting.extend(typing.get_args(tp))
            if isinstance(tp, type) and typing.get_origin(tp) is None:
                waiting.extend(self._add(tp))
        for cls in self._classes:
            self._by_name.setdefault(cls.__qualname__, []).append(cls)
        for short, classes in self._by_name.items():
            for cls in classes:
                self._names[cls] = short if len(classes) == 1 and not with_modules else f"{cls.__module__}:{short}"

    def _add(self, cls: type) -> list[Any]:
        """Take in one class; returns what its fields mention."""
        if issubclass(cls, Enum):
            self._classes[cls] = None
            return []
        shape = shape_of(cls)
        if shape is None:
            return []
        self._classes[cls] = shape
        return list(annotations_of(cls).values())

    def __contains__(self, cls: type) -> bool:
        return cls in self._classes

    def name_of(self, cls: type) -> str:
        """The name that stands for a class in bytes.

        Raises:
            BadRecordError: the class was not declared, or is of a kind that cannot be.
        """
        name = self._names.get(cls)
        if name is not None:
            return name
        if issubclass(cls, Enum) or shape_of(cls) is not None:
            raise UnknownTypeError(
                f"cannot serialise a value of type {_full_name(cls)}: the job does not declare this class; list it in "
                f"Job(..., types=[{cls.__name__}]), or make it the type of the state that holds it, as in "
                f"ValueState(name, {cls.__name__}), or use it in an annotation of the function that emits it",
                _full_name(cls),
            )
        raise BadRecordError(
            f"cannot serialise a value of type {_full_name(cls)}: records and state may hold the built-in types, the "
            f"containers of collections, dates and times, Decimal, UUID, numpy values and instances of a dataclass, "
            f"NamedTuple, Enum, pydantic model or msgspec Struct; turn it into one of these"
        )

    def resolve(self, name: str) -> type:
        """The class that a name in bytes stands for.

        Raises:
            BadRecordError: no declared class, or more than one, has this name.
        """
        module, _, short = name.rpartition(":")
        found = [cls for cls in self._by_name.get(short, ()) if not module or cls.__module__ == module]
        if not found and module and len(self._by_name.get(short, ())) == 1:
            found = self._by_name[short]
        if len(found) == 1:
            return found[0]
        if found:
            modules = ", ".join(sorted(cls.__module__ for cls in found))
            raise BadRecordError(
                f"cannot read a stored {name}: the job declares several classes of this name, in {modules}; rename one"
            )
        raise UnknownTypeError(
            f"cannot read a stored {name}: the job does not declare a class of this name; declare it again, under the "
            f"same name (in Job(..., types=[...]), as the type of a state, or in an annotation)",
            name,
        )

    @cached_property
    def digest(self) -> str:
        """Stands for all declared classes and their fields, the same in every process: equal if none has changed.

        "" where no class is declared.
        """
        if not self._classes:
            return ""
        described = [
            [cls.__module__, name, *(sorted(cls.__members__) if shape is None else shape.fields + shape.facts)]  # type: ignore[attr-defined]
            for cls, name, shape in ((cls, self._names[cls], shape) for cls, shape in self._classes.items())
        ]
        return xxh3_64_hexdigest(repr(sorted(described)).encode())

    def has_name(self, name: str) -> bool:
        """Whether any declared class has the name that stands in bytes, in whatever module."""
        return name.rpartition(":")[2] in self._by_name

    def shape(self, cls: type) -> Shape | None:
        """How a declared class is taken apart; None for an Enum or a class that is not declared."""
        return self._classes.get(cls)


def shape_of(cls: type) -> Shape | None:
    """The shape of a class, or None when it is of no kind that can be serialised by fields."""
    if issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple):
        return _named_tuple(cls)
    if cls.__name__ == "ndarray" or issubclass(cls, _BUILT_IN):
        return None
    if dataclasses.is_dataclass(cls):
        return _dataclass(cls)
    msgspec = sys.modules.get("msgspec")
    if msgspec is not None and issubclass(cls, msgspec.Struct) and cls is not msgspec.Struct:
        return _struct(cls)
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and issubclass(cls, pydantic.BaseModel) and cls is not pydantic.BaseModel:
        return _pydantic(cls)
    return None


def encode_enum(member: Enum) -> str | int:
    """What stands for a member besides its class: its name, or the number of a combination of flags."""
    if isinstance(member, Flag):
        return int(member.value)
    return member.name


def decode_enum(cls: type, stored: str | int) -> Enum:
    """The reverse of `encode_enum`.

    Raises:
        BadRecordError: the class has no such member any more.
    """
    assert issubclass(cls, Enum)
    try:
        return cls(stored) if issubclass(cls, Flag) else cls[str(stored)]
    except (KeyError, ValueError):
        raise BadRecordError(
            f"cannot read a stored {cls.__qualname__}: it has no member {stored!r} any more; put the member back"
        ) from None


def _full_name(cls: type) -> str:
    """A class as its author knows it: the module that a job file becomes is none of theirs."""
    is_plain = cls.__module__ in ("builtins", JOB_MODULE)
    return cls.__qualname__ if is_plain else f"{cls.__module__}.{cls.__qualname__}"


def annotations_of(cls: type) -> Mapping[str, Any]:
    """Resolved field annotations; names that cannot be resolved are left out: such classes must be declared by hand."""
    try:
        return typing.get_type_hints(cls)
    except (NameError, TypeError, AttributeError):
        return {name: tp for name, tp in getattr(cls, "__annotations__", {}).items() if not isinstance(tp, str)}


def _taker(fields: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(fields) > 1:
        return attrgetter(*fields)
    if not fields:
        return lambda _: ()
    single = attrgetter(fields[0])
    return lambda instance: (single(instance),)


def _named_tuple(cls: type) -> Shape:
    fields: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
    defaults: dict[str, Any] = getattr(cls, "_field_defaults", {})

    def make(values: tuple[Any, ...]) -> Any:
        return tuple.__new__(cls, values)

    return Shape(cls, fields, tuple, make, lambda name: defaults.get(name, _NO_DEFAULT))


def _dataclass(cls: type) -> Shape:
    specs = {spec.name: spec for spec in dataclasses.fields(cls)}
    fields = tuple(specs)

    def make_slotted(values: tuple[Any, ...]) -> Any:
        instance: Any = object.__new__(cls)
        for name, value in zip(fields, values, strict=True):
            object.__setattr__(instance, name, value)
        return instance

    def make_plain(values: tuple[Any, ...]) -> Any:
        instance: Any = object.__new__(cls)
        instance.__dict__.update(zip(fields, values, strict=True))
        return instance

    is_plain = not any("__slots__" in vars(base) or _overrides(base, fields) for base in cls.__mro__[:-1])
    make = make_plain if is_plain else make_slotted

    def default(name: str) -> Any:
        spec = specs[name]
        if spec.default_factory is not dataclasses.MISSING:
            return spec.default_factory()
        return _NO_DEFAULT if spec.default is dataclasses.MISSING else spec.default

    return Shape(cls, fields, _taker(fields), make, default)


def _overrides(base: type, fields: tuple[str, ...]) -> bool:
    """Whether a class handles the setting of a field itself, by a property or another descriptor."""
    return any(hasattr(type(vars(base).get(name)), "__set__") for name in fields)


def _struct(cls: type) -> Shape:
    import msgspec  # only reached when the class itself comes from msgspec

    specs = {spec.name: spec for spec in msgspec.structs.fields(cls)}
    fields = tuple(specs)

    def make(values: tuple[Any, ...]) -> Any:
        return cls(**dict(zip(fields, values, strict=True)))

    def default(name: str) -> Any:
        spec = specs[name]
        if spec.default_factory is not msgspec.NODEFAULT:
            return spec.default_factory()
        return _NO_DEFAULT if spec.default is msgspec.NODEFAULT else spec.default

    return Shape(cls, fields, _taker(fields), make, default)


PYDANTIC_REST: Final = "__pydantic_rest__"


def _pydantic(cls: Any) -> Shape:
    """Fields, and as a last pseudo-field what else a model holds: extra values, private ones, which fields were set.

    A root model has neither extra values nor private ones.
    """
    names = tuple(cls.model_fields)
    fields = (*names, PYDANTIC_REST)

    def take(instance: Any) -> tuple[Any, ...]:
        state = instance.__getstate__()
        own = state["__dict__"]
        rest = (
            state.get("__pydantic_extra__"),
            sorted(state["__pydantic_fields_set__"]),
            state.get("__pydantic_private__"),
        )
        return (*(own[name] for name in names), rest)

    def make(values: tuple[Any, ...]) -> Any:
        extra, fields_set, private = values[-1] or (None, names, None)
        instance = cls.__new__(cls)
        instance.__setstate__(
            {
                "__dict__": dict(zip(names, values, strict=False)),
                "__pydantic_extra__": extra,
                "__pydantic_fields_set__": set(fields_set),
                "__pydantic_private__": private,
            }
        )
        return instance

    def default(name: str) -> Any:
        if name == PYDANTIC_REST:
            return None
        spec = cls.model_fields[name]
        return _NO_DEFAULT if spec.is_required() else spec.get_default(call_default_factory=True)

    return Shape(cls, fields, take, make, default, partial(settled, cls, names), facts_of(cls))
