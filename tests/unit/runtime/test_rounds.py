"""What goes along with the last answer of a worker about a checkpoint goes once."""

from __future__ import annotations

from flowpoint.model.messages import Ack, Committed
from flowpoint.model.plan import SubtaskId
from flowpoint.runtime.rounds import Rounds

SUBTASKS = [SubtaskId(0, 0), SubtaskId(0, 1), SubtaskId(1, 0)]


def ack(checkpoint: int, at: int) -> Ack:
    return Ack(1, checkpoint, list(SUBTASKS[at]), {})


def rounds() -> Rounds:
    return Rounds(SUBTASKS, SUBTASKS[2:])


def test_of_all_acknowledgements_of_a_checkpoint_the_last_one_ends_the_round() -> None:
    answers = rounds()

    assert [answers.ends_with(ack(1, at)) for at in (2, 0, 1)] == [False, False, True]


def test_one_that_answers_twice_stands_for_nobody_else() -> None:
    answers = rounds()

    assert [answers.ends_with(ack(1, at)) for at in (0, 0, 0, 1)] == [False] * 4


def test_checkpoints_that_overlap_end_each_by_itself() -> None:
    answers = rounds()
    order = [ack(1, 0), ack(2, 0), ack(1, 1), ack(2, 1), ack(1, 2), ack(2, 2)]

    assert [answers.ends_with(answer) for answer in order] == [False, False, False, False, True, True]


def test_only_sinks_are_waited_for_to_commit() -> None:
    answers = rounds()

    assert not answers.ends_with(ack(1, 2))
    assert answers.ends_with(Committed(1, 1, list(SUBTASKS[2])))


def test_a_checkpoint_that_was_given_up_is_not_remembered_for_ever() -> None:
    answers = rounds()
    for checkpoint in range(1, 100):
        answers.ends_with(ack(checkpoint, 0))
    for at in range(3):
        answers.ends_with(ack(100, at))

    assert answers._missing == {}
