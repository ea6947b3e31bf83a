"""`protocol.assignment`: which new subtask takes over which part of a snapshot."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowpoint.errors import IncompatibleStateError, SnapshotError
from flowpoint.model.key_groups import group_range, owner_of
from flowpoint.model.manifest import NO_GROUPS, OperatorState, StateFile, SubtaskState
from flowpoint.model.plan import JobPlan, OperatorKind, OperatorSpec, TaskSpec
from flowpoint.protocol.assignment import assign_state, initial_splits

GROUPS = 128


def plan_of(*specs, max_parallelism=GROUPS):
    """A plan of unchained operators, each given as (uid, kind, parallelism)."""
    operators = tuple(spec if isinstance(spec, OperatorSpec) else OperatorSpec(spec[0], *spec) for spec in specs)
    tasks = tuple(TaskSpec(index, (spec.uid,), spec.parallelism) for index, spec in enumerate(operators))
    return JobPlan("j", max_parallelism, operators, tasks, (), "f")


def keyed(parallelism, chain=("base", "delta")):
    """Snapshot of a keyed operator: each subtask has a chain of files over its own groups."""
    subtasks = []
    for index in range(parallelism):
        groups = group_range(index, parallelism, GROUPS)
        files = tuple(StateFile(f"{name}-{index}", name, 10, "c", 1, groups) for name in chain)
        subtasks.append(SubtaskState(files=files, groups=groups, states={"n": {"kind": "value"}}))
    return OperatorState(parallelism, tuple(subtasks))


def source(count, parallelism):
    """Snapshot of a source with `count` splits, dealt out as a start does it; every third has ended."""
    splits = [{"id": f"s{i}", "data": {"n": i}, "position": i * 10, "ended": i % 3 == 0} for i in range(count)]
    parts = (SubtaskState(splits=tuple(splits[i::parallelism])) for i in range(parallelism))
    return OperatorState(parallelism, tuple(parts)), splits


def sink(*committables):
    """Snapshot of a sink: per subtask, the checkpoints whose output it has not committed yet."""
    parts = [
        SubtaskState(committables=tuple({"checkpoint": c, "data": f"part-{i}-{c}"} for c in checkpoints))
        for i, checkpoints in enumerate(committables)
    ]
    return OperatorState(len(parts), tuple(parts))


def assign(operators, plan, **options):
    restored = assign_state(operators, plan, **{"max_parallelism": GROUPS, **options})
    assert json.loads(json.dumps(restored)) == json.loads(json.dumps(restored, default=list))
    return {uid: [[SubtaskState.from_data(part) for part in parts] for parts in new] for uid, new in restored.items()}


def flat(parts, what):
    return [item for part in parts for item in getattr(part, what)]


# ------------------------------------------------------------------ AC-50 and other refusals


def test_ac50_when_the_snapshot_has_a_uid_that_the_job_has_not_then_it_is_refused_by_name():
    plan = plan_of(("u1", OperatorKind.COUNT, 2))

    with pytest.raises(IncompatibleStateError, match=r"'u2', 'u3'.*--allow-non-restored"):
        assign({"u1": keyed(2), "u3": keyed(2), "u2": keyed(2)}, plan)


def test_ac50_when_that_is_allowed_then_the_others_are_restored():
    plan = plan_of(("u1", OperatorKind.COUNT, 2))

    restored = assign({"u1": keyed(2), "u2": keyed(2)}, plan, allow_non_restored=True)

    assert list(restored) == ["u1"]
    assert [file.path for file in flat(restored["u1"][1], "files")] == ["base-1", "delta-1"]


def test_when_an_unknown_uid_has_no_state_then_it_may_go():
    empty = OperatorState(1, (SubtaskState(states={"n": {}}),))

    assert assign({"u2": empty}, plan_of(("u1", OperatorKind.COUNT, 1))) == {}


def test_when_uids_were_generated_then_the_message_names_the_operators_that_need_one():
    generated = OperatorSpec("count-1a2b", "count", OperatorKind.COUNT, 1, uid_is_generated=True)

    with pytest.raises(IncompatibleStateError, match=r"without a uid of their own: count-1a2b"):
        assign({"count-9z9z": keyed(1)}, plan_of(generated))


def test_when_max_parallelism_differs_then_it_is_refused_with_both_numbers():
    with pytest.raises(IncompatibleStateError, match=r"max_parallelism=64.*128.*set max_parallelism=64"):
        assign({}, plan_of(("u1", OperatorKind.COUNT, 1)), max_parallelism=64)


@pytest.mark.parametrize(
    ("state", "kind", "what"),
    [
        (keyed(1), OperatorKind.SINK, "keyed state"),
        (source(1, 1)[0], OperatorKind.COUNT, "source positions"),
        (sink([1]), OperatorKind.SOURCE, "uncommitted output"),
    ],
)
def test_when_a_uid_now_belongs_to_another_kind_of_operator_then_it_is_refused(state, kind, what):
    with pytest.raises(IncompatibleStateError, match=rf"'u'.*{what}.*{kind}"):
        assign({"u": state}, plan_of(("u", kind, 1)))


def test_when_a_snapshot_lacks_a_subtask_then_it_is_damaged():
    broken = OperatorState(2, keyed(2).subtasks[:1])

    with pytest.raises(SnapshotError, match=r"'u' has 1 subtasks, it says 2"):
        assign({"u": broken}, plan_of(("u", OperatorKind.COUNT, 1)))


def test_when_a_snapshot_holds_a_split_twice_then_it_is_damaged():
    one, _ = source(1, 1)
    broken = OperatorState(2, one.subtasks * 2)

    with pytest.raises(SnapshotError, match=r"'u' holds splits twice: \['s0'\]"):
        assign({"u": broken}, plan_of(("u", OperatorKind.SOURCE, 2)))


# ------------------------------------------------------------------ dealing out


def test_when_the_job_has_a_new_operator_then_it_starts_empty():
    restored = assign({"old": keyed(1)}, plan_of(("old", OperatorKind.COUNT, 1), ("new", OperatorKind.COUNT, 1)))

    assert list(restored) == ["old"]


def test_when_the_parallelism_is_the_same_then_each_subtask_gets_its_own_files_in_order():
    restored = assign({"u": keyed(3)}, plan_of(("u", OperatorKind.COUNT, 3)))

    paths = [[file.path for file in flat(parts, "files")] for parts in restored["u"]]
    assert paths == [[f"base-{i}", f"delta-{i}"] for i in range(3)]
    assert restored["u"][0][0].states == {"n": {"kind": "value"}}


def test_when_it_scales_from_two_to_three_then_the_middle_one_reads_both_chains_apart():
    restored = assign({"u": keyed(2)}, plan_of(("u", OperatorKind.COUNT, 3)))

    paths = [[[file.path for file in part.files] for part in parts] for parts in restored["u"]]
    assert paths == [
        [["base-0", "delta-0"]],
        [["base-0", "delta-0"], ["base-1", "delta-1"]],
        [["base-1", "delta-1"]],
    ]


@settings(max_examples=150, deadline=None)
@given(old=st.integers(1, 40), new=st.integers(1, 40))
def test_when_it_scales_from_any_to_any_then_every_group_is_read_by_its_owner_from_all_that_hold_it(old, new):
    restored = assign({"u": keyed(old)}, plan_of(("u", OperatorKind.COUNT, new)))

    for group in range(GROUPS):
        holder = owner_of(group, old, GROUPS)
        mine = flat(restored["u"][owner_of(group, new, GROUPS)], "files")
        assert [file.path for file in mine if file.path.endswith(f"-{holder}")] == [f"base-{holder}", f"delta-{holder}"]
    for index, parts in enumerate(restored["u"]):
        first, last = group_range(index, new, GROUPS)
        assert all(file.groups[0] <= last and first <= file.groups[1] for file in flat(parts, "files"))


@settings(max_examples=150, deadline=None)
@given(count=st.integers(0, 30), old=st.integers(1, 8), new=st.integers(1, 8))
def test_when_a_source_scales_then_splits_are_dealt_out_as_enumerated_with_position_and_end(count, old, new):
    state, splits = source(count, old)

    restored = assign({"u": state}, plan_of(("u", OperatorKind.SOURCE, new)))

    assert [flat(parts, "splits") for parts in restored["u"]] == [splits[i::new] for i in range(new)]


def test_when_a_restored_source_has_fewer_splits_than_subtasks_then_the_idle_ones_still_know_that_it_is_restored():
    state, _ = source(1, 1)

    restored = assign_state({"u": state}, plan_of(("u", OperatorKind.SOURCE, 2)), max_parallelism=GROUPS)

    assert restored["u"][1] == [{}]


@settings(max_examples=150, deadline=None)
@given(
    held=st.lists(st.lists(st.integers(1, 9), unique=True, max_size=4).map(sorted), min_size=1, max_size=5),
    new=st.integers(1, 6),
)
def test_when_a_sink_scales_then_what_one_old_subtask_prepared_goes_to_one_subtask_oldest_first(held, new):
    restored = assign({"u": sink(*held)}, plan_of(("u", OperatorKind.SINK, new)))

    dealt = [flat(parts, "committables") for parts in restored["u"]]
    everything = sorted(c["data"] for parts in dealt for c in parts)
    assert everything == sorted(f"part-{i}-{c}" for i, checkpoints in enumerate(held) for c in checkpoints)
    for mine in dealt:
        assert [c["checkpoint"] for c in mine] == sorted(c["checkpoint"] for c in mine)
    for old, checkpoints in enumerate(held):
        holders = [[c["data"] for c in mine if c["data"].startswith(f"part-{old}-")] for mine in dealt]
        assert holders[old % new] == [f"part-{old}-{c}" for c in checkpoints]
        assert not any(others for new_index, others in enumerate(holders) if new_index != old % new)


def test_when_a_sink_keeps_its_parallelism_then_each_subtask_keeps_its_committables():
    restored = assign({"u": sink([3, 4], [])}, plan_of(("u", OperatorKind.SINK, 2)))

    assert [len(flat(parts, "committables")) for parts in restored["u"]] == [2, 0]


# ------------------------------------------------------------------ a source that starts empty


def test_when_a_source_starts_empty_then_its_splits_are_dealt_out_without_position():
    parts = initial_splits([("a", {"n": 0}), ("b", {"n": 1}), ("c", {"n": 2})], parallelism=2)

    ids = [[split["id"] for part in mine for split in part["splits"]] for mine in parts]
    assert ids == [["a", "c"], ["b"]]
    assert parts[1] == [{"splits": [{"id": "b", "data": {"n": 1}, "position": None, "ended": False}]}]


def test_when_a_source_enumerates_one_id_twice_then_it_is_refused():
    with pytest.raises(IncompatibleStateError, match=r"two splits of one id: \['a'\]"):
        initial_splits([("a", {}), ("a", {})], parallelism=1)


def test_when_a_restarted_source_is_dealt_out_then_it_is_as_at_its_start():
    start = initial_splits([(f"s{i}", {}) for i in range(7)], parallelism=3)
    snapshot = OperatorState(3, tuple(SubtaskState.from_data(mine[0]) for mine in start))

    again = assign_state({"u": snapshot}, plan_of(("u", OperatorKind.SOURCE, 3)), max_parallelism=GROUPS)

    assert again["u"] == start


# ------------------------------------------------------------------ broadcast state and watermarks


def co_process(*copies, watermarks=None):
    """Snapshot of a function with broadcast state: per subtask, its copy and its watermark."""
    watermarks = watermarks or [None] * len(copies)
    subtasks = [
        SubtaskState(
            broadcast=(StateFile(copy, "base", 10, "c", 1, (0, GROUPS - 1)),) if copy else (), watermark=watermark
        )
        for copy, watermark in zip(copies, watermarks, strict=True)
    ]
    return OperatorState(len(copies), tuple(subtasks))


def given_to(operator, parallelism, kind=OperatorKind.PLAIN_CO_PROCESS, **more):
    """What each new subtask takes over."""
    plan = plan_of(OperatorSpec("op", "op", kind, parallelism))
    dealt = assign_state({"op": operator}, plan, max_parallelism=GROUPS, **more)["op"]
    return [[SubtaskState.from_data(data) for data in states] for states in dealt]


@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 2), (3, 2), (2, 5)])
def test_every_new_subtask_takes_over_one_whole_copy_of_broadcast_state(before, after):
    copies = [f"copy-{index}" for index in range(before)]

    dealt = given_to(co_process(*copies), after)

    assert [[file.path for state in states for file in state.broadcast] for states in dealt] == [
        [copies[index % before]] for index in range(after)
    ]


def test_a_subtask_starts_at_its_own_watermark_and_at_the_least_of_all_after_a_rescale():
    operator = co_process("", "", watermarks=[100, 70])

    assert [[state.watermark for state in states] for states in given_to(operator, 2)] == [[100], [70]]
    assert [[state.watermark for state in states] for states in given_to(operator, 3)] == [[70]] * 3


def test_after_a_rescale_there_is_no_watermark_where_one_subtask_had_none():
    assert given_to(co_process("", "", watermarks=[100, None]), 1) == [[]]


def test_what_goes_on_from_a_drained_snapshot_begins_event_time_anew():
    operator = co_process("copy", watermarks=[2**63 - 1])

    assert [[state.watermark for state in states] for states in given_to(operator, 1, drained=True)] == [[None]]


def test_broadcast_state_for_an_operator_that_has_none_is_refused():
    with pytest.raises(IncompatibleStateError, match="'op': the snapshot holds broadcast state .* it is a map"):
        given_to(co_process("copy"), 1, kind=OperatorKind.MAP)


def test_a_watermark_alone_is_no_state_that_could_be_lost():
    plan = plan_of(("other", OperatorKind.MAP, 1))

    assert assign_state({"gone": co_process("", watermarks=[5])}, plan, max_parallelism=GROUPS) == {}


# ------------------------------------------------------------------ records under way


def under_way(parallelism, *, keyed):
    """Channel state of an operator without state of its own: one file per subtask."""
    subtasks = []
    for index in range(parallelism):
        groups = group_range(index, parallelism, GROUPS) if keyed else NO_GROUPS
        subtasks.append(SubtaskState(channels=(StateFile(f"f{index}", "channel", 10, "c", 5, groups),)))
    return OperatorState(parallelism, tuple(subtasks))


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3), (3, 5), (5, 3), (3, 3)])
def test_ac17_keyed_records_under_way_go_to_the_owners_of_their_key_groups(before, after):
    plan = plan_of(("u", OperatorKind.MAP, after))

    restored = assign({"u": under_way(before, keyed=True)}, plan)["u"]

    for group in range(GROUPS):
        new, old = owner_of(group, after, GROUPS), owner_of(group, before, GROUPS)
        assert f"f{old}" in [file.path for file in flat(restored[new], "channels")]
    for index, parts in enumerate(restored):
        first, last = group_range(index, after, GROUPS)
        assert all(file.groups[0] <= last and first <= file.groups[1] for file in flat(parts, "channels"))


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3), (3, 5), (5, 3), (3, 3)])
def test_ac17_other_records_under_way_go_to_one_subtask_each(before, after):
    plan = plan_of(("u", OperatorKind.MAP, after))

    restored = assign({"u": under_way(before, keyed=False)}, plan)["u"]

    dealt = [file.path for parts in restored for file in flat(parts, "channels")]
    assert sorted(dealt) == [f"f{index}" for index in range(before)]


def test_when_the_operator_that_records_were_on_their_way_to_is_gone_then_the_snapshot_is_refused():
    plan = plan_of(("other", OperatorKind.MAP, 1))

    with pytest.raises(IncompatibleStateError, match="'u'.*--allow-non-restored"):
        assign({"u": under_way(2, keyed=False)}, plan)
