"""Whether a function of an author's can be called with what an operator calls it with.

Asked of functions and methods written in Python only: what a class, or a function in C, takes is not always to be known.
A function behind a decorator is judged by what the decorator takes, since that is what is called.

Invariant: what is refused here would fail on its first record.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import FunctionType, MappingProxyType, MethodType
from typing import Final

from flowpoint.errors import PlanError
from flowpoint.plan.graph import function_name

RECORD: Final = ("record",)
"""What the function of most operators is called with."""

TWO_VALUES: Final = ("value", "record")
"""What the function of a reduce is called with."""

METHODS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "process": ("record", "ctx"),
        "process1": ("record", "ctx"),
        "process2": ("record", "ctx"),
        "on_timer": ("timestamp", "ctx"),
        "create": (),
        "add": ("accumulator", "record"),
        "result": ("accumulator",),
    }
)
"""What methods are called with, behind `self`."""


def check_arguments(label: str, function: Callable[..., object], arguments: tuple[str, ...]) -> None:
    """Refuse a function that would be called with too few arguments, or too many.

    Raises:
        PlanError: as said. `label` names the operator, and the method where it is one.
    """
    if not _is_python(function):
        return
    signature = inspect.signature(function, follow_wrapped=False)
    try:
        signature.bind(*arguments)
    except TypeError as error:
        call = f"{function_name(function)}({', '.join(arguments)})"
        raise PlanError(f"{label} is called as {call}, and takes {signature}: {error}") from None


def _is_python(function: object) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    if not isinstance(function, FunctionType | MethodType) and not inspect.isclass(function):
        function = inspect.getattr_static(type(function), "__call__", None)
    return isinstance(function, FunctionType) or (
        isinstance(function, MethodType) and isinstance(function.__func__, FunctionType)
    )
