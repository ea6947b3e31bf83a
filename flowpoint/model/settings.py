"""The settings of a job, with their defaults, as frozen data. Durations are seconds, sizes bytes.

Reading files, environment and `--set`, and refusing unknown keys, is `launch.config`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """`checkpoint.*`. interval 0 switches periodic checkpoints off.

    unaligned, aligned_timeout: either makes checkpoints unaligned, the second only those that are older than that.
    """

    interval: float = 10.0
    timeout: float = 600.0
    max_concurrent: int = 1
    tolerable_failures: int = 0
    min_pause: float = 0.0
    mode: str = "exactly_once"
    unaligned: bool = False
    aligned_timeout: float = 0.0
    retained: int = 3
    storage: str = ""
    incremental: bool = True
    memory_limit: int = 64 * 1024 * 1024

    @property
    def may_overtake(self) -> bool:
        """Whether barriers may overtake records: at once, or after `aligned_timeout`."""
        return self.unaligned or self.aligned_timeout > 0


@dataclass(frozen=True, slots=True)
class StateSettings:
    """`state.*`."""

    backend: str = "rocksdb"
    cache_bytes: int = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RestartSettings:
    """`restart.*`. The first restart is immediate, then `delay` x `factor` up to `delay_max`; a checkpoint resets."""

    strategy: str = "exponential"
    delay: float = 1.0
    factor: float = 1.5
    delay_max: float = 60.0
    jitter: float = 0.1
    attempts: int = 3
    window: float = 300.0


@dataclass(frozen=True, slots=True)
class HeartbeatSettings:
    """`heartbeat.*`."""

    interval: float = 1.0
    timeout: float = 10.0


@dataclass(frozen=True, slots=True)
class LogSettings:
    """`log.*`. max_bytes 0: the log of a job is never turned over."""

    max_bytes: int = 16 * 1024 * 1024
    backups: int = 3


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. `parallelism` and `workers` 0 mean: the number of cores, and `parallelism`."""

    parallelism: int = 0
    max_parallelism: int = 128
    workers: int = 0
    buffer_timeout: float = 0.01
    batch_size: int = 1024
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    state: StateSettings = field(default_factory=StateSettings)
    restart: RestartSettings = field(default_factory=RestartSettings)
    heartbeat: HeartbeatSettings = field(default_factory=HeartbeatSettings)
    log: LogSettings = field(default_factory=LogSettings)

    def to_data(self) -> dict[str, Any]:
        """As nested dicts, for messages."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Settings:
        """The reverse of `to_data`."""
        return cls(
            **{
                **data,
                "checkpoint": CheckpointSettings(**data["checkpoint"]),
                "state": StateSettings(**data["state"]),
                "restart": RestartSettings(**data["restart"]),
                "heartbeat": HeartbeatSettings(**data["heartbeat"]),
                "log": LogSettings(**data["log"]),
            }
        )
