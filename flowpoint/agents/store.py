"""LangGraph's long-term memory on RocksDB: dicts under a key in a namespace, with a time to live. No vectors.

An item is `s/<label>/.../=<key>`, so that all below a namespace is one stretch of keys, and a search reads nothing
else. It may share the folder of a `RocksSaver`.

Invariants: a batch is all or nothing; its reads see what was there before it. An expired item is never returned, also
before it is swept. Items come in the order of their namespaces and keys.
Not here: vectors; `query` is refused, not ignored.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from types import TracebackType
from typing import Any, Final, Self

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    validate_op_namespace,
)

from flowpoint.agents.given import check_item, check_minutes, check_namespace, check_ttl_config
from flowpoint.agents.kv import Part, Section, part, text_of
from flowpoint.agents.rocks_kv import RocksKv
from flowpoint.codec.shortened import shortened
from flowpoint.errors import BadRecordError, DamagedStoreError, UsageError

_MINUTE_MS: Final = 60_000
_SECTION: Final = part("store of items")
_OPERATORS: Final = frozenset({"$eq", "$ne", "$gt", "$gte", "$lt", "$lte"})


@dataclass(slots=True)
class _Stored:
    """An item as stored. Times are epoch ms, `ttl` minutes."""

    namespace: tuple[str, ...]
    key: str
    value: dict[str, Any]
    created: int
    updated: int
    ttl: float | None
    expires: int | None

    def data(self) -> bytes:
        """Its bytes.

        Raises:
            BadRecordError: its value is not JSON.
        """
        try:
            fields = [list(self.namespace), self.key, self.value, self.created, self.updated, self.ttl, self.expires]
            data = json.dumps(fields, allow_nan=False).encode()  # which refuses what contains itself
            _check_keys(self.value)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadRecordError(
                f"cannot store item {self.key!r} of {self.namespace}: {error}; a store holds what JSON can"
            ) from error
        return data

    @classmethod
    def of(cls, name: str, data: bytes) -> _Stored:
        """The item of an entry.

        Raises:
            DamagedStoreError: its bytes are not of an item.
        """
        try:
            fields = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise DamagedStoreError(
                f"cannot read the item {_shown_name(name)}: its bytes are damaged ({error}); delete it"
            ) from error
        match fields:
            case [
                list(namespace), str(key), dict(value), int(created), int(updated),
                int() | float() | None as ttl, int() | None as expires,
            ] if all(type(label) is str for label in namespace):  # fmt: skip
                return cls(tuple(namespace), key, value, created, updated, ttl, expires)
        raise DamagedStoreError(
            f"cannot read the item {_shown_name(name)}: its bytes are of no item ({shortened(fields)}); delete it"
        )


class RocksStore(BaseStore):
    """A store in a folder of this machine, for one process at a time.

    Example:
        with RocksStore("memory", ttl={"default_ttl": 60}) as store:
            store.put(("users", "7"), "likes", {"colour": "red"})
            graph = builder.compile(checkpointer=saver, store=store)
    """

    supports_ttl = True

    def __init__(self, path: str | os.PathLike[str], *, ttl: TTLConfig | None = None) -> None:
        """`ttl`: LangGraph's settings; `sweep_interval_minutes` is not used, call `sweep_ttl`.

        Raises:
            ConfigError: `ttl` has a setting that is none.
            StoreInUseError: another process has it open.
            StorageError: it cannot be made or opened.
            UsageError: it is a store of another kind.
        """
        check_ttl_config(ttl)
        self.ttl_config = ttl
        self._kv = RocksKv(path)

    @classmethod
    def from_conn_string(cls, conn_string: str, *, ttl: TTLConfig | None = None) -> Self:
        """A store for a path, which may begin with `rocks://`; a context manager like every store."""
        return cls(conn_string.removeprefix("rocks://"), ttl=ttl)

    def setup(self) -> None:
        """Nothing: opening a store makes it. For programs that call it, as other stores want it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Let go of the store. Idempotent."""
        self._kv.close()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations: first what is read, then what is put.

        Raises:
            UsageError: what is to be put is no dict, a namespace no tuple, or a time to live no number.
        """
        ops = list(ops)
        for op in ops:
            _check(op)
        with self._kv.section(_SECTION, Section.CUT):
            results = [self._read(op) for op in ops]
            puts: dict[str, bytes | None] = {}
            for op in ops:
                if isinstance(op, PutOp):
                    puts[_name(op.namespace, op.key)] = self._put(op)
            if puts:
                self._kv.write(
                    [(name, data) for name, data in puts.items() if data is not None],
                    [name for name, data in puts.items() if data is None],
                )
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """See `batch`."""
        return await asyncio.to_thread(self.batch, list(ops))

    def sweep_ttl(self) -> int:
        """Remove what has expired; how many items.

        Raises:
            DamagedStoreError: an item cannot be read; the others are done.
        """
        gone: list[str] = []
        damaged: list[DamagedStoreError] = []
        with self._kv.section(_SECTION, Section.CUT):
            for name, data in self._kv.scan("s/"):
                try:
                    if _is_expired(_Stored.of(name, data)):
                        gone.append(name)
                except DamagedStoreError as error:
                    damaged.append(error)
            self._kv.write([], gone)
        if damaged:
            raise DamagedStoreError(f"cannot sweep {len(damaged)} items; the others are done: {damaged[0]}")
        return len(gone)

    # ------------------------------------------------------------------ reading

    def _read(self, op: Op) -> Result:
        match op:
            case GetOp():
                found = self._found(_name(op.namespace, op.key))
                if found is None:
                    return None
                self._refresh([found], op.refresh_ttl)
                return Item(**_shown(found))
            case SearchOp():
                return self._search(op)
            case ListNamespacesOp():
                return self._namespaces(op)
            case _:
                return None

    def _found(self, name: str) -> _Stored | None:
        data = self._kv.get(name)
        found = None if data is None else _Stored.of(name, data)
        return None if found is None or _is_expired(found) else found

    def _below(self, namespace: tuple[str, ...]) -> Iterator[_Stored]:
        for name, data in self._kv.scan(_prefix(namespace)):
            stored = _Stored.of(name, data)
            if not _is_expired(stored):
                yield stored

    def _search(self, op: SearchOp) -> list[SearchItem]:
        if op.query:
            raise UsageError(
                "cannot search by meaning: this store has no vectors; leave `query` out, or use another store"
            )
        wanted = op.filter or {}
        matching = (
            stored
            for stored in self._below(op.namespace_prefix)
            if all(_fits(stored.value.get(key), value) for key, value in wanted.items())
        )
        found = list(islice(matching, op.offset, op.offset + op.limit))
        self._refresh(found, op.refresh_ttl)
        return [SearchItem(**_shown(stored)) for stored in found]

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        conditions = op.match_conditions or ()
        found = {
            stored.namespace[: op.max_depth] if op.max_depth is not None else stored.namespace
            for stored in self._below(())
            if all(_matches(condition, stored.namespace) for condition in conditions)
        }
        return sorted(found)[op.offset : op.offset + op.limit]

    def _refresh(self, found: list[_Stored], refresh: bool) -> None:
        """Items that are read live on for as long as new ones would."""
        lasting = [stored for stored in found if stored.ttl is not None] if refresh else []
        for stored in lasting:
            stored.expires = _expiry(stored.ttl)
        if lasting:
            self._kv.write([(_name(one.namespace, one.key), one.data()) for one in lasting], sync=False)

    # ------------------------------------------------------------------ writing

    def _put(self, op: PutOp) -> bytes | None:
        if op.value is None:
            return None
        now = _now()
        old = self._found(_name(op.namespace, op.key))
        created = now if old is None else old.created
        return _Stored(op.namespace, op.key, dict(op.value), created, now, op.ttl, _expiry(op.ttl)).data()


def _check(op: Op) -> None:
    """Refuse what LangGraph's own stores would take for something else."""
    match op:
        case PutOp():
            check_item(op.namespace, op.value)
            if op.ttl is not None:
                check_minutes(op.ttl)
        case GetOp():
            check_namespace(op.namespace)
        case SearchOp():
            check_namespace(op.namespace_prefix)
    validate_op_namespace(op)


def _prefix(namespace: tuple[str, ...]) -> str:
    return "".join(["s/", *(f"{part(label)}/" for label in namespace)])


def _name(namespace: tuple[str, ...], key: str) -> str:
    return f"{_prefix(namespace)}={part(key)}"


def _shown_name(name: str) -> str:
    """The key and namespace of an entry, for messages; a long text is shown cut, as in the entry's name."""
    *labels, key = name.split("/")[1:]
    return f"{text_of(Part(key[1:]))!r} of {tuple(text_of(Part(label)) for label in labels)}"


def _check_keys(value: object) -> None:
    """Refuse what JSON would take silently for something else: 1 for "1", of which one would replace the other.

    Raises:
        TypeError: a dict has a key that is no text.
    """
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            for key in one:
                if not isinstance(key, str):
                    raise TypeError(f"the key {key!r} of a dict is no text")
            waiting.extend(one.values())
        elif isinstance(one, (list, tuple)):
            waiting.extend(one)


def _now() -> int:
    return time.time_ns() // 1_000_000


def _expiry(ttl: float | None) -> int | None:
    return None if ttl is None else _now() + int(ttl * _MINUTE_MS)


def _is_expired(stored: _Stored) -> bool:
    return stored.expires is not None and stored.expires <= _now()


def _shown(stored: _Stored) -> dict[str, Any]:
    return {
        "namespace": stored.namespace,
        "key": stored.key,
        "value": stored.value,
        "created_at": datetime.fromtimestamp(stored.created / 1000, UTC),
        "updated_at": datetime.fromtimestamp(stored.updated / 1000, UTC),
    }


def _matches(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    path = condition.path
    if len(namespace) < len(path):
        return False
    there = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for label, wanted in zip(there, path, strict=True))


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value fits a filter: equal, or within the operators {"$gt": ...}; of a dict, its fields."""
    if not isinstance(wanted, dict):
        return bool(value == wanted)
    if any(name.startswith("$") for name in wanted):
        return all(_compare(value, operator, other) for operator, other in wanted.items())
    return isinstance(value, dict) and all(_fits(value.get(name), one) for name, one in wanted.items())


def _compare(value: Any, operator: str, other: Any) -> bool:
    if operator not in _OPERATORS:
        raise UsageError(f"cannot filter with {operator!r}; use one of {', '.join(sorted(_OPERATORS))}")
    if operator == "$eq":
        return bool(value == other)
    if operator == "$ne":
        return bool(value != other)
    try:
        order = int(value > other) - int(value < other)
    except TypeError:
        return False  # what cannot be compared, or is missing, is neither greater nor less
    return {"$gt": order > 0, "$gte": order >= 0, "$lt": order < 0, "$lte": order <= 0}[operator]
