"""The savers under test, by name, and what tests do with any of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flowpoint.agents.every_thread import EveryThread
from flowpoint.agents.exchange import exported
from flowpoint.agents.folder import FolderSaver
from flowpoint.agents.rocks import RocksSaver
from flowpoint.agents.saver import CoreSaver

SAVERS: dict[str, Callable[..., CoreSaver]] = {"rocks": RocksSaver, "folder": FolderSaver}


def open_saver(kind: str, path: Path, **options: Any) -> CoreSaver:
    """A saver of a kind, in a folder."""
    return SAVERS[kind](path / kind, **options)


def export(saver: CoreSaver, *threads: str) -> list[str]:
    """The exported lines of some threads or all, as the shell does it: an error if any cannot be read."""
    every = EveryThread("export")
    lines = list(exported(saver.core, threads or saver.core.reader.threads(every), every))
    every.tell()
    return lines
