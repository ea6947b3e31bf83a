"""What a program gives to a saver or a store, looked at before anything is done with it.

A mistake that Python would not notice, or only somewhere deep in the store, is refused here with what to write instead.
Not here: what is wrong in the values themselves (`serde`, `store`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from langgraph.store.base import TTLConfig

from flowpoint.codec.shortened import shortened
from flowpoint.errors import ConfigError, UsageError
from flowpoint.model.texts import alike

_TTL_KEYS: Final = sorted(TTLConfig.__annotations__)


def check_types(types: Any) -> None:
    """The classes of a saver are a list of classes, not one, or the graph, or names.

    Raises:
        ConfigError: as said.
    """
    advice = "give the classes in a list, or types=types_of(builder)"
    if isinstance(types, str | type) or not isinstance(types, Iterable):
        raise ConfigError(f"cannot use types={shortened(types)}, of type {type(types).__name__}; {advice}")
    if isinstance(types, list | tuple):
        for one in types:
            if isinstance(one, str):
                raise ConfigError(f"cannot use {one!r} in types: it is a name and no class; {advice}")


def check_schema(schema: Any) -> None:
    """The schema of a saver is one, and not the graph.

    Raises:
        ConfigError: as said.
    """
    if schema is not None and not hasattr(schema, "upgrade"):
        raise ConfigError(
            f"cannot use schema={shortened(schema)}, of type {type(schema).__name__}; give "
            "schema=Schema.of(builder, version=1)"
        )


def check_keys(keys: Any) -> None:
    """Keys to encrypt with have names.

    Raises:
        ConfigError: as said.
    """
    if keys is not None and not (isinstance(keys, Mapping) and all(isinstance(id, str) for id in keys)):
        raise ConfigError('cannot encrypt: `keys` is a dict of names and keys, such as {"2026": os.urandom(32)}')


def check_version(version: Any) -> None:
    """Versions of a schema are numbers, from 1 on.

    Raises:
        ConfigError: as said.
    """
    if type(version) is not int or version < 1:
        raise ConfigError(f"cannot use the schema version {version!r}: versions begin with 1, and are whole numbers")


def check_expiry(keep_last: Any, ttl: Any) -> None:
    """Refuse a rule that would keep everything, or nothing, or that is none.

    Raises:
        UsageError: as said.
    """
    if keep_last is None and ttl is None:
        raise UsageError("cannot expire checkpoints: say which stay, by keep_last or ttl")
    if keep_last is not None and (type(keep_last) is not int or keep_last < 1):
        raise UsageError(f"cannot keep the last {keep_last!r} checkpoints; keep at least 1, or delete the thread")
    if ttl is not None and not isinstance(ttl, timedelta):
        raise UsageError(f"cannot expire checkpoints by ttl={ttl!r}: give a timedelta, such as timedelta(days=7)")


def check_ttl_config(ttl: Any) -> None:
    """The times to live of a store are LangGraph's settings: one that is misspelled would let nothing expire.

    Raises:
        ConfigError: as said.
    """
    if ttl is None:
        return
    if not isinstance(ttl, Mapping):
        raise ConfigError(f'cannot use ttl={ttl!r}: it is a dict of settings, such as {{"default_ttl": 60}} (minutes)')
    for name in ttl:
        if name not in _TTL_KEYS:
            meant = alike(str(name), _TTL_KEYS) or _TTL_KEYS
            raise ConfigError(f"cannot use {name!r} in ttl; did you mean {' or '.join(meant)}?")
    if (minutes := ttl.get("default_ttl")) is not None:
        check_minutes(minutes)


def check_minutes(ttl: Any) -> None:
    """A time to live is a number of minutes.

    Raises:
        ConfigError: as said.
    """
    if type(ttl) not in (int, float) or not ttl >= 0:
        raise ConfigError(f"cannot use a time to live of {ttl!r}: it is a number of minutes, such as 60, or 0.5")


def check_item(namespace: Any, value: Any) -> None:
    """An item of a store is a dict, in a namespace of several labels: of a text, each letter would be one.

    Raises:
        UsageError: as said.
    """
    check_namespace(namespace)
    if value is not None and not isinstance(value, Mapping):
        raise UsageError(
            f"cannot store {shortened(value)}, of type {type(value).__name__}: an item is a dict, such as "
            '{"value": ...}'
        )


def check_namespace(namespace: Any) -> None:
    """A namespace is a tuple of labels.

    Raises:
        UsageError: as said.
    """
    if isinstance(namespace, str):
        raise UsageError(f"cannot use the namespace {namespace!r}: it is a tuple of texts, such as ({namespace!r},)")
