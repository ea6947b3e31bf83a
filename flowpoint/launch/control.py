"""What a running job offers to whoever runs it or asks about it, and what the shell offers back. Interfaces and data.

How it works: `launch.run.run_job_file(options, view, ...) -> exit code` starts a job. While it lives, the coordinator's
`JobControl` answers questions (over HTTP: `launch.http`), and everything that happens is an `Event` that goes to the
job's log and to the `RunView` of the shell that started it.

Data is JSON-able, since it leaves the process. The keys are a contract with users' scripts (`--json`):

- status: name, state, attempt, restarts, parallelism, records_in, records_out, rate, lag, backpressure,
  last_checkpoint {id, duration_ms, bytes, alignment_ms} or None, reason, job_file, pid, started (epoch ms), and
  operators: a list of {uid, name, parallelism, records_in, records_out, rate, backpressure, busy, stalled, metrics}.
  `records_in` counts what sources have read and `records_out` what sinks were given, which is committed only with the
  next completed checkpoint; both over all attempts of this run. `rate` is records/s, `backpressure` and `busy` shares
  from 0 to 1 (of its busiest subtask; a chain is one), `stalled` for how many seconds it has been at work on the same
  few records, or None while that is not long, `lag` seconds or None when the job has no event time, `metrics` what the
  operator's connector counts itself ({"lines_skipped": 3}, say). Figures of the moment are None when the job is over.
- status of a job that has ended: the same keys, those of `launch.home.TOTALS` as they were at the end (None after a
  kill), and ended, seen (the last sign of life), refused (why a later start did not come about).
- workers: a list of {index, pid, subtasks: ["uid#0", ...], cpu_percent, rss_bytes, rate}.
- savepoint, stop with a savepoint: {id, path, duration_ms, bytes}, and what `checkpoints` shows.
- checkpoints: a list of {id, attempt, kind, state, started (epoch ms), duration_ms, bytes, parent, path, reason}.
  duration_ms and bytes are None while it is pending.

Not here: how any of it is found out (the coordinator) or shown (`cli`).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from flowpoint.model.events import LAST_EVENTS, Event, EventKind

Data = dict[str, Any]
"""JSON-able data with the keys that the header lists."""

__all__ = ["LAST_EVENTS", "Data", "Event", "EventKind", "JobControl", "RunOptions", "RunView"]


class JobControl(Protocol):
    """A running job, as the coordinator offers it."""

    def status(self) -> Data:
        """The job at this moment."""

    def workers(self) -> list[Data]:
        """Its worker processes, by index."""

    async def checkpoints(self) -> list[Data]:
        """Its checkpoints, oldest first: pending, completed and retained, and the latest failed ones."""

    async def checkpoint(self) -> Data:
        """Take a checkpoint now and wait for its end. Raises CheckpointFailed."""

    async def savepoint(self, to: str = "") -> Data:
        """Make a savepoint in a folder now and wait for its end. Raises CheckpointFailed."""

    async def stop(self, to: str = "", *, drain: bool = False) -> Data:
        """Take a last checkpoint, then end the job; returns that checkpoint. Raises CheckpointFailed: it runs on.

        `to`: also make a savepoint in this folder, which hands the job's output on; returns that savepoint instead.
        `drain`: end time first: all timers fire.
        """

    async def rescale(self, parallelism: int) -> Data:
        """Go on with another parallelism. Raises UsageError, CheckpointFailed.

        Returns the status then, and `rescaled`: False when it had that parallelism already.
        """

    async def cancel(self) -> Data:
        """End the job now, without a checkpoint; returns its status."""


class RunView(Protocol):
    """The shell's window on a job that it runs. Called in one thread, which is not that of the coordinator's loop: an output
    that nobody takes may hold it up (`launch.shown`).
    """

    shows_figures: bool
    """Whether `refresh` is of any use."""

    def on_event(self, event: Event) -> None:
        """Something happened."""

    def refresh(self, status: Data, workers: Sequence[Data]) -> None:
        """New figures, at most four times a second."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What `flowpoint run` was told. None and empty mean: not given.

    `source` is the snapshot of `--from`, `settings` are the `KEY=VALUE` of `--set` in their order; `params` go to the job
    file's `build(params)`.
    """

    job_file: str
    name: str | None = None
    parallelism: int | None = None
    workers: int | None = None
    settings: tuple[str, ...] = ()
    config_file: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    fresh: bool = False
    take_output: bool = False
    allow_non_restored: bool = False
    accept_duplicates: bool = False
    resume_drained: bool = False
    skip_lost_input: bool = False
    source: str | None = None
    claim: bool = False
    debug: bool = False

    def names_parallelism(self) -> bool:
        """Whether the person said which parallelism is wanted."""
        return self.parallelism is not None or any(s.partition("=")[0].strip() == "parallelism" for s in self.settings)

    def resume_command(self) -> str:
        """What a person types to continue this job later."""
        words = ["flowpoint", "run", self.job_file]
        if self.name is not None:
            words += ["--name", self.name]
        if self.parallelism is not None:
            words += ["--parallelism", str(self.parallelism)]
        if self.workers is not None:
            words += ["--workers", str(self.workers)]
        if self.config_file is not None:
            words += ["--config", self.config_file]
        for setting in self.settings:
            words += ["--set", setting]
        for key, value in self.params.items():
            words += ["--param", f"{key}={value}"]
        return shlex.join(words)
