"""State as a user declares and uses it: for the current key, kept when changed in place, refused when used wrongly."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from flowpoint.codec.values import Codec
from flowpoint.errors import BadRecordError, PlanError, UserCodeError
from flowpoint.model.manifest import StateFile
from flowpoint.state.descriptor import bind, declared
from flowpoint.state.handles import NO_KEY, KeyCell
from flowpoint.state.heap import HeapBackend
from flowpoint.state.kinds import ListState, MapState, ReducingState, ValueState
from flowpoint.state.spec import StateSpec


class Function:
    """A user's function with one state of each kind."""

    seen = ValueState("seen", default=0)
    profile = ValueState("profile", default={"visits": []})
    flags = ValueState("flags", default={"on": True})
    events = ListState("events")
    days = MapState("days")


class Running:
    """A bound instance, and the means to let it be called for a key."""

    def __init__(self, backend: HeapBackend | None = None) -> None:
        self.backend = backend or HeapBackend(Codec(), 16)
        self.cell = KeyCell()
        self.function = Function()
        bind(self.function, self.backend, self.cell)

    def of(self, key: Any) -> Function:
        self.cell.key = key
        return self.function

    def after_a_restore(self) -> Running:
        frozen = self.backend.freeze(full=True)
        data = b"".join(frozen.chunks())
        frozen.durable()
        restored = HeapBackend(Codec(), 16)
        restored.restore([(StateFile("f", "base", len(data), "", groups=(0, 15)), data)], (0, 15))
        return Running(restored)


def test_a_key_first_seen_after_a_restore_reads_the_declared_default() -> None:
    job = Running()
    job.of("a").seen.value += 1

    restored = job.after_a_restore()

    assert (restored.of("a").seen.value, restored.of("b").seen.value) == (1, 0)
    assert restored.of("b").profile.value == {"visits": []}


def test_each_key_has_its_own_state() -> None:
    job = Running()

    job.of("a").seen.value += 1
    job.of("a").seen.value += 1
    job.of("b").seen.value += 5

    assert job.of("a").seen.value == 2
    assert job.of("b").seen.value == 5
    assert job.of("c").seen.value == 0


def test_clear_brings_the_default_back() -> None:
    job = Running()
    job.of("a").seen.value = 3

    job.of("a").seen.clear()

    assert job.of("a").seen.value == 0


def test_none_is_a_value() -> None:
    job = Running()

    job.of("a").seen.value = None

    assert job.of("a").seen.value is None
    assert job.after_a_restore().of("a").seen.value is None


def test_a_mutable_value_changed_in_place_is_kept() -> None:
    job = Running()

    job.of("a").profile.value["visits"].append(1)

    assert job.of("a").profile.value == {"visits": [1]}
    again = job.after_a_restore()
    again.of("a").profile.value["visits"].append(2)
    assert again.after_a_restore().of("a").profile.value == {"visits": [1, 2]}


def test_a_mutable_default_is_not_shared() -> None:
    job = Running()

    job.of("a").profile.value["visits"].append(1)

    assert job.of("b").profile.value == {"visits": []}
    assert Function.profile.spec.default == {"visits": []}


def test_a_list_is_appended_to_extended_walked_through_and_cleared() -> None:
    job = Running()
    events = job.of("a").events
    assert not events
    assert list(events) == []

    events.append(1)
    events.extend([2, 3])

    assert list(events) == events.value == [1, 2, 3]
    assert len(events) == 3
    assert events
    assert list(job.of("b").events) == []
    assert list(job.after_a_restore().of("a").events) == [1, 2, 3]
    job.of("a").events.clear()
    assert len(job.of("a").events) == 0


def test_elements_of_a_list_that_are_changed_in_a_loop_over_it_are_in_the_next_delta() -> None:
    job = Running()
    job.of("a").events.append([1])
    written = job.backend.freeze()
    list(written.chunks())
    written.durable()

    for event in job.of("a").events:
        event.append(2)

    assert job.backend.freeze().entries == 1


def test_elements_of_a_restored_list_are_kept_apart_from_what_is_emitted_from_the_first_walk_on() -> None:
    job = Running()
    job.of("a").events.extend([1, [2]])
    restored = job.after_a_restore()
    assert not restored.cell.sharing.is_on

    elements = iter(restored.of("a").events)

    assert restored.cell.sharing.is_on
    assert list(elements) == [1, [2]]


def test_a_list_that_is_assigned_is_copied_and_its_elements_may_be_changed_in_place() -> None:
    job = Running()
    mine = [[1], [2]]

    job.of("a").events.value = mine
    mine.append([3])
    again = job.after_a_restore()
    for event in again.of("a").events:
        event.append(0)

    assert list(again.after_a_restore().of("a").events) == [[1, 0], [2, 0]]


def test_an_empty_list_that_is_assigned_leaves_no_entry() -> None:
    job = Running()
    job.of("a").events.value = [1]

    job.of("a").events.value = []

    assert list(job.of("a").events) == []
    assert list(job.after_a_restore().backend.table(StateSpec("events", "list")).items()) == []


def test_only_reading_immutable_things_writes_nothing() -> None:
    job = Running()
    job.of("a").events.extend([1, 2])
    job.of("a").days["x"] = 1
    job.of("a").seen.value = 1
    again = job.after_a_restore()

    function = again.of("a")
    read = (list(function.events), len(function.events), bool(function.events), function.days["x"], function.seen.value)

    assert read == ([1, 2], 2, True, 1, 1)
    assert again.backend.freeze().entries == 0


def test_extending_a_list_by_nothing_leaves_no_entry() -> None:
    job = Running()

    job.of("a").events.extend([])

    assert job.backend.freeze().entries == 0


def test_a_default_that_is_changed_only_where_its_equality_does_not_look_is_kept() -> None:
    job = Running()

    job.of("a").profile.value["visits"] = ()
    job.of("b").flags.value["on"] = 1
    job.cell.clear()

    assert job.of("a").profile.value == {"visits": ()}
    assert job.of("b").flags.value == {"on": 1}
    assert type(job.of("b").flags.value["on"]) is int


def test_a_key_that_is_read_again_after_it_was_cleared_stays_cleared() -> None:
    job = Running()
    job.of("a").events.append(1)
    job.cell.clear()
    again = job.after_a_restore()

    events = again.of("a").events
    events.clear()
    assert events.value == []
    again.cell.clear()

    assert list(again.of("a").events) == []
    assert list(again.after_a_restore().backend.table(StateSpec("events", "list")).items()) == []


def test_a_map_is_a_mutable_mapping() -> None:
    job = Running()
    days = job.of("a").days

    days["x"] = 1
    days.update({"y": 2, ("z", 1): 3})
    days.setdefault("list", []).append(5)
    del days["y"]

    assert dict(days) == {"x": 1, ("z", 1): 3, "list": [5]}
    assert len(days) == 3
    assert "x" in days
    assert "y" not in days
    assert days.get("y", "none") == "none"
    assert days.pop("x") == 1
    with pytest.raises(KeyError, match="y"):
        days["y"]
    with pytest.raises(KeyError, match="y"):
        del days["y"]
    assert not job.of("b").days
    assert dict(job.after_a_restore().of("a").days) == {("z", 1): 3, "list": [5]}
    job.of("a").days.clear()
    assert not job.of("a").days


def test_a_mutable_map_value_changed_in_place_is_kept() -> None:
    job = Running()
    job.of("a").days["x"] = [1]
    again = job.after_a_restore()

    again.of("a").days["x"].append(2)
    for values in again.of("a").days.values():
        values.append(3)

    assert dict(again.after_a_restore().of("a").days) == {"x": [1, 2, 3]}


def test_a_map_key_that_cannot_be_kept_is_refused_at_once() -> None:
    with pytest.raises(BadRecordError, match="NaN"):
        Running().of("a").days[float("nan")] = 1


@pytest.mark.parametrize(
    "use",
    [
        lambda f: f.seen.value, lambda f: setattr(f.seen, "value", 1), lambda f: f.seen.clear(),
        lambda f: f.events.append(1),
        lambda f: list(f.events), lambda f: f.days["x"], lambda f: f.days.clear(), lambda f: f.profile.value,
    ],
)  # fmt: skip
def test_use_outside_a_keyed_call_is_an_error_that_says_so(use: Callable[[Function], Any]) -> None:
    job = Running()
    job.of("a").seen.value = 1
    job.cell.clear()
    assert job.cell.key is NO_KEY

    with pytest.raises(UserCodeError, match=r"outside a keyed call.*only inside process\(\) and on_timer\(\)"):
        use(job.function)
    with pytest.raises(UserCodeError, match=r"before the job runs"):
        use(Function())


def test_assigning_to_the_state_itself_is_an_error_that_shows_the_right_way() -> None:
    with pytest.raises(UserCodeError, match=r"assign to self\.seen\.value"):
        Running().of("a").seen = 5  # type: ignore[assignment]


def test_a_copy_of_a_function_is_bound_by_itself() -> None:
    one = Running()
    one.of("a").seen.value = 1
    other = Running()
    other.function = copy.deepcopy(Function())
    bind(other.function, other.backend, other.cell)

    assert other.of("a").seen.value == 0
    assert one.of("a").seen.value == 1


def test_states_are_inherited_and_can_be_overridden() -> None:
    class Child(Function):
        seen = ValueState("seen", default=10)  # type: ignore[assignment]
        more = ListState("more")

    assert [state.spec.name for state in declared(Child)] == [
        "days",
        "events",
        "flags",
        "more",
        "profile",
        "seen",
    ]
    child = Child()
    cell = KeyCell()
    bind(child, HeapBackend(Codec(), 16), cell)
    cell.key = "a"
    assert child.seen.value == 10


class TestDeclarationsThatAreRefused:
    def test_two_states_of_one_name(self) -> None:
        twins = type("Twins", (), {"a": ValueState("same"), "b": ListState("same")})

        with pytest.raises(PlanError, match="Twins: it declares two states named 'same'"):
            bind(twins(), HeapBackend(Codec(), 16), KeyCell())

    @pytest.mark.parametrize("name", ["", "__timers__", 5, None])
    def test_a_name_that_is_none(self, name: Any) -> None:
        with pytest.raises(PlanError, match="a name is a str"):
            ValueState(name)

    def test_time_to_live(self) -> None:
        with pytest.raises(PlanError, match="'a' with ttl='1h': time to live is not supported yet"):
            MapState("a", ttl="1h")

    def test_a_default_that_is_a_factory(self) -> None:
        with pytest.raises(PlanError, match=r"write default=list\(\)"):
            ValueState("a", default=list)

    def test_a_default_that_is_nested_too_deeply(self) -> None:
        deep: list[Any] = []
        for _ in range(1200):
            deep = [deep]

        with pytest.raises(PlanError, match="cannot declare state 'a' with this default: .*; flatten it"):
            ValueState("a", default=deep)

    def test_a_class_with_slots(self) -> None:
        slotted = type("Slotted", (), {"__slots__": (), "a": ValueState("a")})

        with pytest.raises(PlanError, match="Slotted: its class has __slots__"):
            bind(slotted(), HeapBackend(Codec(), 16), KeyCell())


# ------------------------------------------------------------------ reducing state


class Reducing:
    total = ReducingState("total", lambda a, b: a + b)


def reducing(backend: HeapBackend | None = None) -> tuple[Reducing, KeyCell, HeapBackend]:
    backend, cell, function = backend or HeapBackend(Codec(), 16), KeyCell(), Reducing()
    bind(function, backend, cell)
    return function, cell, backend


def test_reducing_state_is_what_the_function_makes_of_all_that_was_added() -> None:
    function, cell, _ = reducing()
    cell.key = "a"
    assert function.total.value is None

    for value in (1, 2, 3):
        function.total.add(value)
    cell.key = "b"
    function.total.add([7])
    function.total.value.append(8)

    assert function.total.value == [7, 8]
    cell.key = "a"
    assert function.total.value == 6
    function.total.clear()
    assert function.total.value is None


def test_reducing_state_goes_on_from_what_was_stored() -> None:
    function, cell, backend = reducing()
    cell.key = "a"
    function.total.add(1)
    backend.freeze().durable()
    function.total.add(2)

    assert function.total.value == 3


def test_none_is_a_value_to_reduce_like_any_other() -> None:
    class Last:
        last = ReducingState("last", lambda before, value: value)

    backend, cell, function = HeapBackend(Codec(), 16), KeyCell(), Last()
    bind(function, backend, cell)
    cell.key = 1
    function.last.add(None)
    function.last.add(None)

    assert function.last.value is None


def test_reducing_state_without_a_function_is_refused() -> None:
    with pytest.raises(PlanError, match="cannot declare state 'total' with reduce=3: pass a function"):
        ReducingState("total", 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "use",
    [
        lambda state: state + 1,
        lambda state: 1 + state,
        lambda state: state - 1,
        lambda state: state > 3,
        lambda state: state == 3,
        lambda state: state != 3,
        bool,
        len,
        list,
        lambda state: 3 in state,
        lambda state: state[0],
        int,
    ],
)
def test_a_state_that_is_taken_for_its_value_says_what_to_write(use: Callable[[Any], object]) -> None:
    with pytest.raises(UserCodeError, match=r"the state 'seen' was used as if it were its value; write \.value"):
        use(Running().of("a").seen)


def test_a_method_of_the_value_is_looked_for_behind_value() -> None:
    with pytest.raises(AttributeError, match=r"the state 'seen' has no append: .* write \.value\.append"):
        Running().of("a").seen.append(1)


# ---------------------------------------------------------------------- types and versions


def test_a_declaration_says_of_which_type_and_version_its_values_are() -> None:
    state = ValueState("total", int, version=3, migrate={1: str, 2: int})

    assert (str(state.spec.type), state.spec.version, sorted(state.spec.migrate)) == ("int", 3, [1, 2])


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda: ValueState("total", 0), "cannot use 0 as the type of a state"),
        (lambda: ValueState("total", int, version=0), "version=0: versions are whole numbers from 1 on"),
        (lambda: ValueState("total", int, migrate={1: str}), "in version 1: give it version=2"),
        (lambda: ListState("total", int, version=2, migrate={2: str}), "a migration from version 2"),
        (lambda: MapState("total", int, version=2, migrate={1: 5}), "that is no function"),
        (lambda: ValueState("total", {"a": (int, 0, 1)}), "write a type, or"),
    ],
)
def test_a_type_or_version_that_makes_no_sense_is_refused_where_it_is_declared(declare: Any, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        declare()
