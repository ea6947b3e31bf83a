"""The memory of agents: checkpointers for LangGraph that lose nothing. Needs `pip install flowpoint[agents]`."""

from __future__ import annotations

from flowpoint.agents.effects import idempotency_key
from flowpoint.agents.folder import FolderSaver
from flowpoint.agents.migrations import Add, Convert, Drop, Rename, RenameNode
from flowpoint.agents.retry import ainvoke_with_retry, invoke_with_retry
from flowpoint.agents.rocks import RocksSaver
from flowpoint.agents.schema import Schema
from flowpoint.agents.stored import StoredObject
from flowpoint.agents.types import types_of

__all__ = [
    "Add",
    "Convert",
    "Drop",
    "FolderSaver",
    "Rename",
    "RenameNode",
    "RocksSaver",
    "Schema",
    "StoredObject",
    "ainvoke_with_retry",
    "idempotency_key",
    "invoke_with_retry",
    "types_of",
]
