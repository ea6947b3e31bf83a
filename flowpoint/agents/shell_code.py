"""The agent's code, as the shell finds it by `module:name`: graphs, schemas, classes.

Not here: what is done with it (`shell_fork`, `cli.threads`).
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from langgraph.graph import StateGraph

from flowpoint.agents.schema import Schema
from flowpoint.agents.serde import StrictSerde
from flowpoint.agents.types import classes_in, types_of
from flowpoint.errors import FlowPointError, UsageError
from flowpoint.host.module_path import put_last
from flowpoint.model.texts import with_article

T = TypeVar("T")


def loaded(name: str) -> Any:
    """What `module:name` stands for, with the current folder at the end of the path.

    Raises:
        UsageError: there is none, or its module cannot be imported.
    """
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise UsageError(f"cannot load {name!r}: write it as module:name")
    put_last(os.getcwd())
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"cannot load {name!r}: {error}; run it where the module can be imported") from error
    except Exception as error:
        raise as_users(error, f"cannot load {name!r}: its module raised") from error


def schema_of(name: str) -> Schema:
    """The schema that `module:name` stands for: one itself, or what a function without arguments returns.

    Raises:
        UsageError: it is something else.
    """
    return _of_kind(name, loaded(name), Schema, "a schema, as `Schema.of` makes it")


def graph_of(name: str) -> StateGraph[Any]:
    """The uncompiled graph that `module:name` stands for: one itself, or what a function without arguments returns.

    Raises:
        UsageError: it is something else.
    """
    thing = loaded(name)
    # A compiled graph knows what it was compiled from.
    return _of_kind(name, getattr(thing, "builder", thing), StateGraph, "a StateGraph")


def _of_kind(name: str, thing: Any, kind: type[T], wanted: str) -> T:
    seen = f"it is {with_article(type(thing).__name__)}"
    if callable(thing) and not isinstance(thing, kind):
        thing, seen = _called(name, thing)
    if not isinstance(thing, kind):
        raise UsageError(
            f"cannot use {name!r}: {seen}; name {wanted}, or a function without arguments that returns one"
        )
    return thing


def _called(name: str, function: Callable[..., Any]) -> tuple[Any, str]:
    """What a function without required arguments returns, and a word for what was seen."""
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        return function, "it cannot be called without arguments"
    try:
        made = function()
    except FlowPointError:
        raise
    except Exception as error:
        raise as_users(error, f"cannot use {name!r}: it raised") from error
    return made, f"it returned {with_article(type(made).__name__)}"


def as_users(error: Exception, what: str) -> UsageError:
    """What the code of a user has raised, as an error of its user's."""
    return UsageError(f"{what} {type(error).__name__}: {error}; run it by itself to see where")


def declared(names: Iterable[str]) -> tuple[StrictSerde, tuple[type, ...]]:
    """A serde for the classes and graphs that `module:name` stand for, and the classes themselves.

    Raises:
        UsageError: one is neither a class nor a graph.
    """
    classes: list[type] = []
    for name in names:
        thing = loaded(name)
        classes += [thing] if isinstance(thing, type) else types_of(graph_of(name))
    return StrictSerde(classes), classes_in(classes)
