"""The savers under test, by name, and what tests do with any of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from flowpoint.agents.every_thread import EveryThread
from flowpoint.agents.exchange import exported
from flowpoint.agents.folder import FolderSaver
from flowpoint.agents.rocks import RocksSaver
from flowpoint.agents.saver import CoreSaver

SAVERS: dict[str, Callable[..., CoreSaver]] = {"rocks": RocksSaver, "folder": FolderSaver}

each_saver = pytest.mark.parametrize("kind", SAVERS)

THREAD: Any = {"configurable": {"thread_id": "t"}}
"""The config of thread t, with all its namespaces."""


def open_saver(kind: str, path: Path, **options: Any) -> CoreSaver:
    """A saver of a kind, in a folder."""
    return SAVERS[kind](path / kind, **options)


def export(saver: CoreSaver, *threads: str) -> list[str]:
    """The exported lines of some threads or all, as the shell does it: an error if any cannot be read."""
    every = EveryThread("export")
    lines = list(exported(saver.core, threads or saver.core.reader.threads(every), every))
    every.tell()
    return lines


def config(thread: str = "t", ns: str = "", id: str | None = None) -> Any:
    """The config of a place, and of a checkpoint there."""
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": id}}


def put(
    saver: Any,
    at: Any,
    values: dict[str, Any] | None = None,
    *,
    id: str | None = None,
    versions: dict[str, Any] | None = None,
    changed: dict[str, Any] | None = None,
    **metadata: Any,
) -> Any:
    """Put a checkpoint with these values; the config of what may come after it."""
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = values or {}
    checkpoint["channel_versions"] = versions or dict.fromkeys(values or {}, 1)
    checkpoint["id"] = id or checkpoint["id"]
    given: Any = {"source": "loop", "step": 0, "parents": {}, **metadata}
    changed = checkpoint["channel_versions"] if changed is None else changed
    return saver.put(at, checkpoint, given, changed)


def ids(found: Any) -> list[str]:
    """The ids of checkpoints, as they were listed."""
    return [one.checkpoint["id"] for one in found]
