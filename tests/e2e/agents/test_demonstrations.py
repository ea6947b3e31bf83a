"""The demonstrations of `jobs/agents/`, as their first lines say to run them, each command a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("langgraph")

pytestmark = pytest.mark.timeout(240)  # each command is a process that imports LangGraph

ROOT = Path(__file__).parents[3]


def run(folder: Path, name: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run `python jobs/agents/<name>.py memory ...` in an empty folder."""
    return subprocess.run(
        [sys.executable, str(ROOT / "jobs/agents" / f"{name}.py"), "memory", *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def ran(folder: Path, name: str, *args: str) -> list[str]:
    """The lines of a run that ended well."""
    done = run(folder, name, *args)
    assert done.returncode == 0, done
    return done.stdout.splitlines()


def test_a_crash_in_the_third_step_is_resumed_there(tmp_path: Path) -> None:
    first = run(tmp_path, "crash_and_resume")
    assert first.returncode == 137, first
    lines = ran(tmp_path, "crash_and_resume")
    assert lines == [
        "found: {'x': 2, 'trail': ['step1', 'step2']} next: ('step3',)",
        "done: {'x': 5, 'trail': ['step1', 'step2', 'step3', 'step4', 'step5']}",
    ]
    outside = tmp_path / "memory.outside"
    assert (outside / "runs.log").read_text().split() == ["step1", "step2", "step3", "step3", "step4", "step5"]
    calls = (outside / "calls.log").read_text().split()
    assert len(calls) == 2 and len(set(calls)) == 1
    assert len(list(outside.glob("booking-*"))) == 1


@pytest.mark.parametrize("name", ["approval", "crash_and_resume", "racing_requests", "schema_change", "time_travel"])
def test_without_arguments_a_demonstration_says_how_to_call_it(tmp_path: Path, name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "jobs/agents" / f"{name}.py")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 1
    assert f"python jobs/agents/{name}.py memory" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [["show"], ["answer", "yes"]])
def test_before_anything_was_started_the_approval_says_so(tmp_path: Path, command: list[str]) -> None:
    assert ran(tmp_path, "approval", *command) == ["nothing was started yet"]


def test_time_travel_keeps_both_final_states(tmp_path: Path) -> None:
    assert ran(tmp_path, "time_travel") == [
        "first: {'route': 'main', 'trail': ['a', 'b', 'c']}",
        "forked before: ('c_alt',)",
        "second: {'route': 'alt', 'trail': ['a', 'b', 'c_alt']}",
        "old tip: {'route': 'main', 'trail': ['a', 'b', 'c']}",
        "head: {'route': 'alt', 'trail': ['a', 'b', 'c_alt']}",
        "checkpoints: 7",
    ]


@pytest.mark.parametrize(("answer", "end"), [("yes", "pay"), ("no", "cancel")])
def test_an_approval_survives_restarts(tmp_path: Path, answer: str, end: str) -> None:
    waiting = ["log: ['draft'] next: ('review',) asks: [{'pay': 5}]"]
    assert ran(tmp_path, "approval", "start", "5") == waiting
    assert ran(tmp_path, "approval", "show") == waiting
    assert ran(tmp_path, "approval", "answer", answer) == [
        f"log: ['draft', 'review:{answer}', '{end}'] next: () asks: []"
    ]
    assert ran(tmp_path, "approval", "show")[0].endswith("next: () asks: []")


def told(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith("log:")]


def logged(lines: list[str]) -> str:
    return "\n".join(line for line in lines if line.startswith("log:"))


def test_a_field_added_renamed_and_removed_after_deployment_and_rolled_back(tmp_path: Path) -> None:
    def deploy(version: str) -> list[str]:
        return ran(tmp_path, "schema_change", version)

    assert told(deploy("v1")) == ["now: {'name': 'Ada'}"]
    assert told(deploy("v2"))[-1] == "now: {'name': 'Ada', 'visits': 1}"
    rolled_back = deploy("v1")
    assert told(rolled_back)[-1] == "now: {'name': 'Ada'}"
    assert "channel 'visits' is not in the code; it is carried along" in logged(rolled_back)
    assert told(deploy("v2"))[-1] == "now: {'name': 'Ada', 'visits': 2}"
    third = deploy("v3")
    assert told(third) == ["finished: ('close',)", "now: {'full_name': 'Ada'}"]
    assert "brought from version 1 of the schema to 2" in logged(third)
    refused = run(tmp_path, "schema_change", "v1")
    assert refused.returncode == 1
    assert (
        "written by version 2 of the schema, and this code has version 1; deploy the newer code again" in refused.stderr
    )


def test_two_processes_race_on_one_thread_and_no_request_is_lost(tmp_path: Path) -> None:
    done = run(tmp_path, "racing_requests")
    lines = done.stdout.splitlines()
    assert not done.stderr
    assert lines[-1] == "every request is answered exactly once", lines
    assert lines[0].startswith("requests: 40 runs that lost and ran again: ")


DEPLOYED = """
from langgraph.graph import START, StateGraph
from typing import TypedDict
from flowpoint.agents import FolderSaver, Rename, RenameNode, RocksSaver, Schema

def builder_of(field, second):
    builder = StateGraph(TypedDict("State", {field: str}))
    builder.add_node("first", lambda state: {}).add_node(second, lambda state: {})
    return builder.add_edge(START, "first").add_edge("first", second)

old, new = builder_of("name", "finish"), builder_of("full_name", "close")
bare = Schema.of(new, version=2)
whole = Schema.of(new, version=2, migrations={1: [Rename("name", "full_name"), RenameNode("finish", "close")]})

if __name__ == "__main__":
    for saver in (RocksSaver("rocks"), FolderSaver("folder")):
        with saver:
            graph = old.compile(checkpointer=saver, interrupt_before=["finish"])
            for thread in ("one", "two"):
                graph.invoke({"name": thread}, {"configurable": {"thread_id": thread}})
"""


def threads(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flowpoint", "threads", *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_a_deployment_is_checked_against_stored_threads_before_it_is_made(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(DEPLOYED)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "agent.py"], cwd=tmp_path, env=environment, check=True, timeout=100)
    for store in ("rocks", "folder"):
        before = threads(tmp_path, "export", store).stdout

        refused = threads(tmp_path, "migrate", store, "--schema", "agent:bare", "--check")
        assert refused.returncode == 1, refused
        assert "thread 'one'" in refused.stdout and "node 'finish' is pending" in refused.stdout
        assert refused.stdout.endswith("2 heads: 0 to be migrated on reading, 2 refused\n")

        fine = threads(tmp_path, "migrate", store, "--schema", "agent:whole", "--check", "--json")
        assert fine.returncode == 0, fine
        report = json.loads(fine.stdout)
        assert (report["threads"], report["migrated"], report["refused"]) == (2, 2, [])
        assert threads(tmp_path, "export", store).stdout == before, "nothing was changed"
