"""A job is run and stopped, and its state is opened, checked, changed and deleted from the shell."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.shell import ROOT, Done, Shell, committed


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which jobs/user_statistics.py has read all its input."""
    shell = Shell(tmp_path_factory.mktemp("finished"))
    job = str(ROOT / "jobs" / "user_statistics.py")
    shell.run_ok("run", job, "--param", "output=out", "--param", "views=3000", "-p", "2", "--plain")
    yield shell.folder
    shell.close()


@pytest.fixture
def statistics(shell: Shell, finished: Path) -> str:
    """The path of its checkpoint, in a copy that a test may spoil."""
    shutil.copytree(finished / "home" / "checkpoints" / "user-statistics", shell.folder / "user-statistics")
    return str(shell.folder / "user-statistics" / "chk-1-a1")


def newest(shell: Shell, job: str) -> str:
    return str(shell.run_ok("checkpoints", job, "--json").json()[-1]["path"])


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def value(shell: Shell, snapshot: str, state: str, key: str, uid: str = "statistics") -> Any:
    found = shell.run_ok("inspect", snapshot, "--operator", uid, "--state", state, "--key", key, "--json")
    return found.json()["value"]


def test_a_checkpoint_is_inspected_as_a_whole_by_state_and_by_key(
    shell: Shell, statistics: str, finished: Path
) -> None:
    written = committed(finished / "out")
    last = max((line for line in written if line[0] == "user-3"), key=lambda line: line[1])

    whole = shell.run_ok("inspect", statistics)
    data = shell.run_ok("inspect", statistics, "--json").json()
    state = shell.run_ok("inspect", statistics, "--state", "views", "--json").json()
    everywhere = shell.run_ok("inspect", statistics, "--key", "user-3")

    assert re.search(r"statistics +process\(Statistics\) +2 +recent +list +7 ", whole.out), whole
    assert [operator["uid"] for operator in data["operators"]] == ["views", "statistics", "out"]
    assert sum(split["position"] for split in data["operators"][0]["splits"]) == 3000
    assert state["entries"] == 7
    assert sum(entry["value"] for entry in state["first"]) == 3000
    assert f"statistics/views: {last[1]}\n" in everywhere.out
    assert value(shell, statistics, "views", "user-3") == last[1]
    assert value(shell, statistics, "recent", "user-3") == last[2]
    assert sum(value(shell, statistics, "views_of", "user-3").values()) == last[1]


RULES = """
from flowpoint import BroadcastState, CoProcessFunction, Job
from flowpoint.connectors import CollectionSource, PrintSink


class Price(CoProcessFunction):
    factors = BroadcastState("factors")

    def process1(self, value, ctx):
        yield value

    def process2(self, value, ctx):
        self.factors[value[0]] = value[1]
        return ()


job = Job("prices")
orders = job.source(CollectionSource([1, 2, 3]), uid="orders")
orders = orders.assign_timestamps(lambda n: n * 1000, max_out_of_orderness=0, uid="times")
rules = job.source(CollectionSource([["a", 2], ["b", 3]]), uid="rules").broadcast()
orders.key_by(lambda n: n).connect(rules).process(Price(), uid="price").sink(PrintSink(), uid="out")
"""


def test_broadcast_state_and_watermarks_are_shown(shell: Shell) -> None:
    (shell.folder / "prices.py").write_text(RULES)
    shell.run_ok("run", "prices.py", "-p", "2", "--plain")
    snapshot = newest(shell, "prices")

    whole = shell.run_ok("inspect", snapshot)
    state = shell.run_ok("inspect", snapshot, "--state", "factors", "--json").json()

    assert re.search(r"price +\S+ +2 +factors +broadcast +2 ", whole.out), whole
    assert re.search(r"times +the end of time", whole.out), whole
    assert {entry["key"]: entry["value"] for entry in state["first"]} == {"a": 2, "b": 3}
    assert value(shell, snapshot, "factors", "b", uid="price") == 3


def test_a_job_that_was_stopped_shows_state_that_agrees_with_its_source(shell: Shell) -> None:
    job = shell.write(
        "job.py",
        "from flowpoint import Job\nfrom flowpoint.connectors import FileSink, SequenceSource\n"
        "job = Job('numbers')\n"
        "(job.source(SequenceSource(0, 10**9, rate=5000), uid='n').key_by(lambda n: (n % 10, 'x')).count(uid='counts')"
        ".sink(FileSink('out', format='jsonl'), uid='out'))\n",
    )
    running = shell.start("run", str(job), "-p", "2", "--plain", "--set", "checkpoint.interval=200ms")
    shell.wait_for_status("numbers", lambda status: (status["last_checkpoint"] or {"id": 0})["id"] >= 3)
    shell.run_ok("stop", "numbers")
    assert running.wait().code == 0

    snapshot = newest(shell, "numbers")
    source = shell.run_ok("inspect", snapshot, "--operator", "n", "--json").json()["operators"][0]
    counts = shell.run_ok("inspect", snapshot, "--operator", "counts", "--state", "count", "--json").json()

    assert counts["entries"] == 10
    assert sum(entry["value"] for entry in counts["first"]) == sum(split["position"] or 0 for split in source["splits"])
    assert value(shell, snapshot, "count", '[3, "x"]', uid="counts") > 0
    assert shell.run_ok("verify", snapshot).code == 0
    assert shell.run_ok("checkpoints", "numbers").out.splitlines()[0].split()[:3] == ["ID", "PARENT", "ATTEMPT"]


def test_words_are_found_with_their_counts(shell: Shell) -> None:
    shell.write("in.txt", "the cat and the dog\n" * 50)
    job = str(ROOT / "jobs" / "wordcount.py")
    shell.run_ok("run", job, "--param", "input=in.txt", "--param", "output=out", "-p", "2", "--plain")
    snapshot = newest(shell, "wordcount")

    shown = shell.run_ok("inspect", snapshot, "--key", "the")

    assert shown.out == "counts/count: 100\n"
    assert shell.run_ok("inspect", snapshot, "--operator", "counts", "--state", "count", "--key", "the").out == "100\n"
    assert re.search(r"in\.txt@0 +1000 +to its end", shell.run_ok("inspect", snapshot).out)
    assert shell.run_ok("verify", snapshot).out.startswith("checkpoint 1 of job wordcount is whole: 2 files, 4 entries")


def test_a_child_is_made_and_its_parent_stays_as_it_was(shell: Shell, statistics: str) -> None:
    storage = Path(statistics).parent
    before = files_of(storage)

    done = shell.run_ok(
        *("edit", statistics, "--out", "child", "--json"),
        *("--set", "statistics/views/user-3=7", "--set", 'statistics/recent/user-1=["cart"]'),
        *("--set", "statistics/views_of/user-2/cart=9", "--delete", "statistics/views_of/user-4"),
        *("--drop", "out", "--position", "views/3=5"),
    )
    child = shell.run_ok("inspect", "child", "--json").json()

    assert files_of(storage) == before
    assert (done.json()["parent"], child["parent"], child["kind"]) == (1, 1, "savepoint")
    assert [operator["uid"] for operator in child["operators"]] == ["views", "statistics"]
    assert child["operators"][0]["splits"][3]["position"] == 5
    assert not child["operators"][0]["splits"][3]["ended"]
    assert value(shell, "child", "views", "user-3") == 7
    assert value(shell, "child", "recent", "user-1") == ["cart"]
    assert value(shell, "child", "views_of", "user-2")["cart"] == 9
    assert shell.run("inspect", "child", "--state", "views_of", "--key", "user-4").code == 3
    assert shell.run_ok("verify", "child", "--json").json()["damages"] == []


def test_damage_is_told_with_exit_code_1_and_a_missing_snapshot_with_3(shell: Shell, statistics: str) -> None:
    file = next((Path(statistics).parent / "shared").iterdir())
    file.write_bytes(file.read_bytes()[:100] + b"?" + file.read_bytes()[101:])

    damaged = shell.run("verify", statistics)
    missing = shell.run("verify", "nowhere")

    assert damaged.code == 1
    assert f"shared/{file.name}" in damaged.out
    assert "checksum" in damaged.out
    assert missing.code == 3
    assert missing.sentence.startswith("flowpoint: there is no snapshot at")


def test_only_a_savepoint_is_disposed_of(shell: Shell, statistics: str) -> None:
    shell.run_ok("edit", statistics, "--out", "child")

    refused = shell.run("dispose", statistics)
    done = shell.run_ok("dispose", "child")

    assert refused.code == 2
    assert "it is a checkpoint of job 'user-statistics'" in refused.sentence
    assert Path(statistics, "manifest.json").exists()
    assert "savepoint 2 is deleted" in done.out
    assert not (shell.folder / "child").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["inspect", "{}", "--operator", "statistic"], 3, "did you mean 'statistics'?"),
        (["inspect", "{}", "--state", "view"], 3, "did you mean 'views'?"),
        (["inspect", "{}", "--state", "views", "--key", "user3"], 3, "did you mean 'user-3'?"),
        (["edit", "{}", "--out", "x", "--set", 'statistics/views/user-3="7"'], 2, "of type str, not int"),
        (["edit", "{}", "--out", "x", "--position", "views/99=5"], 3, "source 'views' has no split '99'"),
        (["edit", "{}"], 2, "missing option '--out'"),
    ],
)
def test_mistakes_are_one_sentence_with_the_way_out(
    shell: Shell, statistics: str, arguments: list[str], code: int, said: str
) -> None:
    done: Done = shell.run(*(argument.format(statistics) for argument in arguments))

    assert done.code == code, done
    assert said in done.sentence
    assert not (shell.folder / "x").exists()


def test_the_examples_of_the_documentation_run(shell: Shell, statistics: str) -> None:
    page = (ROOT / "docs" / "snapshots.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)

    for example in examples:
        done = subprocess.run(
            [sys.executable, "-c", example],
            cwd=shell.folder,
            env=shell.environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, f"{example}\n{done.stderr}"

    assert len(examples) >= 3
    assert json.loads((shell.folder / "branch" / "manifest.json").read_text())["origin"]["changes"]
