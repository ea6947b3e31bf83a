"""What a piece of keyed state is called, how it is shaped and versioned, and the two values that mean "nothing".

Not here: the bytes of state (`file_format.py`), the objects users declare (`kinds.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from operator import is_
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, get_args

from flowpoint.state.schema import ANY, TypeSchema

Kind: TypeAlias = Literal["value", "list", "map"]
KINDS: Final[tuple[str, ...]] = get_args(Kind)
FIRST_VERSION: Final = 1

KEY_BY: Final = "key_by"
"""In what a manifest says of a state: the digest of the functions that the operator is keyed by."""

Migrations: TypeAlias = Mapping[int, Callable[[Any], Any]]
"""Version -> the function from a value of that version to one of the next."""

NO_MIGRATIONS: Final[Migrations] = MappingProxyType({})


class _Mark:
    """A value that only ever compares by identity."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name

    def __copy__(self) -> _Mark:
        return self

    def __deepcopy__(self, _: object) -> _Mark:
        return self


ABSENT: Final = _Mark("ABSENT")
"""There is no entry. Not None, which may be stored."""

TOMBSTONE: Final = _Mark("TOMBSTONE")
"""The entry was deleted; stands in place of a value until no older layer can hold one."""


def has_tombstone(values: Iterable[Any]) -> bool:
    """Whether a TOMBSTONE is among values; never calls their `__eq__`, and runs at the speed of C."""
    return any(map(is_, values, repeat(TOMBSTONE)))


@dataclass(frozen=True, slots=True)
class StateSpec:
    """One named state. `default` is what a user reads where nothing is stored; it is not part of a snapshot.

    kind: "value" and "list" keep one value per key, "map" keeps one value per key and map key.
    type: of a value, of an element of a list, of a value in a map.
    version: counts how often values changed in a way that only `migrate` can bridge.
    key: of what the operator is keyed by, as far as known.
    key_by: the digest of the functions it is keyed by (`key_functions.key_digest`); "": not known.
    """

    name: str
    kind: Kind
    default: Any = field(default=None, compare=False)
    type: TypeSchema = ANY
    version: int = FIRST_VERSION
    migrate: Migrations = field(default_factory=lambda: NO_MIGRATIONS, compare=False)
    key: TypeSchema = ANY
    key_by: str = field(default="", compare=False)

    @property
    def is_map(self) -> bool:
        """Whether entries have a key of their own inside the key."""
        return self.kind == "map"

    def to_data(self, classes: str = "") -> dict[str, Any]:
        """As JSON-able data, for the manifest's `states`; what is not known is left out.

        classes: stands for all classes that the job declares (`TypeRegistry.digest`): any of them may be in a key, and in
            a value of no declared type.
        """
        data: dict[str, Any] = {"kind": self.kind, "version": self.version}
        if not self.type.is_any:
            data["type"] = self.type.to_data()
        if not self.key.is_any:
            data["key"] = self.key.to_data()
        if self.key_by:
            data[KEY_BY] = self.key_by
        if classes:
            data["classes"] = classes
        return data
