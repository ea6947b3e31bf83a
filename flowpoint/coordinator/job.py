"""What a coordinator is given: the job, compiled, with the objects that live in this process; and the person's wishes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flowpoint.model.plan import JobPlan
from flowpoint.model.settings import Settings
from flowpoint.runtime.contracts import OperatorDef
from flowpoint.snapshot.places import Place


@dataclass(frozen=True, slots=True)
class Wishes:
    """The flags of `flowpoint run` that concern recovery.

    fresh: start a new lineage from nothing. take_output: take a sink's target over from another lineage.
    allow_non_restored: state of operators that the job no longer has may be left behind.
    accept_duplicates: continue from an older checkpoint although a sink cannot take back what it committed since.
    skip_lost_input: a source may jump over input that is gone.
    resume_drained: a snapshot before which time has ended may be started from; event time begins anew.
    source: absolute path of the snapshot that a new lineage starts from. claim: it becomes the job's own.
    """

    fresh: bool = False
    take_output: bool = False
    allow_non_restored: bool = False
    accept_duplicates: bool = False
    skip_lost_input: bool = False
    resume_drained: bool = False
    source: str = ""
    claim: bool = False


@dataclass(frozen=True, slots=True)
class JobToRun:
    """A compiled job.

    source: what workers need to build the same functions (`Deploy.source`).
    place: where the job's snapshots are. work_dir: folder for local state of running attempts.
    arguments: the command line of a worker, from (index, incarnation, coordinator's address).
    savepoints: folder for savepoints of which nobody says where to.
    replan: the same job with another parallelism; raises UsageError when it cannot have it. None: never rescaled.
    rescaled: the parallelism that a person gave the running job, which later runs keep; 0 when nobody did.
    """

    plan: JobPlan
    operators: Mapping[str, OperatorDef]
    settings: Settings
    source: Mapping[str, Any]
    place: Place
    work_dir: str
    arguments: Callable[[int, str, str], Sequence[str]]
    log_path: str | None = None
    wishes: Wishes = field(default_factory=Wishes)
    savepoints: str = ""
    replan: Callable[[int], JobToRun] | None = None
    rescaled: int = 0

    @property
    def workers(self) -> int:
        """How many worker processes; never more than there are subtasks of the widest task."""
        most = widest(self.plan)
        return min(self.settings.workers or most, most)


def widest(plan: JobPlan) -> int:
    """The parallelism of the widest task, which is what a job's parallelism is called in messages."""
    return max(task.parallelism for task in plan.tasks)
