"""The savers under test, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flowpoint.agents.folder import FolderSaver
from flowpoint.agents.rocks import RocksSaver
from flowpoint.agents.saver import CoreSaver

SAVERS: dict[str, Callable[..., CoreSaver]] = {"rocks": RocksSaver, "folder": FolderSaver}


def open_saver(kind: str, path: Path, **options: Any) -> CoreSaver:
    """A saver of a kind, in a folder."""
    return SAVERS[kind](path / kind, **options)
