"""One run of a job, from its file to its exit code: claim, host, coordinator, HTTP, signals.

    assemble -> claim the name -> kill what an earlier run left -> coordinator -> say how it ended

Everything that can be refused is refused before anything is started. The HTTP interface comes up while the workers
start, so that its import costs no time of the job's.

Not here: the job file and its plan (`assembled`), what happens to the job (`coordinator`), the words in which its start and
end are told (`told`), what is printed (`cli`, by way of `launch.shown`), what a signal asks for (`launch.interrupts`).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flowpoint.coordinator.branch import has_gone_on
from flowpoint.coordinator.coordinator import Coordinator
from flowpoint.coordinator.ending import Outcome
from flowpoint.coordinator.incidents import failure_of
from flowpoint.coordinator.job import JobToRun, Wishes, widest
from flowpoint.coordinator.origin import rescaled_to
from flowpoint.errors import IncompatibleStateError, UsageError
from flowpoint.host import main_loop
from flowpoint.host.base import Host
from flowpoint.host.processes import require_open_files
from flowpoint.host.system import SystemHost
from flowpoint.launch import told
from flowpoint.launch.assembled import Assembled, assemble
from flowpoint.launch.claim import Claim, claim_job
from flowpoint.launch.control import Data, Event, EventKind, RunOptions, RunView
from flowpoint.launch.home import TOTALS, Home, ProcessId, RunRecord
from flowpoint.launch.interrupts import Interrupts, as_before
from flowpoint.launch.job_log import JobLog
from flowpoint.launch.own_folders import refuse_removed_place
from flowpoint.launch.places import check_place, open_place
from flowpoint.launch.question import ask
from flowpoint.launch.shown import Shown
from flowpoint.launch.traits import changes, traits_of
from flowpoint.launch.worker_arguments import worker_arguments
from flowpoint.model.commits import CommitEntry, CommitKind
from flowpoint.protocol.job import FINISHED_BEFORE
from flowpoint.protocol.job_table import JobState
from flowpoint.protocol.recovery import AlreadyFinished, Refuse, end_of, standing
from flowpoint.snapshot.commit_log import CommitLog
from flowpoint.snapshot.location import locate
from flowpoint.snapshot.places import Place
from flowpoint.snapshot.retention import sweep_finished

if TYPE_CHECKING:
    from flowpoint.launch.running import RunningJob

REFRESH_SECONDS = 0.25

_REFUSALS = ("ConfigError", "ForeignOutputError", "NotFoundError", "PlanError", "UsageError")
"""What a person has to mend before there is a job at all."""


def run_job_file(options: RunOptions, view: RunView, on_claimed: Callable[[], None]) -> int:
    """Run a job file to its end and return its exit code (README, "The shell"). `on_claimed`: called when it has the job.

    Raises:
        UsageError, ConfigError, PlanError: the job cannot be started as asked; nothing was started.
    """
    assembled = assemble(options)
    home = Home.from_environment()
    refuse_removed_place(assembled.settings.checkpoint.storage, home)
    check_place(assembled.settings.checkpoint.storage)
    require_open_files(assembled.settings.workers)
    if options.source is not None:
        source = os.path.abspath(options.source)
        if not _has_claimed(assembled, home, source):
            # That there is no such snapshot is said before anything is started.
            source = locate(source)[0].path
        options = replace(options, source=source)
        assembled = replace(assembled, options=options)
    host = SystemHost("coordinator", str(home.job(assembled.name).path))
    claim = claim_job(home, assembled.name, ProcessId(host.pid, host.start_time))
    on_claimed()
    try:
        run = _Run(assembled, home, claim, host, view)
    except BaseException:
        # Nothing has been recorded: the run before is still the last one.
        claim.let_go()
        raise
    try:
        with as_before():
            try:
                return main_loop.run(run.run()).exit_code
            finally:
                run.give_up_name()
    finally:
        # Last, as it waits for whoever reads: a signal ends that.
        run.shown.close()


def _has_claimed(assembled: Assembled, home: Home, source: str) -> bool:
    """Whether the job has taken this snapshot over and gone on from it, so that it need not be there any more."""
    if not assembled.options.claim:
        return False

    async def look(host: Host) -> bool:
        place = open_place(host, assembled.settings.checkpoint, assembled.name, str(home.checkpoints(assembled.name)))
        entries = standing(await CommitLog(place.storage, "", host).entries())
        return await has_gone_on(host, entries, source)

    return ask(look, str(home.root))


class _Run:
    """One run of a job in this process."""

    def __init__(self, assembled: Assembled, home: Home, claim: Claim, host: SystemHost, view: RunView) -> None:
        # First, as it may be refused: nothing is open yet.
        default = str(home.checkpoints(assembled.name))
        self._place: Place = open_place(host, assembled.settings.checkpoint, assembled.name, default)
        self._assembled = assembled
        self._home = home
        self._claim = claim
        self._host = host
        self.shown = Shown(view)
        """What the shell sees of it."""
        settings = assembled.settings
        # A worker that does not go over to a new file within this time is dead.
        self._log = JobLog(claim.folder.log, settings.log, apart_seconds=settings.heartbeat.timeout)
        self._log_trouble = ""
        self._token = secrets.token_hex(16)
        self._socket = claim.socket_address()
        self._interrupts: Interrupts | None = None
        self._resume = assembled.options.resume_command()  # what a person types to go on with the job
        # How the job has ended, from then on: whatever hinders the run in what is left to do.
        self._outcome: Outcome | None = None
        self._totals: Data = {}  # the last figures, once there are some
        self._has_begun = False  # records have flowed
        self._is_new = False  # its storage knows nothing of it

    async def run(self) -> Outcome:
        """Run to the end."""
        try:
            outcome = await self._run()
            self._emit(told.ended(self._assembled.name, outcome, self._log.printed()))
            return outcome
        finally:
            self._log.close()
            await self._host.close()

    async def _run(self) -> Outcome:
        entries = await self._continued_entries()
        self._is_new = not entries and not self._assembled.options.fresh
        rescaled = self._rescaled(entries)
        if rescaled:
            self._assembled = self._assembled.at(rescaled)
        job = self._job(self._assembled)
        await self._kill_stale()
        if (end := end_of(entries)) is not None:
            await self._remove_work(job.work_dir)
            return await self._end_at_once(end)
        self._record()
        coordinator = Coordinator(self._host, job, self._emit, self._on_workers)
        self._announce(self._changes(job, entries))
        self._interrupts = Interrupts(coordinator.requests, self._emit)
        # Also while its local state is removed, which may take a while: how the job has ended must be told.
        with self._interrupts:
            try:
                outcome = await self._run_beside_http(coordinator, job)
                self._resume = self._command_to_go_on(coordinator)
                if self._interrupts.reason and outcome.state in (JobState.STOPPED, JobState.CANCELLED):
                    outcome = replace(outcome, reason=self._interrupts.reason)
                self._outcome = outcome
            finally:
                await self._remove_work(job.work_dir)
        return outcome

    async def _end_at_once(self, end: AlreadyFinished | Refuse) -> Outcome:
        """The commit log says that there is nothing to run, or that it must not go on: nothing is started."""
        match end:
            case AlreadyFinished(entry):
                log = CommitLog(self._place.storage, "", self._host)
                for problem in (await sweep_finished(self._place.storage, log, entry)).problems:
                    self._emit(Event(EventKind.WARNING, f"cannot clean up after the job: {problem}"))
                outcome = Outcome(JobState.FINISHED, 0, FINISHED_BEFORE)
                previous = self._claim.previous
                if previous is None or previous.outcome != EventKind.FINISHED:
                    self._record()
            case Refuse(reason):
                error = IncompatibleStateError(reason)
                outcome = Outcome(JobState.FAILED, error.exit_code, reason, failure_of(error, 0))
        self._outcome = outcome
        return outcome

    async def _remove_work(self, folder: str) -> None:
        """Remove the local state of the attempts. How the job ended does not depend on whether that can be done."""
        try:
            await self._host.disk.remove_tree(folder)
        except OSError as error:
            text = f"cannot remove {folder}: {error.strerror or error}; it is of no use any more, remove it"
            self._emit(Event(EventKind.WARNING, text))

    def give_up_name(self) -> None:
        """Say how the run has ended, to whoever asks later, and let others run the job."""
        claim, outcome, name = self._claim, self._outcome, self._assembled.name
        state = outcome.state if outcome is not None else JobState.FAILED
        reason = outcome.reason if outcome is not None else "the coordinator ended by an error of its own"
        if outcome is None and claim.is_unrecorded:
            claim.let_go()
        elif outcome is not None and self._never_was(outcome):
            claim.vanish((self._home.checkpoints(name), self._home.work(name)))
        elif outcome is not None and self._was_refused(outcome):
            claim.withdraw(reason)
        else:
            claim.release(
                told.LAST[state].value,
                ended=self._host.wall_ms(),
                reason=reason,
                resume=self._resume,
                totals=self._totals,
            )

    def _was_refused(self, outcome: Outcome) -> bool:
        """Whether it ended before anything of the job had run, so that the run before is still the last one."""
        return outcome.state is JobState.FAILED and not self._has_begun and self._claim.previous is not None

    def _never_was(self, outcome: Outcome) -> bool:
        """Whether it is a first start that was refused, so that there is no job.

        One with --from may have taken the output over for its lineage, which the same command has to find again.
        """
        is_first = self._claim.previous is None and self._is_new
        is_refusal = outcome.failure is not None and outcome.failure.kind in _REFUSALS
        return is_first and is_refusal and not self._has_begun and self._assembled.options.source is None

    async def _continued_entries(self) -> list[CommitEntry]:
        """The commit log that this run goes on with; empty when the person says to begin with something else."""
        options = self._assembled.options
        if options.fresh:
            return []
        entries = standing(await CommitLog(self._place.storage, "", self._host).entries())
        if options.source is not None and not await has_gone_on(self._host, entries, options.source):
            return []
        return entries

    def _rescaled(self, entries: list[CommitEntry]) -> int:
        """The parallelism that the job has by a rescale in an earlier run, unless the person says another one now."""
        if self._assembled.options.names_parallelism() or not entries:
            return 0
        return rescaled_to(entries, entries[-1].lineage)

    def _replan(self, parallelism: int) -> JobToRun:
        """The job with another parallelism."""
        limit = self._assembled.settings.max_parallelism
        if parallelism > limit:
            raise UsageError(
                f"cannot rescale to {parallelism}: max_parallelism is {limit}, for as long as the job keeps its state; "
                f"choose at most {limit}"
            )
        return replace(self._job(self._assembled.at(parallelism)), rescaled=parallelism)

    def _job(self, assembled: Assembled) -> JobToRun:
        options, settings, name = assembled.options, assembled.settings, assembled.name
        return JobToRun(
            plan=assembled.compiled.plan,
            operators=assembled.compiled.operators,
            settings=settings,
            source=assembled.source,
            place=self._place,
            savepoints=str(self._home.savepoints),
            replan=self._replan,
            work_dir=str(self._home.work(name)),
            arguments=worker_arguments(self._claim.folder, settings.heartbeat.interval),
            log_path=str(self._claim.folder.log),
            wishes=Wishes(
                fresh=options.fresh,
                take_output=options.take_output,
                allow_non_restored=options.allow_non_restored,
                accept_duplicates=options.accept_duplicates,
                skip_lost_input=options.skip_lost_input,
                resume_drained=options.resume_drained,
                source=options.source or "",
                claim=options.claim,
            ),
        )

    async def _kill_stale(self) -> None:
        """Make certain that no process of an earlier run is left (rule 8)."""
        if self._claim.previous is None:
            return
        for process in self._claim.previous.workers:
            if await self._host.kill_stale(process.pid, process.start_time):
                self._emit(Event(EventKind.WARNING, f"killed worker pid {process.pid} that an earlier run had left"))

    def _record(self) -> None:
        self._claim.record(
            RunRecord(
                name=self._assembled.name,
                process=ProcessId(self._host.pid, self._host.start_time),
                job_file=str(self._assembled.source["path"]),
                socket=self._socket,
                token=self._token,
                storage=self._place.name,
                resume=self._resume,
                started=self._host.wall_ms(),
                traits=traits_of(self._assembled.compiled),
            )
        )

    def _on_workers(self, pids: dict[int, tuple[int, float]]) -> None:
        self._claim.record_workers(tuple(ProcessId(pid, start_time) for pid, start_time in pids.values()))

    def _command_to_go_on(self, coordinator: Coordinator) -> str:
        """What goes on where this run has ended: a rescale is remembered, a stop with a savepoint has handed on to it."""
        options, last = self._assembled.options, coordinator.checkpoints.last_completed
        if options.parallelism != widest(coordinator.plan):
            options = replace(options, parallelism=None)
        command = options.resume_command()
        if last is not None and last.savepoint_bytes is not None:
            command += f" --from {shlex.quote(last.savepoint)}"
        if last is not None and last.drained and coordinator.state is JobState.STOPPED:
            command += " --resume-drained"
        return command

    def _changes(self, job: JobToRun, entries: list[CommitEntry]) -> list[str]:
        """What the job file says otherwise than in the run whose checkpoints this one goes on with."""
        previous, kinds = self._claim.previous, {entry.kind for entry in entries}
        if CommitKind.CHECKPOINT not in kinds or previous is None or previous.storage != job.place.name:
            return []
        return list(changes(self._assembled.compiled, previous.traits))

    def _announce(self, changed: Sequence[str]) -> None:
        assembled = self._assembled
        self._emit(told.started(assembled.name, self._host.pid, assembled.source["path"], str(self._claim.folder.log)))
        for warning in told.warnings(assembled, self._place.name, self._claim.previous, changed):
            self._emit(warning)

    def _emit(self, event: Event) -> None:
        self._has_begun |= event.kind is EventKind.RUNNING
        self._log.write(event, self._host.wall_ms())
        self.shown.on_event(event)
        if self._interrupts is not None:
            self._interrupts.on_event(event)

    # ------------------------------------------------------------------ beside the coordinator

    async def _run_beside_http(self, coordinator: Coordinator, job: JobToRun) -> Outcome:
        async with asyncio.TaskGroup() as group:
            beside = group.create_task(self._serve(coordinator, job), name="http and view")
            outcome = await coordinator.run()
            beside.cancel()
        return outcome

    async def _serve(self, coordinator: Coordinator, job: JobToRun) -> None:
        # Imported here: the workers are starting meanwhile.
        from flowpoint.launch.http import HttpServer
        from flowpoint.launch.running import RunningJob

        facts: Data = {
            "job_file": self._assembled.source["path"],
            "pid": self._host.pid,
            "started": self._host.wall_ms(),
        }
        running = RunningJob(coordinator, job, facts, self._host, self._home)
        server = HttpServer(running, self._token, lambda line: self._emit(Event(EventKind.WARNING, line)))
        try:
            await server.start(self._socket)
        except OSError as error:
            text = f"the other commands cannot reach this job: cannot listen at {self._socket}: {error}"
            self._emit(Event(EventKind.WARNING, text))
        try:
            await self._refresh(running)
        finally:
            status = running.status()
            if self.shown.shows_figures:
                # The last picture is the one that stays.
                self.shown.refresh(status, running.workers())
            self._totals = {name: status[name] for name in TOTALS}
            await server.close()

    async def _refresh(self, running: RunningJob) -> None:
        while True:
            if self.shown.shows_figures and not self.shown.is_behind:
                self.shown.refresh(running.status(), running.workers())
            if problem := self.shown.take_problem():
                self._log.write(Event(EventKind.WARNING, problem), self._host.wall_ms())
            self._look_after_log()
            await asyncio.sleep(REFRESH_SECONDS)

    def _look_after_log(self) -> None:
        """A trouble that stays is told once."""
        trouble = self._log.look_after(asyncio.get_running_loop().time())
        if trouble and trouble != self._log_trouble:
            self._emit(Event(EventKind.WARNING, trouble))
        self._log_trouble = trouble
