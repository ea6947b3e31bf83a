"""What a person hears of a run from the one who launches it: how it begins, and how it has ended. The words, in one place.

Not here: what happens between (`coordinator.announcements`), when something is said (`launch.run`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flowpoint.coordinator.ending import Outcome
from flowpoint.launch.assembled import Assembled
from flowpoint.launch.control import Data, Event, EventKind
from flowpoint.launch.home import RunRecord
from flowpoint.launch.job_log import Printed
from flowpoint.launch.places import is_gone, place_notes
from flowpoint.protocol.job_table import JobState

LAST = {
    JobState.FINISHED: EventKind.FINISHED,
    JobState.STOPPED: EventKind.STOPPED,
    JobState.CANCELLED: EventKind.CANCELLED,
    JobState.FAILED: EventKind.FAILED,
}
"""The kind of a run's last event, by the state in which it has ended."""


def started(name: str, pid: int, job_file: str, log: str) -> Event:
    """The first event of a run."""
    text = f"job {name} started (pid {pid}); what it prints goes to its log: `flowpoint logs {name}`"
    return Event(EventKind.STARTED, text, {"name": name, "pid": pid, "job_file": job_file, "log": log})


def warnings(
    assembled: Assembled, place: str, previous: RunRecord | None, changed: Sequence[str], *, has_state: bool
) -> Iterator[Event]:
    """What is said of a job before it runs.

    Args:
        place: the name of the place of its checkpoints.
        previous: the run before this one.
        changed: what the job file says otherwise than in that run.
        has_state: whether there is something in the place to go on with.
    """
    path = assembled.source["path"]
    if previous is not None and previous.job_file != path:
        yield _warning(f"the job {assembled.name!r} was last run from {previous.job_file}, this is {path}")
    before = previous.storage if previous is not None else ""
    starts_over = assembled.options.fresh or assembled.options.source is not None
    notes = place_notes(place, "" if starts_over or is_gone(before) else before, has_state=has_state)
    yield from map(_warning, (*notes, *assembled.warnings, *assembled.compiled.warnings, *changed))


def ended(name: str, outcome: Outcome, printed: Printed) -> Event:
    """The last event of a run."""
    data: Data = {"name": name, "exit_code": outcome.exit_code}
    if printed.last:
        data["printed"] = {"lines": printed.lines, "last": list(printed.last)}
    if outcome.state is JobState.FAILED and outcome.failure is not None:
        failure = outcome.failure
        data |= {"kind": failure.kind, "trace": failure.trace, "operator": failure.operator}
    state = outcome.state.value
    is_plain = outcome.reason == state and outcome.state is not JobState.FAILED
    return Event(LAST[outcome.state], f"job {name} {state}" + ("" if is_plain else f": {outcome.reason}"), data)


def _warning(text: str) -> Event:
    return Event(EventKind.WARNING, text)
