"""What goes wrong with other savers, on ours: types that change, values that cannot be saved, deaths, swapped bytes."""

from __future__ import annotations

import operator
import os
import signal
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Generic, TypedDict, TypeVar
from zoneinfo import ZoneInfo

import numpy as np
import pydantic
import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, StateGraph

from flowpoint.agents.saver import CoreSaver
from flowpoint.agents.types import types_of
from flowpoint.errors import BadRecordError, DamagedStoreError, SealError
from tests.unit.agents.stores import THREAD, config, each_saver, ids, open_saver, put

T = TypeVar("T")


class Kind(StrEnum):
    A = "a"


class Order(pydantic.BaseModel):
    kind: Kind
    kinds: dict[Kind, list[Kind]]


class Box(pydantic.BaseModel, Generic[T]):
    content: T


class State(TypedDict, total=False):
    trail: Annotated[list[str], operator.add]
    kind: Kind
    order: Order
    box: Box[Order]
    notes: Any


def in_a_row(*nodes: tuple[str, Callable[[State], Any]]) -> StateGraph:
    builder = StateGraph(State)
    for (name, node), before in zip(nodes, [START, *(name for name, _ in nodes)], strict=False):
        builder.add_node(name, node)
        builder.add_edge(before, name)
    return builder


def kept(kind: str, path: Path, value: State) -> dict[str, Any]:
    """What a node of a later process reads of what one of an earlier process has written."""
    read: list[Any] = []

    def look(state: State) -> State:
        read.append(dict(state))
        return {}

    builder = in_a_row(("write", lambda state: value), ("look", look))
    with open_saver(kind, path, types=types_of(builder)) as saver:
        builder.compile(checkpointer=saver, interrupt_before=["look"]).invoke({"trail": []}, THREAD)
    with open_saver(kind, path, types=types_of(builder)) as saver:
        builder.compile(checkpointer=saver).invoke(None, THREAD)
    return read[0]


@each_saver
def test_enums_and_models_that_hold_them_are_read_as_what_they_were(kind: str, tmp_path: Path) -> None:
    order = Order(kind=Kind.A, kinds={Kind.A: [Kind.A]})
    found = kept(kind, tmp_path, {"kind": Kind.A, "order": order, "box": Box[Order](content=order)})

    assert found["kind"] is Kind.A
    assert found["order"] == order and type(found["order"].kind) is Kind
    assert [type(one) for one in found["order"].kinds] == [Kind]
    assert type(found["box"]) is Box[Order] and found["box"].content == order


@each_saver
def test_collections_and_moments_keep_their_types(kind: str, tmp_path: Path) -> None:
    moment = datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
    values = [
        defaultdict(list, a=[1]), Counter("aab"), OrderedDict([("b", 1), ("a", 2)]), deque([1, 2, 3], maxlen=2),
        (1, (2,)), {1}, frozenset({2}), moment, 1 << 70,
    ]  # fmt: skip
    found = kept(kind, tmp_path, {"notes": values})["notes"]

    assert found == values
    assert list(map(type, found)) == list(map(type, values))
    assert found[0].default_factory is list and found[3].maxlen == 2
    assert found[7].fold == 1 and found[7].utcoffset() == timedelta(hours=1)


@each_saver
def test_values_of_numpy_come_back(kind: str, tmp_path: Path) -> None:
    values = [np.array(["2024-01-01", "NaT"], dtype="datetime64[D]"), np.float32(1.5), np.int64(7), np.zeros((2, 0))]
    found = kept(kind, tmp_path, {"notes": values})["notes"]

    for one, other in zip(found, values, strict=True):
        assert type(one) is type(other) and one.dtype == other.dtype and one.shape == other.shape
        assert np.array_equal(one, other, equal_nan=True)


class DataFrame:
    """As pandas has it: a class that is none of the kinds that can be saved."""


@each_saver
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("value", [DataFrame(), 1 + 2j], ids=["DataFrame", "complex"])
def test_what_cannot_be_saved_is_refused_by_channel_and_type_and_the_thread_stays_at_the_step_before(
    value: Any, durability: Any, kind: str, tmp_path: Path
) -> None:
    given: list[Any] = [value]
    builder = in_a_row(("n1", lambda state: {"trail": ["n1"]}), ("n2", lambda state: {"notes": {"deep": [given[0]]}}))
    with open_saver(kind, tmp_path) as saver:
        graph = builder.compile(checkpointer=saver)
        with pytest.raises(BadRecordError, match=f"channel 'notes' of thread 't'.*{type(value).__name__}"):
            graph.invoke({"trail": ["in"]}, THREAD, durability=durability)

        if durability != "exit":
            assert graph.get_state(THREAD).values == {"trail": ["in", "n1"]}
            assert graph.get_state(THREAD).next == ("n2",)
            given[0] = "mended"
            assert graph.invoke(None, THREAD)["notes"] == {"deep": ["mended"]}
        else:
            assert graph.get_state(THREAD).values == {}
            assert ids(saver.list(None)) == []


@each_saver
def test_metadata_of_older_versions_may_hold_messages(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        legacy: Any = {"source": "loop", "step": 1, "parents": {}, "writes": {"n": {"messages": [AIMessage("hi")]}}}
        saver.put(config(), empty_checkpoint(), legacy, {})
        assert saver.get_tuple(config()).metadata["step"] == 1


class KilledInPut:
    """Kills the process when the checkpoint of a step is handed over, at once or when the step's writes are stored."""

    def __init__(self, saver: CoreSaver, step: int, *, writes_first: bool) -> None:
        self._put, self._put_writes = saver.put, saver.put_writes
        self._step, self._writes_first = step, writes_first
        self._wrote = threading.Event()
        saver.put, saver.put_writes = self.put, self.put_writes  # type: ignore[method-assign]

    def put(self, at: Any, checkpoint: Any, metadata: Any, versions: Any) -> Any:
        if metadata["step"] == self._step:
            if self._writes_first:
                self._wrote.wait(20)
            os.kill(os.getpid(), signal.SIGKILL)
        return self._put(at, checkpoint, metadata, versions)

    def put_writes(self, *given: Any) -> None:
        self._put_writes(*given)
        if ("trail", [f"step{self._step}"]) in given[1]:
            self._wrote.set()


@each_saver
@pytest.mark.parametrize("writes_first", [True, False], ids=["writes first", "checkpoint first"])
def test_a_step_whose_writes_were_stored_is_not_run_again_after_a_kill(
    kind: str, writes_first: bool, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"

    def node(name: str) -> tuple[str, Callable[[State], State]]:
        def run(state: State) -> State:
            with runs.open("a") as file:
                file.write(f"{name} ")
            return {"trail": [name]}

        return name, run

    builder = in_a_row(node("step1"), node("step2"), node("step3"))
    child = os.fork()
    if child == 0:
        try:
            saver = open_saver(kind, tmp_path)
            KilledInPut(saver, 2, writes_first=writes_first)
            builder.compile(checkpointer=saver).invoke({"trail": []}, THREAD, durability="sync")
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    with open_saver(kind, tmp_path) as saver:
        result = builder.compile(checkpointer=saver).invoke(None, THREAD)

    assert result["trail"] == ["step1", "step2", "step3"]
    if writes_first:
        assert runs.read_text().split() == ["step1", "step2", "step3"]
    else:
        assert runs.read_text().split() in (["step1", "step2", "step3"], ["step1", "step2", "step2", "step3"])


@each_saver
def test_a_sibling_that_finished_is_not_run_again_after_the_death_of_the_process(kind: str, tmp_path: Path) -> None:
    runs, stored = tmp_path / "runs", threading.Event()

    def node(name: str, before: Callable[[], object]) -> tuple[str, Callable[[State], State]]:
        def run(state: State) -> State:
            with runs.open("a") as file:
                file.write(f"{name} ")
            before()
            return {"trail": [name]}

        return name, run

    def die_once() -> None:
        if runs.read_text().split().count("bad") == 1:
            stored.wait(20)
            os._exit(137)

    builder = StateGraph(State)
    for name, before in (("bad", die_once), ("good", lambda: None)):
        builder.add_node(*node(name, before))
        builder.add_edge(START, name)
    child = os.fork()
    if child == 0:
        try:
            saver = open_saver(kind, tmp_path)
            put_writes = saver.put_writes

            def storing(*given: Any) -> None:
                put_writes(*given)
                if ("trail", ["good"]) in given[1]:
                    stored.set()

            saver.put_writes = storing  # type: ignore[method-assign]
            builder.compile(checkpointer=saver).invoke({"trail": []}, THREAD, durability="sync")
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 137
    with open_saver(kind, tmp_path) as saver:
        graph = builder.compile(checkpointer=saver)
        assert graph.get_state(THREAD).next == ("bad",)
        assert sorted(graph.invoke(None, THREAD)["trail"]) == ["bad", "good"]

    assert sorted(runs.read_text().split()) == ["bad", "bad", "good"]


@each_saver
def test_a_very_large_value_is_stored_and_not_written_again_with_other_channels(kind: str, tmp_path: Path) -> None:
    def stored(saver: CoreSaver) -> int:
        return sum(len(value) for _key, value in saver.core.kv.scan("t/"))

    large = os.urandom(20_000_000)
    with open_saver(kind, tmp_path) as saver:
        at = put(saver, config(), {"large": large, "n": 0}, versions={"large": 1, "n": 1})
        before = stored(saver)
        for step in range(2, 5):
            versions = {"large": 1, "n": step}
            at = put(saver, at, {"large": large, "n": step}, versions=versions, changed={"n": step})
        assert stored(saver) - before < 5000
    with open_saver(kind, tmp_path) as saver:
        assert saver.get_tuple(config()).checkpoint["channel_values"] == {"large": large, "n": 4}


def replace(saver: CoreSaver, key: str, data: bytes) -> None:
    saver.core.kv.write([], [key])
    saver.core.kv.write([(key, data)])


@each_saver
@pytest.mark.parametrize("what", ["b", "c", "w"], ids=["a value", "a commit", "pending writes"])
@pytest.mark.parametrize("by", ["plain bytes", "those of another thread", "those of another checkpoint"])
def test_an_encrypted_entry_that_was_swapped_is_refused(by: str, what: str, kind: str, tmp_path: Path) -> None:
    keys = {"k": bytes(32)}
    (tmp_path / "plain").mkdir()
    with open_saver(kind, tmp_path, keys=keys) as saver, open_saver(kind, tmp_path / "plain") as plain:
        for store, threads in ((saver, ("t", "other")), (plain, ("t",))):
            for thread in threads:
                at = config(thread)
                for id_ in ("1", "2"):
                    at = put(store, at, {"secret": f"{thread}{id_}" * 40_000}, id=id_)
                    store.put_writes(at, [("secret", "s")], "task")

        def entries(store: CoreSaver, thread: str) -> list[tuple[str, bytes]]:
            return list(store.core.kv.scan(f"t/{thread}/{what}/"))

        (key, _), (_, sibling) = entries(saver, "t")
        by_others = {
            "plain bytes": entries(plain, "t")[0][1],
            "those of another thread": entries(saver, "other")[0][1],
            "those of another checkpoint": sibling,
        }
        replace(saver, key, by_others[by])
    with open_saver(kind, tmp_path, keys=keys) as saver:
        with pytest.raises((SealError, DamagedStoreError)) as caught:
            list(saver.list(THREAD))
        assert "thread 't'" in str(caught.value)
        assert saver.get_tuple(config("other")).checkpoint["channel_values"] == {"secret": "other2" * 40_000}
