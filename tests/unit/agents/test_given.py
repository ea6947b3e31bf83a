"""What a program gives to savers and stores by mistake is refused, with what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict

import pytest

pytest.importorskip("langgraph")

from langgraph.graph import START, StateGraph

from flowpoint.agents.schema import Schema
from flowpoint.agents.store import RocksStore
from flowpoint.agents.types import types_of
from flowpoint.errors import ConfigError, FlowPointError, UsageError
from tests.unit.agents.stores import each_saver, open_saver


class State(TypedDict):
    a: int


def builder() -> Any:
    graph = StateGraph(State)
    graph.add_node("n", lambda _state: {"a": 1})
    graph.add_edge(START, "n")
    return graph


@each_saver
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"types": builder()},
            r"cannot use types=.*StateGraph; give the classes in a list, or types=types_of\(builder\)",
        ),
        ({"types": State}, "give the classes in a list"),
        ({"types": ["State"]}, "cannot use 'State' in types: it is a name and no class"),
        ({"schema": builder()}, r"of type StateGraph; give schema=Schema.of\(builder, version=1\)"),
        ({"keys": {2026: bytes(32)}}, "`keys` is a dict of names and keys"),
        ({"keys": bytes(32)}, "`keys` is a dict of names and keys"),
        ({"on_conflict": "rais"}, "one of 'branch', 'raise'"),
    ],
)
def test_an_option_that_is_something_else(kind: str, options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        open_saver(kind, tmp_path, **options)
    with open_saver(kind, tmp_path, types=(*types_of(builder()), ("some.module", "Class"))):
        pass  # and nobody has it open


@pytest.mark.parametrize("version", [0, -1, "2", 1.5, True])
def test_a_version_that_is_none(version: Any) -> None:
    with pytest.raises(ConfigError, match="versions begin with 1"):
        Schema.of(builder(), version=version)


@each_saver
def test_a_rule_of_expiry_that_is_none(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        for rule in ({"ttl": "1h"}, {"ttl": 3600}, {"keep_last": "3"}, {"keep_last": 0}, {}):
            with pytest.raises(UsageError, match="cannot"):
                saver.expire(**rule)
        assert saver.expire(keep_last=1, ttl=timedelta(days=1)) == 0


@pytest.mark.parametrize("ttl", [60, {"default": 60}, {"default_tll": 60}, {"default_ttl": "60"}, {"default_ttl": -1}])
def test_times_to_live_that_are_none(ttl: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot use .*(default_ttl|a number of minutes)"):
        RocksStore(tmp_path, ttl=ttl)


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (
            lambda store: store.put("users", "k", {}),
            r"the namespace 'users': it is a tuple of texts, such as \('users',\)",
        ),
        (lambda store: store.get("users", "k"), "it is a tuple of texts"),
        (lambda store: store.search("users"), "it is a tuple of texts"),
        (lambda store: store.put(("users",), "k", [1]), r"cannot store \[1\], of type list: an item is a dict"),
        (lambda store: store.put(("users",), "k", {}, ttl="5"), "a time to live of '5': it is a number of minutes"),
        (lambda store: store.put(("users",), "k", {}, ttl=-5), "a time to live of -5"),
    ],
)
def test_an_item_that_is_none(use: Callable[[RocksStore], Any], said: str, tmp_path: Path) -> None:
    with RocksStore(tmp_path) as store:
        with pytest.raises(FlowPointError, match=said):
            use(store)
        assert store.list_namespaces() == []
