"""Finds functions that were written for the sake of a result and can return nothing but None: a forgotten `return`.

How it works: the byte code of a function says which values its `return`s have. A function all of whose results are the
constant None, and that is no generator, never returns anything else. It is looked at once, when the job is compiled;
no record pays for it.

Invariant: only certainties are said. A lambda says what it returns; a function that always raises returns nothing.

Not here: functions that return the wrong thing for some record (the runtime says so).
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Final

from flowpoint.model.plan import OperatorKind
from flowpoint.plan.graph import StreamGraph, function_name

_WHAT_BECOMES: Final = {
    OperatorKind.MAP: "every record becomes None",
    OperatorKind.FILTER: "every record is dropped",
    OperatorKind.REDUCE: "every value but the first of a key becomes None",
}
_LAMBDA: Final = "<lambda>"


def forgotten_returns(graph: StreamGraph) -> Iterator[str]:
    """A sentence for each operator and `key_by` whose function never returns a value."""
    for operator in graph.operators:
        becomes = _WHAT_BECOMES.get(operator.kind)
        if becomes and returns_only_none(operator.function):
            yield _sentence(operator.label, operator.function, becomes)
        add = getattr(operator.function, "add", None) if operator.kind is OperatorKind.AGGREGATE else None
        if add is not None and returns_only_none(add):
            yield _sentence(operator.label, add, "every accumulator becomes None")
    for key in graph.keys:
        if returns_only_none(key.function):
            yield _sentence(f"key_by at {key.place}", key.function, "all records get the key None")


def _sentence(label: str, function: object, becomes: str) -> str:
    return f"{label}: {function_name(function)} never returns a value, so {becomes}: is its `return` forgotten?"


def returns_only_none(function: object) -> bool:
    """Whether a call of a function can have no other result than None, as far as its code shows.

    Example:
        >>> def forgetful(n):
        ...     n + 1
        >>> returns_only_none(forgetful), returns_only_none(str.upper), returns_only_none(lambda n: None)
        (True, False, False)
    """
    code = _code_of(function)
    if code is None or code.co_name == _LAMBDA or code.co_flags & _RUNS_LATER:
        return False
    results = list(_results(code))
    return bool(results) and all(results)


_RUNS_LATER: Final = 0x20 | 0x80 | 0x100 | 0x200
"""Flags of the code of generators, coroutines, generators that are coroutines, and async generators."""


def _code_of(function: object) -> CodeType | None:
    while isinstance(function, partial):
        function = function.func
    if not isinstance(function, FunctionType | MethodType):
        function = type(function).__call__ if callable(function) else None
    if isinstance(function, MethodType):
        function = function.__func__
    return function.__code__ if isinstance(function, FunctionType) else None


def _results(code: CodeType) -> Iterator[bool]:
    """For each place where the code returns: whether what it returns is the constant None."""
    before: dis.Instruction | None = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "RETURN_CONST":
            yield instruction.argval is None
        elif instruction.opname == "RETURN_VALUE":
            # What another branch has left, as in `n or None`, is not seen here.
            is_sure = before is not None and before.opname == "LOAD_CONST" and before.argval is None
            yield is_sure and not instruction.is_jump_target
        before = instruction
