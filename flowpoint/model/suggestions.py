"""What an author may have meant by a name that there is not, for the one sentence that says so.

Python suggests names itself, but only at the end of the traceback of an exception that nobody has caught, and of some
versions only. FlowPoint catches what a job raises.

Invariants: nothing of the author's is run but what `dir` and `inspect.signature` run; no function here raises.

Not here: saying what went wrong (`runtime.failures`, `launch.jobfile`).
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable
from types import FrameType
from typing import Final

from flowpoint.model.texts import alike

_NOT_IN_MODULE: Final = re.compile(r"cannot import name '([^']+)' from '([\w.]+)'")
_NOT_A_PARAMETER: Final = re.compile(r"([\w.]+)\(\) got an unexpected keyword argument '(\w+)'(?!.*[Dd]id you mean)")


def suggestion(error: BaseException) -> str:
    """What to say behind the message of an exception: "; did you mean 'map'?", or nothing.

    Example:
        >>> try:
        ...     "a".uper()
        ... except AttributeError as error:
        ...     print(suggestion(error))
        ; did you mean 'upper'?
    """
    try:
        wanted, names = _wanted(error)
    except Exception:  # noqa: BLE001  a user's __dir__ or descriptor may do anything, and a message must come out
        return ""
    near = alike(wanted, [name for name in names if not name.startswith("_") or wanted.startswith("_")])
    return f"; did you mean {near[0]!r}?" if near else ""


def _wanted(error: BaseException) -> tuple[str, Iterable[str]]:
    """The name that there is not, and those that there are in its place."""
    match error:
        case AttributeError(name=str(name), obj=obj) if obj is not None:
            return name, dir(obj)
        case NameError(name=str(name)) if (frame := _last_frame(error)) is not None:
            return name, [*frame.f_locals, *frame.f_globals, *frame.f_builtins]
        case ImportError() if (found := _NOT_IN_MODULE.search(str(error))) and found[2] in sys.modules:
            return found[1], dir(sys.modules[found[2]])
        case TypeError() if found := _NOT_A_PARAMETER.search(str(error)):
            return found[2], _parameters(found[1].removesuffix(".__init__"))
    return "", ()


def _last_frame(error: BaseException) -> FrameType | None:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return None if trace is None else trace.tb_frame


def _parameters(qualified: str) -> list[str]:
    """The parameters of a function or class that an exception calls by its qualified name, without its module."""
    first, *rest = qualified.split(".")
    for module in list(sys.modules.values()):
        found = getattr(module, "__dict__", {}).get(first)
        for name in rest:
            found = getattr(found, name, None)
        if getattr(found, "__qualname__", "") == qualified and callable(found):
            return list(inspect.signature(found).parameters)
    return []
