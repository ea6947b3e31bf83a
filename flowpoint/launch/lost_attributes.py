"""Finds what a keyed function assigns to `self` that is no state: it belongs to all keys and is lost at a restart.

How it works: the text of the methods that run for each record is looked at for `self.name = ...` and `self.name += ...`.
Names that begin with `_` are left alone: a cache that may be lost is called so. What is set in `__init__`, `open` or
`close` is left alone as well.

Not here: state that is used wrongly (`state.handles` says so when it happens).
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from types import FunctionType

from flowpoint.model.plan import PROCESS_KINDS
from flowpoint.plan.compile import CompiledJob
from flowpoint.state.descriptor import Declaration

_LIFECYCLE = frozenset({"__init__", "open", "close"})


def lost_attributes(compiled: CompiledJob) -> Iterator[str]:
    """A sentence for each keyed function that keeps something where nothing is kept."""
    for uid, operator in compiled.operators.items():
        cls = type(operator.function)
        if operator.kind not in PROCESS_KINDS or operator.key is None:
            continue
        names = sorted(name for name in _assigned(cls) if not isinstance(getattr(cls, name, None), Declaration))
        if names:
            shown = ", ".join(f"self.{name}" for name in names)
            yield (
                f"operator {uid!r}: {cls.__name__} assigns to {shown}, which is no state: all keys of a subtask share it,"
                f" and a restart loses it; declare {names[0]} = ValueState({names[0]!r}, default=...) and use"
                f" self.{names[0]}.value, or call it _{names[0]} if it may be lost"
            )


def _assigned(cls: type) -> set[str]:
    """The attributes that the methods of a class and its bases assign to, as far as their text can be read."""
    methods = [
        method
        for base in cls.__mro__
        if not base.__module__.startswith("flowpoint.")
        for name, method in vars(base).items()
        if isinstance(method, FunctionType) and name not in _LIFECYCLE
    ]
    return {name for method in methods for name in _targets(method) if not name.startswith("_")}


def _targets(method: FunctionType) -> Iterator[str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    except (OSError, TypeError, SyntaxError):  # made by a program, or its file is gone: nothing can be said of it
        return
    stored = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    this = method.__code__.co_varnames[:1]
    for node in stored:
        if isinstance(node.value, ast.Name) and (node.value.id,) == this:
            yield node.attr
