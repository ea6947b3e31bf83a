"""Everything that people get wrong: one clear sentence, the right exit code, nothing lost, no hang."""

from __future__ import annotations

import json
import os

import pytest

from tests.e2e.shell import Done, Shell, committed

GOOD = """
from flowpoint import Job
from flowpoint.connectors import CollectionSource, FileSink

job = Job("good")
job.source(CollectionSource([1, 2, 3]), uid="numbers").sink(FileSink("out", format="jsonl"), uid="out")
"""

SLOW = """
from flowpoint import Job
from flowpoint.connectors import FileSink, SequenceSource

job = Job("slow")
job.source(SequenceSource(0, 1_000_000, rate=100), uid="numbers").sink(FileSink("out", format="jsonl"), uid="out")
"""


def job_file(steps: str, *, values: str = "[1, 2, 3]", before: str = "") -> str:
    """A job file with these steps between a source of values and `out`."""
    return f"""
from flowpoint import Job
from flowpoint.connectors import CollectionSource, FileSink, FileSource, SequenceSource
{before}
job = Job("bad")
job.source(CollectionSource({values}), uid="values"){steps}.sink(FileSink("out", format="jsonl"), uid="out")
"""


def assert_refused(done: Done, code: int, *said: str, traceback: bool = False) -> None:
    """It ended with this code, and its first line on stderr says all of that."""
    assert done.code == code, done
    assert done.sentence.startswith("flowpoint: "), done
    for words in said:
        assert words in done.sentence, done
    assert ("Traceback" in done.err) is traceback, done


def assert_gapless(numbers: list[int]) -> None:
    """A SequenceSource with a rate was stopped somewhere: no number twice, and none left out of any of its splits."""
    for split in range(16):
        seen = sorted(n for n in numbers if n % 16 == split)
        assert seen == list(range(split, split + 16 * len(seen), 16))


# ------------------------------------------------------------------------------------------------------- the job file


def test_a_missing_job_file(shell: Shell) -> None:
    assert_refused(shell.run("run", "nowhere.py"), 2, "nowhere.py", "does not exist")


def test_a_job_file_without_a_job(shell: Shell) -> None:
    shell.write("job.py", "x = 1\n")

    assert_refused(shell.run("run", "job.py"), 2, "job.py", "no job")


def test_a_job_file_with_an_import_error_shows_where(shell: Shell) -> None:
    shell.write("job.py", "\nimport there_is_no_such_module\n")

    done = shell.run("run", "job.py")

    assert_refused(done, 2, "job.py", "line 2", "there_is_no_such_module", traceback=True)
    assert 'job.py", line 2' in done.err


def test_a_job_file_with_a_syntax_error_shows_where(shell: Shell) -> None:
    shell.write("job.py", "x = (\n")

    done = shell.run("run", "job.py")

    assert done.code == 2, done
    assert "job.py" in done.sentence


def test_a_job_without_a_source(shell: Shell) -> None:
    shell.write("job.py", "from flowpoint import Job\njob = Job('bad')\n")

    assert_refused(shell.run("run", "job.py"), 2, "'bad'", "no source")


def test_a_job_without_a_sink(shell: Shell) -> None:
    shell.write("job.py", GOOD.replace('.sink(FileSink("out", format="jsonl"), uid="out")', ""))

    assert_refused(shell.run("run", "job.py"), 2, "'good'", "no sink")


def test_two_operators_with_one_uid(shell: Shell) -> None:
    shell.write("job.py", job_file('.map(str, uid="same").map(str, uid="same")'))

    assert_refused(shell.run("run", "job.py"), 2, "two operators", "'same'")


def test_a_stateful_operator_without_uid_runs_with_a_warning_that_names_the_uid_it_got(shell: Shell) -> None:
    shell.write("job.py", job_file(".key_by(lambda n: n).count()"))

    done = shell.run_ok("run", "job.py")

    assert "uid" in done.out + done.err, done
    assert "count" in done.out + done.err, done
    assert sorted(committed(shell.folder / "out")) == [[1, 1], [2, 1], [3, 1]]


# ---------------------------------------------------------------------------------------------- options, configuration


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("checkpoint.intervall=1s", "checkpoint.interval"),
        ("checkpoint.interval=soon", "soon"),
        ("state.backend=disk", "rocksdb"),
        ("parallelism", "KEY=VALUE"),
    ],
)
def test_a_wrong_setting(shell: Shell, option: str, said: str) -> None:
    shell.write("job.py", GOOD)

    assert_refused(shell.run("run", "job.py", "--set", option), 2, said)
    assert not (shell.folder / "out").exists()


def test_a_wrong_setting_in_the_environment(shell: Shell) -> None:
    shell.write("job.py", GOOD)
    shell.environment["FLOWPOINT_CHECKPOINT_INTERVALL"] = "1s"

    assert_refused(shell.run("run", "job.py"), 2, "FLOWPOINT_CHECKPOINT_INTERVAL")


def test_a_configuration_file_that_is_not_there(shell: Shell) -> None:
    shell.write("job.py", GOOD)

    assert_refused(shell.run("run", "job.py", "--config", "nowhere.toml"), 2, "nowhere.toml")


def test_a_checkpoint_storage_that_cannot_be_used(shell: Shell) -> None:
    shell.write("job.py", GOOD)

    done = shell.run("run", "job.py", "--set", "checkpoint.storage=/proc/nowhere")

    assert_refused(done, 2, "checkpoint.storage", "/proc/nowhere")


def test_a_home_that_cannot_be_used(shell: Shell) -> None:
    shell.write("job.py", GOOD)
    shell.environment["FLOWPOINT_HOME"] = str(shell.write("file", "") / "home")

    assert_refused(shell.run("run", "job.py"), 2, "FLOWPOINT_HOME")


# ---------------------------------------------------------------------------------------------------- functions, data


def test_a_function_that_raises_fails_the_job_with_its_traceback(shell: Shell) -> None:
    shell.write("job.py", job_file('.map(lambda n: 1 // (n - 2), uid="inverse")'))

    done = shell.run("run", "job.py", "-p", "1")

    assert_refused(done, 1, "inverse", "ZeroDivisionError", traceback=True)
    assert 'job.py", line' in done.err


def test_an_unhashable_key_names_the_operator_and_the_key(shell: Shell) -> None:
    shell.write("job.py", job_file('.key_by(lambda n: [n]).count(uid="counts")'))

    done = shell.run("run", "job.py", "-p", "2")

    assert_refused(done, 1, "key_by", "job.py:6", "on record", "'list'", "return a str")


def test_a_key_that_is_not_a_number_is_refused(shell: Shell) -> None:
    shell.write("job.py", job_file('.key_by(lambda n: float("nan")).count(uid="counts")'))

    assert_refused(shell.run("run", "job.py", "-p", "2"), 1, "key_by", "job.py:6", "NaN", "replace it")


def test_a_record_that_cannot_be_serialised_names_the_operator_and_the_type(shell: Shell) -> None:
    steps = '.map(lambda n: (n, object()), uid="wrap").key_by(lambda pair: pair[0]).count(uid="counts")'
    shell.write("job.py", job_file(steps, values="range(100)"))

    assert_refused(shell.run("run", "job.py", "-p", "2"), 1, "'wrap'", "type object", "dataclass")


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_state_that_cannot_be_serialised_names_the_operator_and_ends_the_job(shell: Shell, backend: str) -> None:
    before = """
from flowpoint import KeyedProcessFunction, ValueState

class Keep(KeyedProcessFunction):
    kept = ValueState("kept", default=None)

    def process(self, n, ctx):
        self.kept.value = object()
        yield n
"""
    shell.write("job.py", job_file('.key_by(lambda n: n).process(Keep(), uid="keep")', before=before))

    assert_refused(shell.run("run", "job.py", "--set", f"state.backend={backend}"), 1, "'keep'", "type object")


def test_a_record_that_the_sink_cannot_write_names_the_sink(shell: Shell) -> None:
    shell.write("job.py", job_file('.map(lambda n: {n}, uid="sets")'))

    assert_refused(shell.run("run", "job.py"), 1, "'out'", "set")


# --------------------------------------------------------------------------------------------------------------- files

READING = """
from flowpoint import Job
from flowpoint.connectors import FileSink, FileSource

job = Job("reading")
(
    job.source(FileSource("in/*.jsonl", format="jsonl", on_error="ON_ERROR"), uid="lines")
    .sink(FileSink("out", format="jsonl"), uid="out")
)
"""


def test_a_malformed_line_fails_the_job_with_file_and_offset(shell: Shell) -> None:
    shell.write("job.py", READING.replace("ON_ERROR", "fail"))
    shell.write("in/a.jsonl", '{"n": 1}\n{"n": \n{"n": 3}\n')

    assert_refused(shell.run("run", "job.py"), 1, "a.jsonl", "9", "skip")


def test_a_malformed_line_is_skipped_on_request_and_no_other(shell: Shell) -> None:
    shell.write("job.py", READING.replace("ON_ERROR", "skip"))
    shell.write("in/a.jsonl", '{"n": 1}\n{"n": \n{"n": 3}\n')

    shell.run_ok("run", "job.py")

    assert committed(shell.folder / "out") == [{"n": 1}, {"n": 3}]


def test_a_glob_that_finds_nothing(shell: Shell) -> None:
    shell.write("job.py", READING.replace("ON_ERROR", "fail"))

    assert_refused(shell.run("run", "job.py"), 2, "in/*.jsonl")


def test_a_file_that_cannot_be_read(shell: Shell) -> None:
    shell.write("job.py", READING.replace("ON_ERROR", "fail"))
    shell.write("in/a.jsonl", '{"n": 1}\n')
    (shell.folder / "in" / "b.jsonl").symlink_to("nowhere")

    assert_refused(shell.run("run", "job.py"), 2, "b.jsonl", "cannot be read", "link to nowhere")
    assert not (shell.folder / "out").exists()


# -------------------------------------------------------------------------------------- output, names, other processes


def test_an_output_folder_of_another_job_is_refused_until_it_is_taken(shell: Shell) -> None:
    shell.write("one.py", GOOD)
    shell.write("two.py", GOOD.replace('Job("good")', 'Job("two")'))
    shell.run_ok("run", "one.py")
    before = committed(shell.folder / "out")

    assert_refused(shell.run("run", "two.py"), 1, "out", "--take-output")
    assert committed(shell.folder / "out") == before

    shell.run_ok("run", "two.py", "--take-output")


def test_a_folder_of_somebody_else_is_refused(shell: Shell) -> None:
    shell.write("job.py", GOOD)
    shell.write("out/thesis.txt", "")

    assert_refused(shell.run("run", "job.py"), 1, "/out", "thesis.txt", "--take-output")


@pytest.mark.parametrize("output", ["/proc/nowhere", "file"])
def test_a_folder_that_cannot_be_written_to_ends_the_job(shell: Shell, output: str) -> None:
    shell.write("file", "")
    shell.write("job.py", GOOD.replace('"out"', f'"{output}"', 1))

    assert_refused(shell.run("run", "job.py"), 1, "'out'", output, "name a folder")


def test_a_finished_job_says_that_it_is_done_and_does_nothing(shell: Shell) -> None:
    shell.write("job.py", GOOD)
    shell.run_ok("run", "job.py")

    done = shell.run_ok("run", "job.py")

    assert "--fresh" in done.out + done.err, done
    assert sorted(committed(shell.folder / "out")) == [1, 2, 3]


def test_starting_over_into_the_output_of_the_former_start_is_refused(shell: Shell) -> None:
    shell.write("job.py", GOOD)
    shell.run_ok("run", "job.py")

    assert_refused(shell.run("run", "job.py", "--fresh"), 1, "out", "--take-output")


def test_a_second_run_of_a_running_job_is_refused_with_the_pid_of_the_first(shell: Shell) -> None:
    shell.write("job.py", SLOW)
    first = shell.start("run", "job.py", "-p", "1")
    shell.wait_for_status("slow", lambda status: status["state"] == "RUNNING")

    assert_refused(shell.run("run", "job.py"), 2, "'slow'", "already running", str(first.pid))

    assert shell.status("slow")["state"] == "RUNNING"
    shell.run_ok("stop", "slow")
    assert first.wait().code == 0


def test_the_name_of_a_job_from_another_file_is_said_aloud(shell: Shell) -> None:
    shell.write("one.py", SLOW)
    shell.write("two.py", SLOW)
    first = shell.start("run", "one.py", "-p", "1")
    shell.wait_for_status("slow", lambda status: status["records_out"] > 0)
    shell.run_ok("stop", "slow")
    first.wait()

    second = shell.start("run", "two.py", "-p", "1")
    shell.wait_for_status("slow", lambda status: status["state"] == "RUNNING")
    shell.run_ok("stop", "slow")
    done = second.wait()

    assert "one.py" in done.out + done.err, done
    assert_gapless(committed(shell.folder / "out"))


# --------------------------------------------------------------------------------------------------------------- names


def test_a_name_that_cannot_be_part_of_a_path(shell: Shell) -> None:
    shell.write("job.py", GOOD.replace('Job("good")', 'Job("good/bad")'))

    assert_refused(shell.run("run", "job.py"), 2, "'good/bad'", "letters, digits")
    assert_refused(shell.run("run", "job.py", "--name", "a b"), 2, "'a b'", "letters, digits")


def test_a_start_from_a_snapshot_that_is_not_there(shell: Shell) -> None:
    shell.write("job.py", GOOD)

    assert_refused(shell.run("run", "job.py", "--from", "nowhere"), 3, "no snapshot", "/nowhere")
    assert not (shell.folder / "out").exists()


def test_a_line_that_is_no_text_names_file_and_offset(shell: Shell) -> None:
    shell.write("job.py", job_file("").replace("CollectionSource([1, 2, 3])", 'FileSource("in.txt")'))
    (shell.folder / "in.txt").write_bytes(b"good\nb\xffd\n")

    assert_refused(shell.run("run", "job.py"), 1, "in.txt", "byte offset 5", "not UTF-8", "skip")


# --------------------------------------------------------------------------------------------------------------- state

KEEPING = """
from flowpoint import KeyedProcessFunction, ValueState

class Keep(KeyedProcessFunction):
    total = ValueState("total"DEFAULT)

    def process(self, n, ctx):
        USE
        yield n
"""


@pytest.mark.parametrize(
    ("use", "default", "said"),
    [
        ("self.total += n", ", default=0", "write .value behind it"),
        ("self.total = n", ", default=0", "assign to self.total.value"),
        ("yield from [1] if self.total else []", ", default=0", "write .value behind it"),
        ("self.total.value += n", "", "ValueState('total', default=...)"),
        ("self.total.append(n)", ", default=[]", "write .value.append"),
    ],
)
def test_state_that_is_used_wrongly_says_what_to_write(shell: Shell, use: str, default: str, said: str) -> None:
    before = KEEPING.replace("DEFAULT", default).replace("USE", use)
    shell.write("job.py", job_file('.key_by(lambda n: n).process(Keep(), uid="keep")', before=before))

    done = shell.run("run", "job.py", "-p", "1", "--set", "restart.strategy=none")

    assert_refused(done, 1, "'keep'", "on record 1", said, traceback=True)


def test_what_is_kept_in_self_and_lost_is_warned_of(shell: Shell) -> None:
    before = KEEPING.replace("DEFAULT", ", default=0").replace("USE", "self.count = n")
    shell.write("job.py", job_file('.key_by(lambda n: n).process(Keep(), uid="keep")', before=before))

    done = shell.run_ok("run", "job.py", "-p", "1")

    assert "warning: operator 'keep': Keep assigns to self.count, which is no state" in done.out


ONLY_IN_WORKERS = """
import os
import sys

if "worker_main" in " ".join(sys.orig_argv):
    DO
"""


def test_workers_that_end_at_their_start_fail_the_job_with_what_they_printed(shell: Shell) -> None:
    ends = ONLY_IN_WORKERS.replace("DO", 'print("LicenceError: not on this machine", flush=True)\n    os._exit(3)')
    shell.write("job.py", job_file("", before=ends))

    done = shell.run("run", "job.py", "-p", "2", "--set", "restart.delay=10ms")

    assert_refused(
        done, 1, "exit code 3: LicenceError: not on this machine", "`flowpoint logs bad`", "3 times in a row"
    )
    assert shell.run_ok("logs", "bad").out.count("restarting ") == 2


def test_a_job_file_that_raises_only_in_workers_fails_the_job_with_its_line(shell: Shell) -> None:
    shell.write("job.py", job_file("", before=ONLY_IN_WORKERS.replace("DO", 'raise KeyError("only here")')))

    done = shell.run("run", "job.py", "--set", "restart.delay=10ms")

    assert_refused(done, 2, "job.py", "KeyError: 'only here'", "3 times")


def test_a_limit_of_open_files_that_is_too_low_for_the_job(shell: Shell) -> None:
    shell.write("good.py", GOOD)
    shell.prefix = ("sh", "-c", 'ulimit -n 20 && exec "$@"', "sh")

    assert_refused(shell.run("run", "good.py"), 2, "may have 20 files open", "ulimit -n 1024")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device here")
@pytest.mark.parametrize("arguments", [["list"], ["--help"], ["list", "--json"]])
def test_an_answer_that_finds_a_full_disk(shell: Shell, arguments: list[str]) -> None:
    shell.prefix = ("sh", "-c", 'exec "$@" > /dev/full', "sh")

    assert_refused(shell.run(*arguments), 1, "cannot write to standard output: No space left on device")


def test_a_first_start_that_is_refused_leaves_no_job_and_can_be_mended(shell: Shell) -> None:
    shell.write("good.py", GOOD)
    shell.write("out/mine", "a file of somebody else\n")

    refused = shell.run("run", "good.py", "--plain")
    listed = shell.run_ok("list", "--json").json()
    shell.run_ok("run", "good.py", "--plain", "--take-output")

    assert_refused(refused, 1, "it is not empty")
    assert listed == []
    assert sorted(committed(shell.folder / "out")) == [1, 2, 3]


def test_what_a_job_file_prints_as_it_is_loaded_is_no_line_of_json(shell: Shell) -> None:
    shell.write("good.py", "print('loading')\n" + GOOD)

    done = shell.run_ok("run", "good.py", "--json")

    assert [json.loads(line)["event"] for line in done.out.splitlines()][-1] == "finished"
    assert "loading" in done.err


# ------------------------------------------------------------------------------------ the output of a job that runs


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("open('out/.flowpoint-owner', 'w')", "cannot understand"),
        ("os.rename('out', 'gone')", "while the job ran"),
        ("(os.rename('out', 'gone'), os.mkdir('out'))", "while the job ran"),
    ],
)
def test_what_no_restart_can_mend_in_the_output_ends_the_job(shell: Shell, does: str, said: str) -> None:
    shell.write(
        "spoils.py",
        f"""
import os
from flowpoint import Job
from flowpoint.connectors import FileSink, SequenceSource

def spoil(n):
    if n == 30:
        {does}
    return n

job = Job("spoils", config={{"checkpoint.interval": "100ms"}})
numbers = job.source(SequenceSource(0, 1_000_000, rate=100), uid="numbers", parallelism=1)
numbers.map(spoil, uid="spoils", parallelism=1).sink(FileSink("out", format="jsonl"), uid="out", parallelism=1)
""",
    )

    done = shell.run("run", "spoils.py", timeout=60)

    assert_refused(done, 1, said)
    assert "restarting" not in done.out + done.err
