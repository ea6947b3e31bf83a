"""Broadcast state is one mapping for all keys that only records of the broadcast stream may change."""

from __future__ import annotations

from typing import Any

import pytest

from flowpoint.codec.values import Codec
from flowpoint.errors import BadRecordError, UserCodeError
from flowpoint.model.manifest import StateFile
from flowpoint.state.broadcast import BroadcastAccess, BroadcastState, bind_broadcast
from flowpoint.state.descriptor import bind
from flowpoint.state.handles import KeyCell
from flowpoint.state.heap import HeapBackend
from flowpoint.state.kinds import ValueState


class Function:
    """A user's function."""

    rules = BroadcastState("rules")
    seen = ValueState("seen", default=0)


def bound(backend: HeapBackend | None = None) -> tuple[Any, BroadcastAccess, HeapBackend]:
    backend = backend or HeapBackend(Codec(), 16)
    function, access = Function(), BroadcastAccess()
    bind_broadcast(function, backend, access)
    access.writable = True
    return function, access, backend


def test_it_is_a_mapping() -> None:
    function, _, _ = bound()
    function.rules["a"] = 1
    function.rules["b", 2] = [1]
    function.rules["b", 2].append(2)
    del function.rules["a"]

    assert dict(function.rules) == {("b", 2): [1, 2]}
    assert (len(function.rules), "a" in function.rules, function.rules.get("a")) == (1, False, None)

    function.rules.clear()
    assert not function.rules


@pytest.mark.parametrize(
    "change",
    [
        lambda rules: rules.update(a=2),
        lambda rules: rules.pop("a"),
        lambda rules: rules.clear(),
        lambda rules: rules.setdefault("b", 1),
    ],
)
def test_it_can_be_read_at_any_time_and_changed_only_for_a_record_of_the_broadcast_stream(change: Any) -> None:
    function, access, _ = bound()
    function.rules["a"] = 1
    access.writable = False

    with pytest.raises(UserCodeError, match="broadcast state 'rules' was changed where a subtask is alone with it"):
        change(function.rules)

    assert dict(function.rules) == {"a": 1}


def test_it_is_there_whole_after_a_restore_in_whatever_subtask() -> None:
    function, _, backend = bound()
    function.rules.update({n: [n] for n in range(50)})
    frozen = backend.freeze()
    data = b"".join(frozen.chunks())

    restored = HeapBackend(Codec(), 16)
    restored.restore([(StateFile("f", "base", len(data), "", groups=(0, 15)), data)], (0, 15))

    again, _, _ = bound(restored)
    assert dict(again.rules) == {n: [n] for n in range(50)}
    assert restored.unclaimed() == []


def test_a_key_that_cannot_be_stored_is_refused_at_once() -> None:
    function, _, _ = bound()

    with pytest.raises(BadRecordError):
        function.rules[float("nan")] = 1


def test_keyed_and_broadcast_states_of_one_function_are_bound_apart() -> None:
    function, _, backend = bound()

    with pytest.raises(UserCodeError, match="'seen' of Function was used before the job runs"):
        _ = function.seen
    bind(function, HeapBackend(Codec(), 16), KeyCell())

    assert list(backend.schemas()) == ["rules"]
