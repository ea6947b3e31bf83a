"""Whatever happens in whatever order, a backend says what a dict says, and a restore what it said at the freeze."""

from __future__ import annotations

import tempfile
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flowpoint.codec.values import Codec
from flowpoint.state.backend import Backend, Frozen
from flowpoint.state.open import open_backend
from flowpoint.state.restored import RestoredBase
from flowpoint.state.rocksdb import RocksBase
from flowpoint.state.spec import ABSENT
from flowpoint.state.tables import LayeredMapTable, LayeredTable
from tests.conformance.state_jobs import KINDS, MAP, MAX, VALUE, Job, contents

KEYS = st.sampled_from(["a", "b", 0, 1, True, 1.0, None, (1, "x"), "", 2.5])
VALUES = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=3)


class AnyHistory(RuleBasedStateMachine):
    """One backend beside two dicts, with freezes waiting to be written."""

    settings_ = KINDS["heap, little at a time"]

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.attempt = 0
        self.job = Job(self.open())
        self.model: dict[Any, Any] = {}
        self.maps: dict[Any, Any] = {}
        self.saved: tuple[dict[Any, Any], dict[Any, Any]] = ({}, {})
        self.waiting: list[tuple[Frozen, dict[Any, Any], dict[Any, Any]]] = []

    def open(self) -> Backend:
        self.attempt += 1
        return open_backend(self.settings_, Codec(), MAX, f"{self.folder.name}/{self.attempt}", "words")

    @rule(key=KEYS, value=VALUES)
    def put(self, key: Any, value: Any) -> None:
        self.job.backend.table(VALUE).put(key, value)
        self.model[key] = list(value) if isinstance(value, list) else value

    @rule(key=KEYS)
    def delete(self, key: Any) -> None:
        self.job.backend.table(VALUE).delete(key)
        self.model.pop(key, None)

    @rule(key=KEYS)
    def append(self, key: Any) -> None:
        table = self.job.backend.table(VALUE)
        value = table.load(key, None)
        if isinstance(value, list):
            value.append(0)
            table.put(key, value)
            self.model[key] = [*self.model[key], 0]

    @rule(key=KEYS, map_key=KEYS, value=VALUES)
    def put_entry(self, key: Any, map_key: Any, value: Any) -> None:
        self.job.backend.map_table(MAP).put(key, map_key, value)
        self.maps[key, map_key] = value

    @rule(key=KEYS, map_key=KEYS)
    def delete_entry(self, key: Any, map_key: Any) -> None:
        self.job.backend.map_table(MAP).delete(key, map_key)
        self.maps.pop((key, map_key), None)

    @rule(key=KEYS)
    def clear(self, key: Any) -> None:
        self.job.backend.map_table(MAP).clear(key)
        self.maps = {pair: value for pair, value in self.maps.items() if pair[0] != key}

    @rule(full=st.sampled_from([False, False, False, True]))
    def freeze(self, full: bool) -> None:
        self.waiting.append((self.job.backend.freeze(full=full), dict(self.model), dict(self.maps)))

    @precondition(lambda self: self.waiting)
    @rule(fails=st.sampled_from([False, False, True]))
    def write(self, fails: bool) -> None:
        frozen, *saved = self.waiting.pop(0)
        if fails:
            frozen.failed()
        else:
            self.job.write(frozen)
            self.saved = (saved[0], saved[1])

    @rule()
    def merge(self) -> None:
        self.job.backend.merge_some()

    @rule()
    def crash(self) -> None:
        self.job.backend.close()
        backend = self.open()
        backend.restore(self.job.files, (0, MAX - 1))
        self.job = Job(backend, self.job.files)
        self.waiting = []
        self.model, self.maps = dict(self.saved[0]), dict(self.saved[1])

    @invariant()
    def is_as_the_model_says(self) -> None:
        assert contents(self.job.backend) == self.model
        assert contents(self.job.backend, MAP) == self.maps
        table = self.job.backend.table(VALUE)
        for key in ("a", 0, None):
            assert table.load(key, ABSENT) == self.model.get(key, ABSENT)
        entries = self.job.backend.map_table(MAP)
        assert dict(entries.items("a")) == {pair[1]: value for pair, value in self.maps.items() if pair[0] == "a"}

    def teardown(self) -> None:
        self.job.backend.close()
        self.folder.cleanup()


class AnyHistoryOnRocks(AnyHistory):
    settings_ = KINDS["rocksdb without memory"]


class AnyHistoryInPartInMemory(AnyHistory):
    """The oldest entries lie in RocksDB; over them changes and deletions in memory."""

    settings_ = KINDS["rocksdb"]

    @rule()
    def checkpoint(self) -> None:
        self.freeze(full=False)
        while self.waiting:
            self.write(fails=False)
        self.job.merge()

    @rule(count=st.integers(1, 5))
    def evict(self, count: int) -> None:
        for table in (self.job.backend.table(VALUE), self.job.backend.map_table(MAP)):
            assert isinstance(table, LayeredTable | LayeredMapTable)
            base = table.base.base if isinstance(table.base, RestoredBase) else table.base
            if isinstance(base, RocksBase) and not base.must_copy:
                base.evict(count)


BUDGET = settings(deadline=None, suppress_health_check=list(HealthCheck))
TestAnyHistoryOnHeap = AnyHistory.TestCase
TestAnyHistoryOnHeap.settings = settings(BUDGET, max_examples=60, stateful_step_count=30)
TestAnyHistoryOnRocks = AnyHistoryOnRocks.TestCase
TestAnyHistoryOnRocks.settings = settings(BUDGET, max_examples=40, stateful_step_count=30)
TestAnyHistoryInPartInMemory = AnyHistoryInPartInMemory.TestCase
TestAnyHistoryInPartInMemory.settings = settings(BUDGET, max_examples=40, stateful_step_count=40)
