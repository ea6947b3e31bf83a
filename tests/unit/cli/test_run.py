"""`flowpoint run`: what it hands on, what it shows, how it ends. The job itself is a script of events."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

import flowpoint
from flowpoint.cli import live
from flowpoint.cli.main import execute
from flowpoint.cli.views import Lines
from flowpoint.errors import ConfigError, UserCodeError
from flowpoint.launch.control import Event, EventKind, RunOptions, RunView
from flowpoint.launch.home import Home
from tests.unit.cli.fake_job import FakeJob

Captured = pytest.CaptureFixture[str]
Play = Callable[[RunOptions, RunView], int]

STARTED = Event(EventKind.STARTED, "job 'words' started", {"name": "words", "pid": 1, "log": "/log"})
RUNNING = Event(EventKind.RUNNING, "running")
SPOKEN = Event(EventKind.FINISHED, "finished", {"printed": {"lines": 3, "last": ["one", "two"]}})
FINISHED = Event(EventKind.FINISHED, "finished: 10 records")


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Play], None]:
    """Puts a function in the place of the start of a job."""

    def put(run: Play) -> None:
        module = types.ModuleType("flowpoint.launch.run")
        module.run_job_file = lambda options, view, _on_claimed: run(options, view)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "flowpoint.launch.run", module)

    return put


def finishing(_options: RunOptions, view: RunView) -> int:
    for event in (STARTED, RUNNING, FINISHED):
        view.on_event(event)
    return 0


def test_every_option_is_handed_on(play: Callable[[Play], None]) -> None:
    given: list[RunOptions] = []
    play(lambda options, _view: given.append(options) or 0)  # type: ignore[func-returns-value]

    line = (
        "run job.py --name n -p 2 --workers 3 --set a=1 --set b.c=x=y --config f.toml --param k=v --param k=w "
        "--param e= --fresh --take-output --allow-non-restored --accept-duplicates --skip-lost-input "
        "--resume-drained --debug --plain"
    )
    assert execute(line.split()) == 0

    assert given == [
        RunOptions(
            job_file="job.py",
            name="n",
            parallelism=2,
            workers=3,
            settings=("a=1", "b.c=x=y"),
            config_file="f.toml",
            params={"k": "w", "e": ""},
            fresh=True,
            take_output=True,
            allow_non_restored=True,
            accept_duplicates=True,
            skip_lost_input=True,
            resume_drained=True,
            debug=True,
        )
    ]


def test_without_options_nothing_is_chosen(play: Callable[[Play], None]) -> None:
    given: list[RunOptions] = []
    play(lambda options, _view: given.append(options) or 0)  # type: ignore[func-returns-value]

    assert execute(["run", "job.py"]) == 0

    assert given == [RunOptions(job_file="job.py")]


def test_the_command_to_continue_is_one_that_a_shell_understands() -> None:
    options = RunOptions(
        job_file="/my jobs/a.py",
        name="n",
        parallelism=2,
        workers=1,
        settings=("checkpoint.storage=/s",),
        config_file="c.toml",
        params={"in": "*.txt"},
    )

    assert options.resume_command() == (
        "flowpoint run '/my jobs/a.py' --name n --parallelism 2 --workers 1 --config c.toml "
        "--set checkpoint.storage=/s --param 'in=*.txt'"
    )


def test_outside_of_a_terminal_each_event_is_a_line(play: Callable[[Play], None], capsys: Captured) -> None:
    play(finishing)

    assert execute(["run", "job.py"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["job 'words' started", "running", "finished: 10 records"]


def test_what_was_printed_is_shown_and_a_warning_called_one(play: Callable[[Play], None], capsys: Captured) -> None:
    def speaking(_options: RunOptions, view: RunView) -> int:
        for event in (STARTED, Event(EventKind.WARNING, "look out"), SPOKEN):
            view.on_event(event)
        return 0

    play(speaking)

    assert execute(["run", "job.py"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith(" warning: look out")
    assert lines[2].endswith(" printed output, 3 lines (all: `flowpoint logs words`); the last 2:")
    assert lines[3:5] == ["    one", "    two"]
    assert lines[5].endswith(" finished")


def test_json_is_an_object_per_event_and_nothing_else(play: Callable[[Play], None], capsys: Captured) -> None:
    play(finishing)

    assert execute(["run", "job.py", "--json"]) == 0

    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in events] == ["started", "running", "finished"]
    assert events[0]["data"] == {"name": "words", "pid": 1, "log": "/log"}
    assert all(isinstance(event["time"], int) for event in events)


@pytest.mark.parametrize(
    ("kind", "flags", "shown"),
    [("UserCodeError", [], True), ("StorageError", [], False), ("StorageError", ["--debug"], True)],
)
def test_a_failed_job_tells_why_with_a_traceback_of_users_code_only(
    play: Callable[[Play], None], capsys: Captured, kind: str, flags: list[str], shown: bool
) -> None:
    def failing(_options: RunOptions, view: RunView) -> int:
        trace = "Traceback (most recent call last):\n  boom\n"
        view.on_event(Event(EventKind.FAILED, "job 'words' failed: boom", {"kind": kind, "trace": trace}))
        return 1

    play(failing)

    assert execute(["run", "job.py", *flags]) == 1

    error = capsys.readouterr().err
    assert error.startswith("flowpoint: job 'words' failed: boom\n")
    assert ("Traceback" in error) is shown


def test_an_error_before_the_start_is_one_sentence(play: Callable[[Play], None], capsys: Captured) -> None:
    def refusing(_options: RunOptions, _view: RunView) -> int:
        try:
            raise OSError("inner")
        except OSError as error:
            raise ConfigError("unknown key checkpoint.intervall in --set: did you mean checkpoint.interval?") from error

    refusing.__code__ = refusing.__code__.replace(co_filename=live.__file__)  # as if it stood in the package
    play(refusing)

    assert execute(["run", "job.py"]) == 2
    assert capsys.readouterr().err.count("\n") == 1

    assert execute(["run", "job.py", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["job.py", f"{Path(flowpoint.__file__).parent}_jobs/job.py"], ids=["", "beside"])
def test_an_error_of_the_users_code_has_its_traceback(
    play: Callable[[Play], None], capsys: Captured, path: str
) -> None:
    def refusing(_options: RunOptions, _view: RunView) -> int:
        try:
            exec(compile("def f():\n    return 1 / 0\nf()", path, "exec"))
        except ZeroDivisionError as error:
            own = error.__traceback__.tb_next if error.__traceback__ else None
            raise UserCodeError("job file job.py, line 3 cannot be executed") from error.with_traceback(own)
        return 0

    play(refusing)

    assert execute(["run", "job.py"]) == 1

    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "flowpoint: job file job.py, line 3 cannot be executed"
    assert f'File "{path}", line 3' in lines[2]
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_a_bug_says_that_it_is_one(play: Callable[[Play], None], capsys: Captured) -> None:
    def broken(_options: RunOptions, _view: RunView) -> int:
        raise AssertionError("acks=3")

    play(broken)

    assert execute(["run", "job.py"]) == 1
    assert "this is a bug in FlowPoint: AssertionError: acks=3" in capsys.readouterr().err


def test_an_interrupt_is_exit_code_130(play: Callable[[Play], None], capsys: Captured) -> None:
    def interrupted(_options: RunOptions, _view: RunView) -> int:
        raise KeyboardInterrupt

    play(interrupted)

    assert execute(["run", "job.py"]) == 130


def test_what_a_job_file_prints_as_it_is_loaded_is_no_json(play: Callable[[Play], None], capsys: Captured) -> None:
    def talking(options: RunOptions, view: RunView) -> int:
        print("loading the dictionary")
        return finishing(options, view)

    play(talking)

    assert execute(["run", "job.py", "--json"]) == 0

    shown = capsys.readouterr()
    assert [json.loads(line)["event"] for line in shown.out.splitlines()] == ["started", "running", "finished"]
    assert shown.err == "loading the dictionary\n"


def test_why_a_job_failed_comes_once_also_when_it_never_started(play: Callable[[Play], None], capsys: Captured) -> None:
    def refused(_options: RunOptions, view: RunView) -> int:
        view.on_event(Event(EventKind.FAILED, "job words failed: it has handed its output on", {"name": "words"}))
        return 1

    play(refused)

    assert execute(["run", "job.py", "--plain"]) == 1

    shown = capsys.readouterr()
    assert shown.out.endswith(" job words failed\n")
    assert shown.err == "flowpoint: job words failed: it has handed its output on\n"


def test_an_option_without_its_value_says_where_to_read_on(capsys: Captured) -> None:
    assert execute(["run", "job.py", "--from"]) == 2

    assert capsys.readouterr().err == "flowpoint: option '--from' requires an argument; see `flowpoint run --help`\n"


def test_a_reader_who_has_gone_does_not_end_the_job() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as stream:
        view = Lines(stream)
        view.on_event(RUNNING)
        view.on_event(FINISHED)


class TestLiveTable:
    """The table, drawn on a console that remembers."""

    def drawn(self, *, width: int = 100, refresh: bool = True, last: Event = FINISHED) -> str:
        from rich.console import Console

        out = io.StringIO()
        console = Console(file=out, width=width, force_terminal=True, color_system=None)
        with live.LiveTable(console) as view:
            view.on_event(Event(EventKind.WORKER_LOST, "worker 1 (pid 4712) was killed by signal 9"))
            if refresh:
                view.refresh(FakeJob().status(), FakeJob().workers())
            view.on_event(last)
        return out.getvalue()

    def test_it_shows_pids_rates_back_pressure_checkpoint_and_events(self) -> None:
        text = self.drawn()

        for part in (
            "4711",
            "51.2 MB",
            "12,346",
            "25%",
            "restarts 1",
            "given to sinks",
            "last checkpoint 3 (12 ms",
            "signal 9",
            "finished",
        ):
            assert part in text

    def test_it_fits_a_narrow_terminal(self) -> None:
        last = self.drawn(width=40).split("\x1b[2K")[-1]

        assert all(len(line) <= 40 for line in last.replace("\r", "").splitlines())

    @pytest.mark.parametrize("refresh", [True, False])
    def test_why_the_job_failed_is_left_to_the_error_that_follows(self, refresh: bool, capsys: Captured) -> None:
        failed = Event(EventKind.FAILED, "job words failed: operator 'counts': KeyError: 'x'", {"name": "words"})

        text = self.drawn(last=failed, refresh=refresh) + capsys.readouterr().out

        assert "job words failed" in text
        assert "KeyError" not in text

    def picture(self, width: int, *, is_last: bool = False, workers: bool = True) -> str:
        """One picture of a job of nine operators in one chain."""
        from rich.console import Console

        names = [f"operator-{number}" for number in range(9)]
        status = FakeJob().status()
        status["operators"] = [status["operators"][0] | {"uid": name} for name in names]
        worker = FakeJob().workers()[0] | {"rate": 12345.6, "subtasks": [f"{name}#0" for name in names]}
        console = Console(file=io.StringIO(), width=width)
        with console.capture() as captured:
            console.print(live.render(status, [worker] if workers else [], [], width, is_last=is_last))
        return captured.get()

    @pytest.mark.parametrize("width", [40, 80, 100])
    def test_where_there_is_little_room_names_are_cut_and_pids_and_rates_stay(self, width: int) -> None:
        lines = self.picture(width).splitlines()

        worker = next(line for line in lines if "4711" in line)
        operator = next(line for line in lines if "operator-8" in line)
        assert "12,346" in worker and worker.endswith("…") and len(worker) <= width
        assert "12,346" in operator and "25%" in operator
        assert any("pid" in line and "records/s" in line for line in lines)
        assert any("back-pressure" in line for line in lines)

    def test_ctrl_c_is_shown_in_a_line_of_its_own_which_the_last_picture_does_not_have(self) -> None:
        assert self.picture(80).endswith("\n\n")
        assert not self.picture(80, is_last=True).endswith("\n\n")

    def test_a_job_without_workers_has_no_table_of_them(self) -> None:
        assert "pid" not in self.picture(80, workers=False)

    def test_the_cursor_is_visible_while_the_table_stands(self) -> None:
        from rich.console import Console

        out = io.StringIO()
        with live.LiveTable(Console(file=out, width=80, force_terminal=True)) as view:
            view.refresh(FakeJob().status(), FakeJob().workers())
            drawn = out.getvalue()

        assert drawn.rfind("\x1b[?25h") > drawn.rfind("\x1b[?25l")

    def test_who_is_at_work_on_the_same_records_for_long_is_named(self) -> None:
        status = FakeJob().status()
        status["operators"][0] |= {"busy": 1.0, "stalled": 12.0}

        from rich.console import Console

        console = Console(file=io.StringIO(), width=80)
        with console.capture() as captured:
            console.print(live.render(status, [], [], 80))

        assert "at work on the same records: counts for 12.0 s" in captured.get()

    def test_a_long_event_goes_on_in_the_next_line_and_a_very_long_one_ends_in_an_ellipsis(self) -> None:
        status = FakeJob().status()
        events = [("12:00:00", Event(EventKind.WARNING, f"{'so long ' * times}end")) for times in (10, 100)]

        from rich.console import Console

        console = Console(file=io.StringIO(), width=60)
        with console.capture() as captured:
            console.print(live.render(status, [], events, 60))

        text = " ".join(captured.get().split())
        assert "warning: " + "so long " * 10 + "end" in text
        assert text.endswith("…")
        assert text.count("end") == 1

    def test_what_was_printed_stands_below_the_table(self, capsys: Captured) -> None:
        with live.LiveTable() as view:
            view.on_event(STARTED)
            view.on_event(SPOKEN)

        assert capsys.readouterr().out.splitlines()[-2:] == ["    one", "    two"]

    def test_a_job_that_ends_before_the_first_figures_prints_its_events(self, capsys: Captured) -> None:
        assert self.drawn(refresh=False) == ""
        assert "signal 9" in capsys.readouterr().out

    def test_it_keeps_only_the_last_events(self) -> None:
        view = live.LiveTable()
        for _ in range(100):
            view.on_event(RUNNING)

        assert len(view._events) == live.EVENTS_SHOWN


FAKE_START = """
import os, sys, time, types
from pathlib import Path

def run_job_file(options, view, on_claimed):
    from flowpoint.errors import UsageError
    from flowpoint.launch.control import Event, EventKind
    if "bad" in options.params:
        raise UsageError("job file job.py does not exist")
    facts = {"name": "words", "pid": os.getpid(), "log": options.params["log"]}
    view.on_event(Event(EventKind.STARTED, "started", facts))
    if "done" in options.params:
        view.on_event(Event(EventKind.FINISHED, "job 'words' is finished already"))
        return 0
    view.on_event(Event(EventKind.RUNNING, "running"))
    print("printed later", os.getsid(0), flush=True)
    while not Path(options.params["log"] + ".end").exists():
        time.sleep(0.01)
    return 0

module = types.ModuleType("flowpoint.launch.run")
module.run_job_file = run_job_file
sys.modules["flowpoint.launch.run"] = module
"""


class TestDetach:
    """In real processes, where a `sitecustomize` puts the script of events in its place."""

    def run(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        (folder / "sitecustomize.py").write_text(FAKE_START)
        root = Path(__file__).parents[3]
        return subprocess.run(
            [sys.executable, "-m", "flowpoint", "run", "job.py", "--detach", *arguments],
            env={**os.environ, "PYTHONPATH": f"{folder}:{root}"},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def test_it_returns_with_name_and_pid_when_the_job_runs(self, tmp_path: Path) -> None:
        log = tmp_path / "log"

        done = self.run(tmp_path, "--json", "--param", f"log={log}")

        ready = json.loads(done.stdout)
        assert (done.returncode, ready["name"]) == (0, "words")
        assert os.getsid(ready["pid"]) == ready["pid"]  # a session of its own
        (tmp_path / "log.end").touch()
        while not log.read_text().startswith("printed later"):
            pass

    def test_a_start_that_fails_shows_its_error_and_ends_with_its_code(self, tmp_path: Path) -> None:
        done = self.run(tmp_path, "--param", "bad=1")

        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "flowpoint: job file job.py does not exist\n"

    def test_a_job_that_is_done_already_says_so(self, tmp_path: Path) -> None:
        done = self.run(tmp_path, "--param", "done=1", "--param", f"log={tmp_path / 'log'}")

        assert (done.returncode, done.stdout) == (0, "job 'words' is finished already\n")


IN_PYTHON = """
from flowpoint import Job
from flowpoint.connectors import CollectionSource, PrintSink
job = Job("words")
job.source(CollectionSource([1])).sink(PrintSink())
try:
    job.run()
except Exception as error:
    print(type(error).__name__, error)
"""


def test_job_run_refuses_to_run_without_assertions() -> None:
    done = subprocess.run(
        [sys.executable, "-O", "-c", IN_PYTHON],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert done.stdout == "UsageError cannot run under `python -O`: FlowPoint needs its assertions; leave -O out\n"


def test_the_command_refuses_to_run_without_assertions(home: Home) -> None:
    done = subprocess.run(
        [sys.executable, "-O", "-m", "flowpoint", "list"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert done.returncode == 2
    assert "python -O" in done.stderr


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from flowpoint.cli.main import execute; execute(['run', '--help']); "
        "heavy = {'rich', 'h11', 'uvloop', 'psutil', 'rocksdict', 'msgpack', 'http.client', 'flowpoint.runtime', "
        "'flowpoint.coordinator', 'flowpoint.plan', 'subprocess'}; print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert done.stdout.splitlines()[-1] == "[]"
