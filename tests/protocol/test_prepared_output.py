"""`protocol.prepared_output`: what may be aborted, and above all what may not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flowpoint.protocol.prepared_output import PreparedOutput


def held(*checkpoints: int) -> list[dict[str, object]]:
    """What a sink has in its state when it has prepared something for each of these."""
    return [{"checkpoint": checkpoint, "data": f"rows {checkpoint}"} for checkpoint in checkpoints]


def void_of(output: PreparedOutput) -> list[object]:
    return [one.committable for one in output.void()]


def test_while_an_attempt_lives_nothing_is_void_whatever_fails():
    output = PreparedOutput()

    output.acknowledged("out", 0, held(1))
    output.acknowledged("out", 0, held(1, 2, 3))

    assert output.void() == []


def test_when_the_next_attempt_has_begun_then_what_is_newer_than_the_newest_checkpoint_is_void():
    output = PreparedOutput()
    output.acknowledged("out", 0, held(1, 2, 3))

    output.settle(2)

    assert void_of(output) == ["rows 3"]


def test_when_the_log_has_a_checkpoint_whose_entry_was_never_confirmed_then_its_output_is_not_void():
    output = PreparedOutput()
    output.acknowledged("out", 0, held(1))
    output.counts(1)
    output.acknowledged("out", 0, held(2))

    output.settle(2)

    assert output.void() == []


def test_what_a_checkpoint_counts_is_forgotten_at_once():
    output = PreparedOutput()
    output.acknowledged("out", 0, held(1, 2))

    output.counts(2)
    output.settle(0)

    assert output.void() == []


def test_what_a_savepoint_may_hold_is_never_void_though_later_checkpoints_name_it_again():
    output = PreparedOutput()
    output.acknowledged("out", 0, held(1))
    output.handed_out(2)
    output.acknowledged("out", 0, held(1, 2, 3))

    output.settle(0)

    assert void_of(output) == ["rows 3"]


def test_what_could_not_be_aborted_stays_void_although_newer_checkpoints_count_meanwhile():
    output = PreparedOutput()
    output.acknowledged("out", 0, held(1))
    output.settle(0)

    output.counts(7)
    output.settle(7)

    assert void_of(output) == ["rows 1"]


def test_what_was_aborted_is_not_void_any_more():
    output = PreparedOutput()
    output.acknowledged("out", 0, held(1, 2))
    output.settle(0)

    output.aborted(output.void()[0])

    assert void_of(output) == ["rows 2"]


def test_subtasks_and_sinks_are_told_apart_and_each_gets_its_own_in_order():
    output = PreparedOutput()
    output.acknowledged("out", 1, held(3))
    output.acknowledged("out", 0, held(4, 3))
    output.acknowledged("copy", 0, held(3))

    output.settle(2)

    assert [(one.uid, one.subtask, one.checkpoint) for one in output.void()] == [
        ("copy", 0, 3),
        ("out", 0, 3),
        ("out", 0, 4),
        ("out", 1, 3),
    ]


@given(st.lists(st.tuples(st.sampled_from(["ack", "counts", "savepoint", "settle"]), st.integers(1, 9)), max_size=30))
def test_nothing_is_void_that_a_checkpoint_of_its_attempt_counts_or_a_savepoint_may_hold(steps):
    output = PreparedOutput()
    newest = handed_out = 0
    for step, number in steps:
        before = {id(one) for one in output.void()}
        match step:
            case "ack":
                output.acknowledged("out", 0, held(*range(newest + 1, number + 1)))
            case "counts":
                newest = max(newest, number)
                output.counts(newest)
            case "savepoint":
                handed_out = max(handed_out, number)
                output.handed_out(handed_out)
            case "settle":
                output.settle(newest)
        new = [one for one in output.void() if id(one) not in before]
        assert all(one.checkpoint > max(newest, handed_out) for one in new)
        assert not new or step == "settle"
