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
    from flowpoint.errors import ConcurrentRunError, SchemaError, UnknownTypeError

__all__ = [
    "Add",
    "ConcurrentRunError",
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
    "SchemaError",
    "StoredObject",
    "UnknownTypeError",
    "ainvoke_with_retry",
    "idempotency_key",
    "invoke_with_retry",
    "types_of",
]

_MODULES = {
    "ConcurrentRunError": "errors",
    "Event": "agents.conflicts",
    "FolderSaver": "agents.folder",
    "RocksSaver": "agents.rocks",
    "RocksStore": "agents.store",
    "Schema": "agents.schema",
    "SchemaError": "errors",
    "StoredObject": "agents.stored",
    "UnknownTypeError": "errors",
    "ainvoke_with_retry": "agents.retry",
    "idempotency_key": "agents.effects",
    "invoke_with_retry": "agents.retry",
    "types_of": "agents.types",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"flowpoint.{_MODULES.get(name, 'agents.migrations')}"), name)
