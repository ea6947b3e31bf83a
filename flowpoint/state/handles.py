"""What stands behind a declared state while it runs: reads and writes the table of one state, for the key in the cell.

Invariants: state is reachable only during a keyed call, while the cell has a key. A mutable value that a user gets to
see lies in the dirty layer from then on, so a change made in place is kept; and `Sharing` knows of it, so that no emitted
record changes with it. A mutable default is copied for each key, and what nobody has changed of it when the keyed call
is over is taken out again (`KeyCell.lend`): reading makes no state.

Not here: how handles get behind declarations (`descriptor.py`), where values are kept (`tables.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence, Sized
from functools import cached_property
from typing import Any, Final, NamedTuple

from flowpoint.codec.isolating import Isolator
from flowpoint.codec.keys import canonical
from flowpoint.codec.values import IMMUTABLE, is_immutable
from flowpoint.errors import UserCodeError
from flowpoint.state.backend import MapTable, Table
from flowpoint.state.sharing import Sharing
from flowpoint.state.spec import ABSENT, TOMBSTONE

PLAIN_KEYS: Final = frozenset({str, int, bytes, bool})


class _NoKey:
    """The type of `NO_KEY`."""

    def __repr__(self) -> str:
        return "NO_KEY"


NO_KEY: Final = _NoKey()


class _Default:
    """What a table gives for a key without an entry, where that can be changed.

    Nobody else has it: it is a copy of what was declared, and only copies of it are handed out. So it is encoded once.
    """

    def __init__(self, table: Table, value: Any) -> None:
        self.table = table
        self.value = Isolator()(value)
        self._size = len(value) if isinstance(value, Sized) else None

    @cached_property
    def _encoded(self) -> bytes | None:
        return self.table.encoded(self.value)

    def is_same(self, value: Any) -> bool:
        """Whether a snapshot would hold the same of a value. By their bytes: `==` may leave out fields, and takes True for 1.

        A value that cannot be encoded is another one: it stays in state, and the snapshot refuses it and names the state.
        """
        if self._size is not None and isinstance(value, Sized) and len(value) != self._size:
            return False
        return self._encoded is not None and self.table.encoded(value) == self._encoded


class _Loan(NamedTuple):
    """A copy of a default that lies in state, in case that it is changed in place."""

    default: _Default
    key: Any
    value: Any
    hidden: Any
    """What the dirty layer had of the key: nothing (ABSENT), or that it is deleted."""


class KeyCell:
    """Holds the key of the record or timer that is being processed; NO_KEY in between."""

    __slots__ = ("_loans", "key", "sharing")

    def __init__(self) -> None:
        self.key: Any = NO_KEY
        self.sharing = Sharing()
        """What all handles of the operator tell of the values that pass through them."""
        self._loans: list[_Loan] = []

    def lend(self, default: _Default, key: Any) -> Any:
        """A copy of a mutable default for a key that has no entry; it becomes one if it is changed before `clear`."""
        self.sharing.begin()
        value = self.sharing.isolated(default.value)
        self._loans.append(_Loan(default, key, value, default.table.dirty.get(key, ABSENT)))
        default.table.put(key, value)
        return value

    def clear(self) -> None:
        """The keyed calls of a batch are over."""
        self.key = NO_KEY
        if self._loans:
            self._take_back()

    def _take_back(self) -> None:
        for loan in self._loans:
            dirty = loan.default.table.dirty
            if dirty.get(loan.key) is not loan.value or not loan.default.is_same(loan.value):
                continue
            if loan.hidden is ABSENT:
                del dirty[loan.key]
            else:
                dirty[loan.key] = loan.hidden
        self._loans.clear()


class _Handle:
    """What all handles share: the cell, and the refusal to work without a key."""

    __slots__ = ("_cell", "_name")

    def __init__(self, cell: KeyCell, name: str) -> None:
        self._cell = cell
        self._name = name

    def _key(self) -> Any:
        key = self._cell.key
        if key is NO_KEY:
            raise UserCodeError(
                f"state '{self._name}' was used outside a keyed call, so it has no key; "
                f"use it only inside process() and on_timer()"
            )
        return key


class _SingleHandle(_Handle):
    """What handles on one value share: they are not taken for the value itself."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what copying and the like look for
            raise AttributeError(name)
        raise AttributeError(f"the state '{self._name}' has no {name}: only its value may have; write .value.{name}")

    def _refuse(self, *_: object) -> Any:
        """`self.seen += 1`, `if self.seen:`, `self.seen == 3`: all mean the value, and two would be wrong in silence."""
        raise UserCodeError(
            f"the state '{self._name}' was used as if it were its value; write .value behind it, as in"
            f" self.{self._name}.value += 1"
        )

    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __len__ = __iter__ = __contains__ = _refuse
    __getitem__ = __setitem__ = __int__ = __float__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = _refuse
    __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = __mod__ = __or__ = __and__ = __neg__ = _refuse
    __hash__ = object.__hash__


class ValueHandle(_SingleHandle):
    """One value of the current key."""

    __slots__ = ("_default", "_table")

    def __init__(self, cell: KeyCell, table: Table, default: Any) -> None:
        """`default` is what the job declares: a restored table knows none, as it is not part of a snapshot."""
        super().__init__(cell, table.spec.name)
        self._table = table
        self._default = default if is_immutable(default) else _Default(table, default)

    @property
    def value(self) -> Any:
        """The value, or the default. Changes made to it in place are kept."""
        # NO_KEY is never in the table, so the check for it is off the fast path.
        value = self._table.dirty.get(self._cell.key, ABSENT)
        return self._load() if value is ABSENT or value is TOMBSTONE else value

    @value.setter
    def value(self, value: Any) -> None:
        if type(value) not in IMMUTABLE:
            self._cell.sharing.note(value)
        self._table.dirty[self._key()] = value

    def _load(self) -> Any:
        key = self._key()
        value = self._table.load(key, ABSENT)
        if value is ABSENT:
            default = self._default
            return self._cell.lend(default, key) if isinstance(default, _Default) else default
        if not is_immutable(value):
            self._cell.sharing.begin()
            self._table.put(key, value)
        return value

    def clear(self) -> None:
        """Forget the value; reading gives the default again."""
        self._table.delete(self._key())

    def __repr__(self) -> str:
        return f"<ValueState '{self._name}' of key {self._cell.key!r}>"


class ListHandle(_Handle):
    """A list of the current key."""

    __slots__ = ("_empty", "_table")

    def __init__(self, cell: KeyCell, table: Table) -> None:
        super().__init__(cell, table.spec.name)
        self._table = table
        self._empty = _Default(table, [])

    def _read(self) -> Sequence[Any]:
        values: Sequence[Any] = self._table.load(self._key(), ())
        return values

    def _write(self) -> list[Any]:
        """The list, to be changed in place."""
        key = self._key()
        stored = self._table.load(key, None)
        values: list[Any] = [] if stored is None else stored
        self._table.put(key, values)
        return values

    @property
    def value(self) -> list[Any]:
        """The list itself; changes made to it in place are kept."""
        key = self._key()
        values: list[Any] | None = self._table.load(key, None)
        if values is None:
            lent: list[Any] = self._cell.lend(self._empty, key)
            return lent
        self._cell.sharing.begin()
        self._table.put(key, values)
        return values

    @value.setter
    def value(self, values: Iterable[Any]) -> None:
        own = list(values)
        if not own:
            # An empty list is no entry: a key that is done with takes no room.
            self.clear()
            return
        self._cell.sharing.note_all(own)
        self._table.put(self._key(), own)

    def append(self, value: Any) -> None:
        """Add one value at the end."""
        if type(value) not in IMMUTABLE:
            self._cell.sharing.note(value)
        self._write().append(value)

    def extend(self, values: Iterable[Any]) -> None:
        """Add values at the end."""
        added = list(values)
        if added:
            self._cell.sharing.note_all(added)
            self._write().extend(added)

    def clear(self) -> None:
        """Forget the list."""
        self._table.delete(self._key())

    def __iter__(self) -> Iterator[Any]:
        values = self._read()
        if not IMMUTABLE.issuperset(map(type, values)):
            # The loop may change what it is given.
            self._cell.sharing.note_all(values)
            values = self._write()
        return iter(values)

    def __len__(self) -> int:
        return len(self._read())

    def __bool__(self) -> bool:
        return len(self._read()) > 0

    def __repr__(self) -> str:
        return f"<ListState '{self._name}' of key {self._cell.key!r}>"


class ReducingHandle(_SingleHandle):
    """What a reducer has made of all values added for the current key."""

    __slots__ = ("_reduce", "_table")

    def __init__(self, cell: KeyCell, table: Table, reduce: Callable[[Any, Any], Any]) -> None:
        super().__init__(cell, table.spec.name)
        self._table = table
        self._reduce = reduce

    @property
    def value(self) -> Any:
        """The result so far, or None when nothing was added."""
        key = self._key()
        value = self._table.load(key, None)
        if not is_immutable(value):
            self._cell.sharing.begin()
            self._table.put(key, value)
        return value

    def add(self, value: Any) -> None:
        """Take in one value more: the first one itself, then `reduce(result so far, value)`."""
        key = self._key()
        before = self._table.load(key, ABSENT)
        result = value if before is ABSENT else self._reduce(before, value)
        if type(result) not in IMMUTABLE:
            self._cell.sharing.note(result)
        self._table.put(key, result)

    def clear(self) -> None:
        """Forget everything that was added."""
        self._table.delete(self._key())

    def __repr__(self) -> str:
        return f"<ReducingState '{self._name}' of key {self._cell.key!r}>"


class MapHandle(_Handle, MutableMapping[Any, Any]):
    """A mapping of the current key. It is walked through in one order (of the canonical map keys) in every backend."""

    __slots__ = ("_table",)

    def __init__(self, cell: KeyCell, table: MapTable) -> None:
        super().__init__(cell, table.spec.name)
        self._table = table

    def __getitem__(self, map_key: Any) -> Any:
        key = self._key()
        value = self._table.get(key, map_key)
        if value is ABSENT:
            raise KeyError(map_key)
        if type(value) not in IMMUTABLE and not is_immutable(value):
            self._cell.sharing.begin()
            self._table.put(key, map_key, value)
        return value

    def __setitem__(self, map_key: Any, value: Any) -> None:
        if type(map_key) not in PLAIN_KEYS:
            canonical(map_key)
        if type(value) not in IMMUTABLE:
            self._cell.sharing.note(value)
        self._table.put(self._key(), map_key, value)

    def __delitem__(self, map_key: Any) -> None:
        if map_key not in self:
            raise KeyError(map_key)
        self._table.delete(self._key(), map_key)

    def __contains__(self, map_key: object) -> bool:
        return self._table.contains(self._key(), map_key)

    def __iter__(self) -> Iterator[Any]:
        return (map_key for map_key, _ in self._table.items(self._key()))

    def __len__(self) -> int:
        return sum(1 for _ in self._table.items(self._key()))

    def __bool__(self) -> bool:
        return next(self._table.items(self._key()), None) is not None

    def clear(self) -> None:
        """Forget all entries."""
        self._table.clear(self._key())

    def __repr__(self) -> str:
        return f"<MapState '{self._name}' of key {self._cell.key!r}>"
