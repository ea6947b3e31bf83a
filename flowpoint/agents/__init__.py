"""The memory of agents: checkpointers for LangGraph that lose nothing. Needs `pip install flowpoint[agents]`."""

from __future__ import annotations
