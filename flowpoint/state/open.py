"""Chooses the state backend that the settings name."""

from __future__ import annotations

from flowpoint.codec.values import Codec
from flowpoint.errors import ConfigError
from flowpoint.model.settings import StateSettings
from flowpoint.state.backend import Backend
from flowpoint.state.database import Database, OpenDatabase
from flowpoint.state.heap import HeapBackend
from flowpoint.state.rocksdb import RocksBackend


def open_backend(
    settings: StateSettings,
    codec: Codec,
    max_parallelism: int,
    work_dir: str,
    operator: str,
    open_database: OpenDatabase = Database,
) -> Backend:
    """An empty backend for one operator in one subtask.

    Args:
        settings: which backend, and how much memory it may take.
        codec: of the job.
        max_parallelism: of the job; key groups are counted by it.
        work_dir: a folder that is this operator's own in this subtask and attempt; need not exist.
        operator: its uid, for messages.
        open_database: for state that outgrows memory; RocksDB, unless in a simulated world.

    Raises:
        ConfigError: there is no such backend.
    """
    if settings.backend == "heap":
        return HeapBackend(codec, max_parallelism, settings, work_dir, operator)
    if settings.backend == "rocksdb":
        return RocksBackend(codec, max_parallelism, settings, work_dir, operator, open_database)
    raise ConfigError(f"state.backend is {settings.backend!r}; it must be 'heap' or 'rocksdb'")
