"""The live table of `flowpoint run`: workers with their pids, operators, the last checkpoint, and the last events.

How it works: the run hands new figures to `refresh`, in a thread of its own (`launch.shown`), and the table is drawn over
its former self, in the normal flow of the terminal; what was drawn last stays. rich is imported at the first refresh, when
the workers are already starting; a job that ends before that prints its events as plain lines.

Where there is little room, lists of names are cut first, then columns are left out; pids and rates stay. Each picture but
the last one ends with an empty line: there a terminal shows ^C, which must not move the picture.

Invariants: no thread of its own; nothing is drawn but in `refresh`, `on_event` and at the end. The cursor stays as it is,
since a process that is killed could not bring it back.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from flowpoint.cli import output
from flowpoint.cli.views import View, printed_lines, short_of
from flowpoint.launch.control import Data, Event, EventKind

if TYPE_CHECKING:
    from rich.console import Console, Group, RenderableType
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

EVENTS_SHOWN = 6
EVENT_CHARACTERS_MAX = 400
"""A longer one ends in an ellipsis; the log has it whole."""

NARROW = 72
"""On a terminal with fewer columns there is no room for all figures."""

_STYLES = {
    EventKind.FAILED: "bold red",
    EventKind.WORKER_LOST: "red",
    EventKind.CHECKPOINT_FAILED: "yellow",
    EventKind.WARNING: "yellow",
    EventKind.RESTARTING: "yellow",
    EventKind.RUNNING: "green",
    EventKind.FINISHED: "bold green",
}


class LiveTable(View):
    """Draws the table on a terminal."""

    shows_figures = True

    def __init__(self, console: Console | None = None) -> None:
        super().__init__()
        self._console = console
        self._live: Live | None = None
        self._status: Data = {}
        self._workers: Sequence[Data] = ()
        self._events: deque[tuple[str, Event]] = deque(maxlen=EVENTS_SHOWN)
        self._printed: list[str] = []

    def on_event(self, event: Event) -> None:
        super().on_event(event)
        self._printed = printed_lines(event, self.job)
        self._events.append((time.strftime("%H:%M:%S"), event))
        self._draw()

    def refresh(self, status: Data, workers: Sequence[Data]) -> None:
        self._status, self._workers = status, workers
        if self._live is None:
            self._live = self._start()
        self._draw()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # A terminal that has gone takes no last picture; the job has ended as it has ended.
        with suppress(OSError):
            self._leave()

    def _leave(self) -> None:
        if self._live is not None:
            self._draw(is_last=True)
            self._live.stop()
        else:
            for moment, event in self._events:
                print(f"{moment} {short_of(event, self.job)}")
        for line in self._printed:
            print(line)
        sys.stdout.flush()

    def _start(self) -> Live:
        from rich.live import Live

        live = Live(console=self._console, auto_refresh=False)
        live.start()
        live.console.show_cursor(True)
        return live

    def _draw(self, *, is_last: bool = False) -> None:
        if self._live is not None:
            width = self._live.console.width
            picture = render(self._status, self._workers, self._events, width, is_last=is_last)
            self._live.update(picture, refresh=True)


def render(
    status: Data, workers: Sequence[Data], events: Iterable[tuple[str, Event]], width: int, *, is_last: bool = False
) -> Group:
    """The whole picture, on a terminal of so many columns."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [_headline(status), _totals(status)]
    if workers:
        parts.append(_workers(workers, width))
    parts.append(_operators(status, width))
    if stalled := output.stalled_line(status):
        parts.append(Text(f"at work on the same records: {stalled}", "yellow"))
    parts += [_footer(status), _events(events, str(status["name"]))]
    return Group(*parts, *([] if is_last else [Text()]))


def _headline(status: Data) -> Text:
    from rich.text import Text

    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{status['name']}  ", "bold")
    text.append(str(status["state"]), "green" if status["state"] == "RUNNING" else "yellow")
    text.append(f"  attempt {status['attempt']}  restarts {status['restarts']}")
    if status["state"] == "RUNNING" and status["rate"] is not None:
        text.append(f"  {output.count(status['rate'])} records/s")
    if status["lag"] is not None:
        text.append(f"  lag {output.duration(status['lag'] * 1000)}")
    return text


def _totals(status: Data) -> Text:
    """Over all attempts of this run, so that what was read again after a restart counts again."""
    from rich.text import Text

    again = ", counting again what came again" if status["restarts"] else ""
    return Text(f"{output.records_line(status)}{again}", no_wrap=True, overflow="ellipsis")


def _workers(workers: Sequence[Data], width: int) -> Table:
    narrow = ("worker", "pid", "records/s")
    rows = [
        {
            "worker": str(worker["index"]),
            "pid": str(worker["pid"] or "-"),
            "cpu": "-" if worker["cpu_percent"] is None else f"{worker['cpu_percent']:.0f}%",
            "memory": output.size(worker["rss_bytes"]),
            "records/s": output.count(worker.get("rate")),
            "subtasks": " ".join(worker["subtasks"]) or "-",
        }
        for worker in workers
    ]
    return _table(narrow if width < NARROW else ("worker", "pid", "cpu", "memory", "records/s"), "subtasks", rows)


def _operators(status: Data, width: int) -> Table:
    # The totals count over all attempts, these figures begin anew with each.
    since = f" (since attempt {status['attempt']} began)" if status["restarts"] else ""
    words = f"operator{since}"
    narrow = ("records/s", "back-pressure")
    rows = [
        {
            "subtasks": str(operator["parallelism"]),
            "in": output.count(operator["records_in"]),
            "out": output.count(operator["records_out"]),
            "records/s": output.count(operator["rate"]),
            "busy": output.share(operator.get("busy")),
            "back-pressure": output.share(operator["backpressure"]),
            words: str(operator["uid"]),
        }
        for operator in status.get("operators", ())
    ]
    wide = ("subtasks", "in", "out", "records/s", "busy", "back-pressure")
    return _table(narrow if width < NARROW else wide, words, rows)


def _table(figures: Sequence[str], words: str, rows: Iterable[Mapping[str, str]]) -> Table:
    """Columns of figures, then one of words that takes what room is left, and gives up its own first."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim", expand=False)
    for figure in figures:
        table.add_column(figure, justify="right", no_wrap=True)
    # The column itself may be narrowed, which in rich those cannot that do not wrap; its lines do not wrap.
    table.add_column(Text(words, no_wrap=True, overflow="ellipsis"))
    for row in rows:
        table.add_row(*(row[figure] for figure in figures), Text(row[words], no_wrap=True, overflow="ellipsis"))
    return table


def _footer(status: Data) -> Text:
    from rich.text import Text

    return Text(
        f"last checkpoint {output.checkpoint_line(status['last_checkpoint'])}", no_wrap=True, overflow="ellipsis"
    )


def _events(events: Iterable[tuple[str, Event]], job: str) -> Table:
    """The last events; long ones go on in the next line, below their text. Why the job failed follows on stderr."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for moment, event in events:
        sentence = short_of(event, job)
        if len(sentence) > EVENT_CHARACTERS_MAX:
            sentence = sentence[: EVENT_CHARACTERS_MAX - 1] + "…"
        table.add_row(moment, Text(sentence, _STYLES.get(event.kind, "")))
    return table
