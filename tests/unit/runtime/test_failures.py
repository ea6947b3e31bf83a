"""Errors as data: kind, message, operator, the user's part of the trace, and whether a new attempt may help."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from flowpoint import errors
from flowpoint.runtime.attempt import describe_failure, first_cause
from flowpoint.runtime.chain import Loop
from flowpoint.runtime.failures import Doing, Place, explain, naming, users_trace
from flowpoint.state.kinds import ValueState
from tests.unit.runtime.fakes import CODEC, plain


def raised(error):
    """An error with a traceback."""
    try:
        raise error
    except BaseException as caught:
        return caught


def in_user_code(value):
    return 1 / value


@dataclass
class Undeclared:
    """A class that no job declares."""


def users_error():
    """What `Pipeline` raises for a user's function that fails."""
    loop = Loop([plain("map", in_user_code, "m")])
    try:
        loop.run([0])
    except ZeroDivisionError as error:
        located = loop.locate(error)
        located.__cause__ = error
        return raised(located)
    finally:
        loop.close()


def test_the_first_cause_is_found_inside_groups_of_groups():
    first = ValueError("first")
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [first, TypeError()]), KeyError()])

    assert first_cause(group) is first
    assert first_cause(first) is first


def test_a_users_error_shows_the_users_frames_only():
    failure = describe_failure(ExceptionGroup("g", [users_error()]), 7, 2, [1, 0])

    assert (failure.attempt, failure.worker, failure.subtask, failure.operator) == (7, 2, [1, 0], "m")
    assert (failure.kind, failure.retry) == ("UserCodeError", True)
    assert "in_user_code" in failure.trace
    assert "return 1 / value" in failure.trace
    assert failure.trace.rstrip().endswith("ZeroDivisionError: division by zero")
    assert "flowpoint chain" not in failure.trace
    assert "ExceptionGroup" not in failure.trace


def test_data_that_the_engine_cannot_handle_has_no_trace_of_the_engines_frames():
    with pytest.raises(errors.UnknownTypeError) as caught:
        CODEC.encode([Undeclared()])

    failure = describe_failure(caught.value, 1, 0, [0, 0])

    assert failure.kind == "UnknownTypeError"
    assert failure.trace == ""


def test_an_error_raised_by_a_builtin_has_no_trace_as_the_message_says_it_all():
    loop = Loop([plain("map", int, "m")])
    with pytest.raises(ValueError, match="invalid literal") as caught:
        loop.run(["x"])
    loop.close()

    assert users_trace(caught.value) == ""


@pytest.mark.parametrize("kind", errors.FINAL_ERRORS)
def test_bad_data_and_foreign_state_are_not_tried_again(kind):
    failure = describe_failure(kind("no"), 1, 0, [])

    assert (failure.kind, failure.message, failure.retry) == (kind.__name__, "no", False)


@pytest.mark.parametrize("kind", [errors.UserCodeError, errors.StorageError, errors.LinkLost, errors.SnapshotError])
def test_what_another_attempt_may_mend_is(kind):
    assert describe_failure(kind("no"), 1, 0, []).retry


def test_a_bug_of_ours_keeps_its_name_and_whole_trace():
    failure = describe_failure(raised(AssertionError("channel=1 is blocked already")), 1, 0, [], "counts")

    assert (failure.kind, failure.operator) == ("AssertionError", "counts")
    assert failure.message == "AssertionError: channel=1 is blocked already"
    assert "in raised" in failure.trace


def test_a_class_derived_from_ours_travels_as_ours():
    class Special(errors.BadRecordError):
        pass

    failure = describe_failure(Special("no"), 1, 0, [])

    assert (failure.kind, failure.retry) == ("BadRecordError", False)


def test_an_error_that_names_its_operator_keeps_it():
    error = errors.UserCodeError("no")
    error.operator = "inner"

    assert describe_failure(error, 1, 0, [], "outer").operator == "inner"


def test_naming_leaves_our_own_bugs_alone():
    with pytest.raises(errors.InternalError, match="^lost$"), naming("sink", "write()"):
        raise errors.InternalError("lost")


def test_naming_does_not_rename_an_operator():
    def fail():
        error = errors.StorageError("full")
        error.operator = "inner"
        raise error

    with pytest.raises(errors.StorageError) as caught, naming("outer", "write()"):
        fail()

    assert caught.value.operator == "inner"


class Total:
    """A keyed function that forgets that its state has no default."""

    total = ValueState("total")
    kept = ValueState("kept", default=0)

    def process(self, value):
        return None + value  # what self.total.value is for a new key

    def other(self, value):
        return "a" + value


def test_who_calculates_with_a_state_without_default_is_told_to_give_one():
    with pytest.raises(TypeError) as caught:
        Total().process(1)

    error = explain(Place("sums", "process", Doing.FUNCTION), caught.value, "on record 1")

    assert str(error).endswith(
        "; the state 'total' is None for a key that is new: declare it as ValueState('total', default=...)"
    )


def test_other_type_errors_get_no_such_advice():
    with pytest.raises(TypeError) as caught:
        Total().other(1)

    assert "default" not in str(explain(Place("sums", "process", Doing.FUNCTION), caught.value, "on record 1"))


class Unusual(BaseException):
    pass


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), SystemExit(3), Unusual()])
@pytest.mark.parametrize("is_awaited", [True, False])
def test_whatever_a_connector_raises_is_its_authors_error(raised, is_awaited):
    with pytest.raises(errors.UserCodeError, match=type(raised).__name__), naming("sink", "w", is_awaited=is_awaited):
        raise raised


@pytest.mark.parametrize("raised", [asyncio.CancelledError(), GeneratorExit()])
def test_the_end_of_a_task_is_its_authors_error_only_where_nothing_is_awaited(raised):
    with pytest.raises(type(raised)), naming("sink", "write()"):
        raise raised
    with pytest.raises(errors.UserCodeError), naming("sink", "write()", is_awaited=False):
        raise raised


def test_a_message_of_megabytes_is_cut_in_sentence_and_trace_and_it_is_said_how_much():
    error = raised(ValueError("begin " + "x" * 10_000_000 + " end"))
    explained = explain(Place("m", "map", Doing.FUNCTION), error, "on record 5")
    explained.__cause__ = error

    failure = describe_failure(explained, 1, 0, [])

    assert len(failure.message) < 700
    assert "ValueError: begin xxx" in failure.message
    assert failure.message.endswith("xxx end")
    assert "(9,999,510 characters left out)" in failure.message
    assert len(failure.trace) < 65_000
    assert failure.trace.startswith("Traceback")
    assert "characters left out" in failure.trace
