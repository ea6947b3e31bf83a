"""Two processes in one thread of a folder, one in the midst of the other's doing: as if one had come after the other.

At every call of the first to the file system the second does all of its own. What both are told, and what is there then,
is what a model in plain dicts says of the one order or of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from flowpoint.agents.core import SaverCore
from flowpoint.agents.folder_kv import FolderKv
from flowpoint.agents.holders import LocalHolders
from flowpoint.agents.opening import system_world
from flowpoint.agents.saver import CoreSaver
from flowpoint.agents.serde import StrictSerde
from flowpoint.errors import UsageError
from tests.unit.agents.faulty_files import MemoryFiles
from tests.unit.agents.history_both import refused
from tests.unit.agents.history_checks import model_shows, shows
from tests.unit.agents.history_model import Model, Put
from tests.unit.agents.history_stores import SIZES
from tests.unit.agents.stores import config

CALLS_MAX = 200
SERDE = StrictSerde()

Both = tuple[Callable[[CoreSaver], Any], Callable[[Model], Any]]
"""What a saver does, and what the model does."""


def put(id: str, parent: str | None, values: dict[str, Any], thread: str = "t", ns: str = "") -> Both:
    one = Put(thread, ns, id, parent, values, dict.fromkeys(values, 1), list(values), {"source": "loop", "of": id})
    checkpoint: Any = {**empty_checkpoint(), "ts": "then", "id": id}
    checkpoint |= {"channel_values": dict(values), "channel_versions": dict(one.versions)}
    at = config(thread, ns, parent)
    return (
        lambda saver: refused(lambda: saver.put(at, checkpoint, dict(one.metadata), dict(one.versions))),  # type: ignore[arg-type]
        lambda model: model.put(one, 0),
    )


def put_writes(id: str, value: Any, task: str = "task") -> Both:
    writes = [("a", value), ("__error__", value)]
    return (
        lambda saver: saver.put_writes(config(id=id), writes, task, "~0"),
        lambda model: model.put_writes("t", "", id, writes, task, "~0"),
    )


def copy(source: str, target: str) -> Both:
    def copied(saver: CoreSaver) -> str:
        try:
            saver.copy_thread(source, target)
        except UsageError:
            return "there"
        return ""

    return copied, lambda model: model.copy(source, target)


LARGE = "x" * 300
BEGUN = [put("1", None, {"a": 1}), put("2", "1", {"a": LARGE}), put_writes("2", "begun"), put("9", None, {}, "from")]
PAIRS = {
    "two steps from the head": (put("3", "2", {"a": LARGE * 2}), put("4", "2", {"a": LARGE * 2})),
    "the same step twice": (put("3", "2", {"a": LARGE}), put("3", "2", {"a": LARGE})),
    "another checkpoint of the same id": (put("3", "2", {"a": 1}), put("3", "2", {"a": 2})),
    "a step and another head": (put("3", "2", {"b": 1}), put("2", "1", {"a": "another"})),
    "the head anew and a step": (put("2", "1", {"a": "another"}), put("3", "2", {"b": 1})),
    "two namespaces": (put("3", "2", {"a": LARGE}), put("4", None, {"a": LARGE}, ns="inner")),
    "a step and writes for it": (put("3", "2", {"a": LARGE}), put_writes("3", LARGE)),
    "writes and the step for them": (put_writes("3", LARGE), put("3", "2", {"a": LARGE})),
    "writes of one task": (put_writes("2", LARGE), put_writes("2", LARGE * 2)),
    "writes of two tasks": (put_writes("2", LARGE, "one"), put_writes("2", LARGE, "other")),
    "a copy and the first step there": (copy("t", "new"), put("5", None, {"a": 5}, "new")),
    "the first step and a copy": (put("5", None, {"a": 5}, "new"), copy("t", "new")),
    "two copies": (copy("t", "new"), copy("from", "new")),
}


def saver_on(files: MemoryFiles, holders: LocalHolders, on_conflict: Any) -> CoreSaver:
    kv = FolderKv("/store", files=files)
    kv.holders = holders
    return CoreSaver(SaverCore(kv, SERDE, system_world(), SIZES, on_conflict=on_conflict, alone=False))


def all_of(saver: CoreSaver) -> list[Any]:
    # A copy that is refused leaves writes behind that nobody is shown, until they are swept.
    return [shows(saver, "t"), shows(saver, "new")[:2]]


@pytest.mark.parametrize("on_conflict", ["branch", "raise"])
@pytest.mark.parametrize("name", PAIRS)
def test_what_comes_in_the_midst_of_something_is_as_before_or_after_it(name: str, on_conflict: str) -> None:
    (outer, model_outer), (inner, model_inner) = PAIRS[name]
    expected = []
    for first, second in ((model_outer, model_inner), (model_inner, model_outer)):
        model = Model(on_conflict)
        for _saver, begin in BEGUN:
            begin(model)
        told = {first: first(model), second: second(model)}
        found = [model_shows(model, "t"), model_shows(model, "new")[:2]]
        expected.append((told[model_outer], told[model_inner], found))

    for at in range(1, CALLS_MAX):
        files, holders = MemoryFiles(folders={"/store"}, durable_folders={"/store"}), LocalHolders()
        saver, other = (saver_on(files, holders, on_conflict) for _ in range(2))
        for begin, _model in BEGUN:
            begin(saver)
        all_of(saver), all_of(other)  # as of processes that know the thread
        of_inner: list[Any] = []
        files.calls_before, files.meanwhile = at, lambda saver=other, told=of_inner: told.append(inner(saver))
        of_outer = outer(saver)
        if not of_inner:
            assert at > 5
            return
        for one in (saver, other, saver_on(files, holders, on_conflict)):
            found = of_outer, of_inner[0], all_of(one)
            assert found in expected, f"call {at}: {found[:2]}"
    raise AssertionError(f"more than {CALLS_MAX} calls")
