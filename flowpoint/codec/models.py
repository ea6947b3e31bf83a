"""What a pydantic model holds besides its fields, made to fit the class as it is now.

    extra      values of no field, of a class with extra="allow"; one that has become a field goes there
    set        which fields were given, and not left to their defaults
    private    attributes that are no fields; new ones get their defaults

Only values of an older version of the class need this: within one version what was taken apart fits.

Invariant: nothing is left behind without a note.

Not here: taking models apart and making them (`registry.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Note = Callable[[str], None]


def settled(cls: Any, names: tuple[str, ...], values: tuple[Any, ...], note: Note) -> tuple[Any, ...]:
    """The values of the fields `names` and the rest behind them, as the class takes them.

    Args:
        cls: a pydantic model.
        names: its fields.
        values: of these, and the rest: (extra, fields that were set, private), or None where it is not known.
        note: told what is left behind.
    """
    own = dict(zip(names, values, strict=False))
    stored_extra, were_set, private = values[-1] or (None, names, None)
    extra = dict(stored_extra or {})
    for name in [name for name in names if name in extra]:
        own[name] = extra.pop(name)
    allows_extra = cls.model_config.get("extra") == "allow"
    if not allows_extra:
        for name in extra:
            note(f"{cls.__qualname__} no longer takes the extra value {name!r}, and what it held is left behind")
        extra = {}
    is_set = [name for name in were_set if name in own or name in extra]
    return (*own.values(), (extra if allows_extra else None, is_set, _private(cls, private or {}, note)))


def facts_of(cls: Any) -> tuple[str, ...]:
    """What decides on the rest of a model: with other facts, stored values must be looked at."""
    return (f"extra={cls.model_config.get('extra')}", *sorted(cls.__private_attributes__))


def _private(cls: Any, stored: Mapping[str, Any], note: Note) -> dict[str, Any] | None:
    for name in stored:
        if name not in cls.__private_attributes__:
            note(f"{cls.__qualname__} no longer has the private attribute {name!r}, and what it held is left behind")
    if not cls.__private_attributes__:
        return None
    from pydantic_core import PydanticUndefined  # only reached when the class itself comes from pydantic

    fresh = {
        # Whether `get_default` calls the factory depends on the version of pydantic.
        name: attribute.get_default() if attribute.default_factory is None else attribute.default_factory()
        for name, attribute in cls.__private_attributes__.items()
        if name not in stored
    }
    kept = {name: value for name, value in stored.items() if name in cls.__private_attributes__}
    return kept | {name: value for name, value in fresh.items() if value is not PydanticUndefined}
