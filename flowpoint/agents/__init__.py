"""The memory of agents: checkpointers for LangGraph that lose nothing. Needs its extra: `pip install '.[agents]'`.

The names below are imported when they are used: the store underneath works without LangGraph.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowpoint.agents.conflicts import Event
    from flowpoint.agents.effects import idempotency_key
    from flowpoint.agents.folder import FolderSaver
    from flowpoint.agents.migrations import Add, Convert, ConvertSend, Drop, Rename, RenameNode
    from flowpoint.agents.retry import ainvoke_with_retry, invoke_with_retry
    from flowpoint.agents.rocks import RocksSaver
    from flowpoint.agents.schema import Schema
    from flowpoint.agents.store import RocksStore
    from flowpoint.agents.stored import StoredObject
    from flowpoint.agents.types import types_of

__all__ = [
    "Add",
    "Convert",
    "ConvertSend",
    "Drop",
    "Event",
    "FolderSaver",
    "Rename",
    "RenameNode",
    "RocksSaver",
    "RocksStore",
    "Schema",
    "StoredObject",
    "ainvoke_with_retry",
    "idempotency_key",
    "invoke_with_retry",
    "types_of",
]

_MODULES = {
    "Event": "conflicts",
    "FolderSaver": "folder",
    "RocksSaver": "rocks",
    "RocksStore": "store",
    "Schema": "schema",
    "StoredObject": "stored",
    "ainvoke_with_retry": "retry",
    "idempotency_key": "effects",
    "invoke_with_retry": "retry",
    "types_of": "types",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'migrations')}"), name)
