"""Hand-written stand-ins for what lies below the runtime: tables, channels, sources, sinks, and a wall clock."""

from __future__ import annotations

from flowpoint.codec.placement import GroupCache
from flowpoint.codec.values import Codec, TypeRegistry
from flowpoint.model.plan import OperatorKind
from flowpoint.runtime.chain import LoopOperator

CODEC = Codec(TypeRegistry())


class FakeTable:
    """A table in two layers, as the backends have them: `freeze` moves what is dirty below."""

    def __init__(self):
        self.dirty = {}
        self.below = {}
        self.loads = 0

    def load(self, key, default):
        self.loads += 1
        value = self.below.get(key, default)
        return value if value is default else CODEC.copy(value)

    def freeze(self):
        self.below.update(self.dirty)
        self.dirty = {}

    def contents(self):
        return {**self.below, **self.dirty}


def keyed(kind, function=None, key=lambda value: value, uid="op", table=None, **more):
    """A count, sum or reduce."""
    return LoopOperator(
        uid=uid,
        kind=OperatorKind(kind),
        function=function,
        key=key,
        key_name=f"key_by({uid})",
        table=table if table is not None else FakeTable(),
        check=GroupCache(128).miss,
        copy=CODEC.copy,
        **more,
    )


def plain(kind, function, uid="op"):
    """A map, filter or flat_map."""
    return LoopOperator(uid, OperatorKind(kind), function)


class FakeOutlet:
    """A channel that keeps what it is given; `writable` is switched by the test."""

    def __init__(self, writable=True, accept=lambda values: None):
        self._writable = writable
        self._accept = accept
        self.on_writable = None
        self.sent = []
        self.stamps = []
        """Of every batch in `sent`, its timestamps."""
        self.asked = 0

    @property
    def writable(self):
        self.asked += 1
        return self._writable

    @writable.setter
    def writable(self, value):
        was, self._writable = self._writable, value
        if value and not was and self.on_writable is not None:
            self.on_writable()

    def send_batch(self, values, timestamps):
        self._accept(values)
        self.sent.append(list(values))
        self.stamps.append(timestamps)

    def send_event(self, event):
        self.sent.append(event)

    @property
    def timed(self):
        """All records as (value, timestamp), and the events between them."""
        stamps = iter(self.stamps)
        flat = []
        for item in self.sent:
            if isinstance(item, list):
                times = next(stamps)
                flat += zip(item, times or [None] * len(item), strict=True)
            else:
                flat.append(item)
        return flat

    @property
    def records(self):
        """All records, batch by batch, and the events between them."""
        flat = []
        for item in self.sent:
            flat += item if isinstance(item, list) else [item]
        return flat
