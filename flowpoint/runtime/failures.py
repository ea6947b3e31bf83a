"""Turns what user code raised into an error that names the operator and the record, and says what to do.

Whoever calls user code knows where it was (`Place`) and which record it held; `explain` makes the error. An error of
ours keeps its class, so that a `BadRecordError` from deep inside still ends the job instead of looping; anything else
becomes a `UserCodeError` with the original chained. What the engine itself got wrong is not explained away.

Text that differs between two runs of the same failure (addresses in a default repr) is left out: the restart policy
recognises an error that comes again by its message.

Not here: errors as data (`attempt.describe_failure`).
"""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import FrameType, TracebackType
from typing import Any, Final

from flowpoint.errors import (
    BadRecordError,
    FlowPointError,
    InternalError,
    SnapshotError,
    StorageError,
    TransientError,
    UserCodeError,
)
from flowpoint.model.suggestions import suggestion
from flowpoint.model.texts import MESSAGE_CHARACTERS_MAX, SENTENCE_CHARACTERS_MAX, cut, with_article
from flowpoint.state.descriptor import declared
from flowpoint.state.kinds import ValueState

ENGINE: Final = FlowPointError.__module__.partition(".")[0]
STATE_ROOM: Final = f"{ENGINE}.state."
CHAIN_FILES: Final = f"<{ENGINE} chain"
"""How the file names of generated loops begin."""

_ENGINES: Final = frozenset({ENGINE, "msgpack"})
"""The codec is called back by what it packs with."""

USER_RAISED: Final = BaseException
"""What a synchronous call of user code may raise. Nothing of the engine's arrives in one: all of it is the user's."""

ENDS_A_TASK: Final = (asyncio.CancelledError, GeneratorExit)
"""What ends a task that waits, and so is not the user's where user code is awaited."""

_ADDRESS: Final = re.compile(r"(?: at |(\.\.\.))0?x[0-9a-fA-F]{4,}")
"""Also behind an ellipsis, which stays."""


class Doing(StrEnum):
    """What was going on when something was raised."""

    FUNCTION = "function"  # the user's function was called
    KEY = "key"  # the key function was called
    RESULT = "result"  # what the user's function returned was walked through
    STATE = "state"  # the key was hashed and checked, the state read or written


@dataclass(frozen=True, slots=True)
class Place:
    """Where user code is called. `key_name` is how messages call the `key_by` before the operator."""

    uid: str
    kind: str
    doing: Doing
    key_name: str = ""

    def __str__(self) -> str:
        if self.doing in (Doing.KEY, Doing.STATE) and self.key_name:
            return f"operator '{self.uid}': {self.key_name}"
        return f"operator '{self.uid}' ({self.kind})"


def explain(place: Place, error: BaseException, when: str, result: Any = None) -> FlowPointError | None:
    """An error that names operator, record and what to do; None when `error` is the engine's own.

    Args:
        when: such as "on record 5" (see `on_record`).
        result: what the user's function returned, when that was being walked through; the key, when state was at work.
    """
    if isinstance(error, InternalError):
        return None
    start = f"{place} failed {when}: "
    explained = _explained(place, error, start, result)
    if explained is not None:
        explained.operator = place.uid
    return explained


def _explained(place: Place, error: BaseException, start: str, result: Any) -> FlowPointError | None:
    if isinstance(error, FlowPointError):
        if isinstance(error, SnapshotError | StorageError) and _is_of_state(error):
            # Neither the record nor the function is to blame.
            start = f"operator '{place.uid}' cannot read its state: "
        return engine_class(error)(start + say(error, MESSAGE_CHARACTERS_MAX))
    if place.doing is Doing.STATE:
        if isinstance(error, TypeError) and "unhashable" in str(error):
            advice = "return a str, an int or a tuple of such from the key function"
            return BadRecordError(f"{start}the key {shorten(result)} is not hashable ({error}); {advice}")
        if not _ends_in_user_code(error):
            return None
    if place.doing is Doing.RESULT and isinstance(error, TypeError) and not _is_iterable(result):
        return UserCodeError(
            f"{start}its function returned {shorten(result)} ({type(result).__name__}): it must return"
            " an iterable of records, such as a list"
        )
    return UserCodeError(
        f"{start}{type(error).__name__}: {say(error)}{suggestion(error)}{_warning(error)}{_advice(error)}"
    )


def _advice(error: BaseException) -> str:
    """What to add where somebody has calculated with None: a state without a default is None for each new key, and so is
    the timestamp of a record whose stream has none.
    """
    if not isinstance(error, TypeError) or "NoneType" not in str(error):
        return ""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or _is_engine(trace.tb_frame):
        return ""
    return _timestamp_advice(trace.tb_frame) + _default_advice(trace.tb_frame)


def _timestamp_advice(frame: FrameType) -> str:
    """Whether the function at hand asks for the timestamp of a record that has none."""
    if "timestamp" not in frame.f_code.co_names:
        return ""
    if not any(getattr(value, "timestamp", 0) is None for value in frame.f_locals.values()):
        return ""
    return "; ctx.timestamp is None in a stream without timestamps: use assign_timestamps(...) before"


def _default_advice(frame: FrameType) -> str:
    """Whether the function at hand has a state without a default."""
    first = frame.f_code.co_varnames[:1]
    function = type(frame.f_locals.get(first[0])) if first else object  # self, in a method
    bare = [s.spec.name for s in declared(function) if isinstance(s, ValueState) and s.spec.default is None]
    if not bare:
        return ""
    return f"; the state '{bare[0]}' is None for a key that is new: declare it as ValueState({bare[0]!r}, default=...)"


def on_record(record: Any) -> str:
    """When something failed, for `explain`."""
    return f"on record {shorten(record)}"


def refuse_single(result: Any) -> UserCodeError:
    """The error for a function that returned one record where an iterable of records is wanted."""
    return UserCodeError(
        f"its function must return an iterable of records, and {with_article(type(result).__name__)} would be taken apart: "
        f"{shorten(result)}; yield it, or return [it]"
    )


@contextmanager
def naming(uid: str, doing: str, *, is_awaited: bool = True) -> Iterator[None]:
    """What a connector or a function's `open` raises in this block, with its operator named.

    Errors of ours stay what they are; trouble of the surroundings (OSError) may go away; the rest is the author's.

    Args:
        doing: such as "read() of split 'a'".
        is_awaited: False around a synchronous call, in which no cancellation of ours arrives.
    """
    try:
        yield
    except InternalError:
        raise
    except FlowPointError as error:
        error.operator = error.operator or uid
        raise
    except USER_RAISED as error:
        if is_awaited and isinstance(error, ENDS_A_TASK):
            raise
        kind = TransientError if isinstance(error, OSError) else UserCodeError
        said = f"{type(error).__name__}: {say(error)}{suggestion(error)}{_warning(error)}"
        text = f"operator '{uid}': {doing} failed: {said}"
        named = kind(text)
        named.operator = uid
        raise named from error


def engine_class(error: FlowPointError) -> type[FlowPointError]:
    """The nearest class of `flowpoint.errors`: it can be made from a message alone, and every process knows it."""
    return next(cls for cls in type(error).__mro__ if cls.__module__ == FlowPointError.__module__)


def shorten(value: Any, limit: int = 120) -> str:
    """A value as text for a message: the same in every run, at most `limit` characters, never raising."""
    try:
        text = _ADDRESS.sub(r"\1", repr(value))
    except Exception as error:  # noqa: BLE001  a user's __repr__ may do anything
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def say(error: BaseException, limit: int = SENTENCE_CHARACTERS_MAX) -> str:
    """An exception's message, the same in every run, not too long, never raising."""
    try:
        return _ADDRESS.sub(r"\1", cut(str(error), limit))
    except Exception as problem:  # noqa: BLE001  a user's __str__ may do anything
        return f"<its message raised {type(problem).__name__}>"


def users_trace(error: BaseException) -> str:
    """A traceback that begins where the engine has called the user's code; "" where none of it is the user's."""
    frames = list(_frames(error))
    called = next((i for i, (_, is_ours) in enumerate(frames) if is_ours), -1) + 1
    while called < len(frames) and frames[called][1]:
        called += 1
    if called == len(frames):
        # Its last line alone would say less than the message does.
        return ""
    return "".join(traceback.format_exception(type(error), error, frames[called][0]))


def _frames(error: BaseException) -> Iterator[tuple[TracebackType, bool]]:
    """The traceback's entries, outermost first, each with whether it is the engine's."""
    trace = error.__traceback__
    while trace is not None:
        yield trace, _is_engine(trace.tb_frame)
        trace = trace.tb_next


def _warning(error: BaseException) -> str:
    """What to add for exceptions that would have ended or cancelled the engine itself."""
    return "" if isinstance(error, Exception) else "; a function must not end or cancel what calls it"


def _ends_in_user_code(error: BaseException) -> bool:
    frames = list(_frames(error))
    return bool(frames) and not frames[-1][1]


def _is_of_state(error: BaseException) -> bool:
    """Whether it was raised where state lies, which a user's function may have asked for."""
    return any(str(trace.tb_frame.f_globals.get("__name__", "")).startswith(STATE_ROOM) for trace, _ in _frames(error))


def _is_engine(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] in _ENGINES or frame.f_code.co_filename.startswith(CHAIN_FILES)


def _is_iterable(value: Any) -> bool:
    return isinstance(value, Iterable) or hasattr(type(value), "__getitem__")
