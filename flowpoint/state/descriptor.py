"""A state declared in a class: what every kind of it has in common, and how an instance gets its handles.

A declaration is a data descriptor. `bind` puts a *handle* (`handles.py`) behind it, one per instance and declaration. So
one class may be used in many subtasks, and `self.seen = 5`, which would lose the state, is an error.

A declaration may say of what type its values are, in which version, and how older versions become newer ones. That is
looked at when state is restored (`evolution.py`), and never when it is used.

Invariant: a declaration that makes no sense is refused when its class is made, before anything runs.

Not here: the kinds (`kinds.py`, `broadcast.py`), time to live (a later slice).
"""

from __future__ import annotations

import builtins
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, TypeVar, overload

from flowpoint.codec.isolating import Isolator
from flowpoint.errors import BadRecordError, PlanError, UserCodeError
from flowpoint.state.annotations import schema_of
from flowpoint.state.backend import Backend
from flowpoint.state.handles import KeyCell
from flowpoint.state.spec import FIRST_VERSION, Kind, Migrations, StateSpec

_RESERVED: Final = "__"

H = TypeVar("H")


class Declaration(Generic[H]):
    """A state declared in a class. Reading it from an instance gives the handle that `bind` put there.

    Attributes:
        annotation: the type of its values as the author wrote it; None: anything.
    """

    kind: ClassVar[Kind]
    is_broadcast: ClassVar[bool] = False

    def __init__(
        self,
        name: str,
        type: Any = None,
        *,
        default: Any = None,
        ttl: float | str | None = None,
        version: int = FIRST_VERSION,
        migrate: Migrations | None = None,
    ) -> None:
        if not isinstance(name, str) or not name or name.startswith(_RESERVED):
            raise PlanError(
                f"cannot declare a state named {name!r}: a name is a str that is not empty and does not begin "
                f"with '{_RESERVED}'"
            )
        if ttl is not None:
            raise PlanError(
                f"cannot declare state '{name}' with ttl={ttl!r}: time to live is not supported yet; leave it out"
            )
        if callable(default):
            example = f"{default.__name__}()" if isinstance(default, builtins.type) else "the value"
            raise PlanError(
                f"cannot declare state '{name}' with default={default!r}: a default is a value, copied for each key; "
                f"write default={example}"
            )
        _check_default(name, default)
        self.annotation = type
        self.spec = StateSpec(
            name, self.kind, default, schema_of(type), version, checked_migrations(f"state '{name}'", version, migrate)
        )
        self._attribute = name

    def __set_name__(self, owner: type, attribute: str) -> None:
        self._attribute = attribute

    @overload
    def __get__(self, instance: None, owner: type) -> Declaration[H]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> H: ...

    def __get__(self, instance: object | None, owner: type) -> H | Declaration[H]:
        if instance is None:
            return self
        try:
            handle: H = instance.__dict__[self._attribute]
        except KeyError:
            raise UserCodeError(
                f"state '{self.spec.name}' of {owner.__name__} was used before the job runs; "
                f"use it only inside process() and on_timer()"
            ) from None
        return handle

    def __set__(self, instance: object, value: object) -> None:
        raise UserCodeError(
            f"cannot assign to self.{self._attribute}: it is the state '{self.spec.name}' itself; "
            f"assign to self.{self._attribute}.value"
        )

    def attach(self, instance: object, handle: H) -> None:
        """Put a handle behind this declaration for one instance."""
        if not hasattr(instance, "__dict__"):
            raise PlanError(f"cannot keep state in {type(instance).__name__}: its class has __slots__; remove them")
        instance.__dict__[self._attribute] = handle


def _check_default(name: str, default: Any) -> None:
    """Refuse a default of which no copy can be made."""
    try:
        Isolator()(default)
    except BadRecordError as error:
        raise PlanError(f"cannot declare state '{name}' with this default: {error}") from None


def checked_migrations(what: str, version: int, migrate: Migrations | None) -> Migrations:
    """The migrations of a declaration, each from a version before `version`.

    Raises:
        PlanError: the version or the migrations make no sense.
    """
    if type(version) is not int or version < FIRST_VERSION:
        raise PlanError(f"cannot declare {what} with version={version!r}: versions are whole numbers from 1 on")
    for before, function in (migrate or {}).items():
        if type(before) is not int or not FIRST_VERSION <= before < version:
            raise PlanError(
                f"cannot declare {what} with a migration from version {before!r}: it is of version {version}, so "
                f"migrations are from versions 1 to {version - 1}"
                if version > FIRST_VERSION
                else f"cannot declare {what} with migrate={dict(migrate or {})!r} in version 1: give it version=2"
            )
        if not callable(function):
            raise PlanError(f"cannot declare {what} with migrate={{{before}: {function!r}}}: that is no function")
    return MappingProxyType(dict(migrate or {}))


class KeyedDeclaration(Declaration[H]):
    """A state per key."""

    def open(self, backend: Backend, cell: KeyCell) -> H:
        """A handle on it for the key in `cell`."""
        raise NotImplementedError


def declared(cls: type) -> list[Declaration[Any]]:
    """The states that a class declares, inherited ones included, in order of their names.

    Raises:
        PlanError: two of them have one name.
    """
    found: dict[str, Declaration[Any]] = {}
    for base in reversed(cls.__mro__):
        found.update((name, member) for name, member in vars(base).items() if isinstance(member, Declaration))
    by_name: dict[str, Declaration[Any]] = {}
    for declaration in found.values():
        name = declaration.spec.name
        if name in by_name:
            raise PlanError(f"cannot use {cls.__name__}: it declares two states named '{name}'; give each its own name")
        by_name[name] = declaration
    return [by_name[name] for name in sorted(by_name)]


def bind(instance: object, backend: Backend, cell: KeyCell) -> None:
    """Connect the keyed states that an instance's class declares with a backend, for the key in `cell`.

    Raises:
        PlanError: two states have one name, or the class has `__slots__`.
        IncompatibleStateError: the snapshot holds one of them as another kind.
    """
    for declaration in declared(type(instance)):
        if isinstance(declaration, KeyedDeclaration):
            declaration.attach(instance, declaration.open(backend, cell))
