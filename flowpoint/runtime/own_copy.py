"""One copy of a user's function object for each subtask that uses it (rule 21)."""

from __future__ import annotations

import copy
import types
from typing import Any


def own_copy(function: Any) -> Any:
    """A copy of `function` that shares no attribute with it; plain functions hold no state of their own."""
    if isinstance(function, types.FunctionType | types.BuiltinFunctionType | type) or function is None:
        return function
    if not isinstance(function, types.MethodType) and not hasattr(function, "__dict__"):
        return function
    try:
        return copy.deepcopy(function)
    except Exception:  # noqa: BLE001  an object that refuses a deep copy is shared in depth, never in its own attributes
        return copy.copy(function)
