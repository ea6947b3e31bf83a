"""The jobs and tests in docs/ run as they stand there, and do what the text says."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.e2e.shell import ROOT, Shell, committed


def write_job(shell: Shell, document: str, name: str) -> None:
    """Write down the job that begins with the line "# name"."""
    (text,) = re.findall(
        rf"```python\n(# {re.escape(name)}\n.*?)```", (ROOT / "docs" / document).read_text(), re.DOTALL
    )
    shell.write(name, text)


def run_job(shell: Shell, document: str, name: str) -> None:
    """Run it to its end."""
    write_job(shell, document, name)
    shell.run_ok("run", name, "-p", "1", "--plain", timeout=60)


def test_the_function_with_everything_in_it_runs(shell: Shell) -> None:
    run_job(shell, "operators.md", "clicks.py")

    assert sorted(record["user"] for record in committed(shell.folder / "out/clicks")) == ["a", "b"]
    assert committed(shell.folder / "late") == []


def test_sessions_are_right_though_records_of_the_next_one_come_before_the_timer(shell: Shell) -> None:
    run_job(shell, "operators.md", "sessions.py")

    assert sorted(tuple(record.values()) for record in committed(shell.folder / "out/sessions")) == [
        ("a", 0, 1800, 4),
        ("a", 5000, 5999, 2),
        ("b", 100, 100, 1),
        ("b", 1100, 1100, 1),
    ]


def test_a_source_and_a_sink_of_ones_own_lose_and_double_nothing(shell: Shell) -> None:
    run_job(shell, "connectors.md", "own.py")

    lines = [line for part in Path(shell.folder / "lines").iterdir() for line in part.read_text().split()]
    assert sorted(map(int, lines)) == list(range(1000))


def test_the_tests_on_the_page_about_testing_pass(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    files = re.findall(r"```python\n# (test_\w+\.py)\n(.*?)```", page, re.DOTALL)
    for name, text in files:
        (tmp_path / name).write_text(text)

    told = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert len(files) == page.count("```python")
    assert told.returncode == 0, told.stdout + told.stderr
    assert "7 passed" in told.stdout


def test_a_two_phase_sink_of_ones_own_leaves_nothing_prepared_when_workers_and_coordinators_are_killed(
    shell: Shell,
) -> None:
    write_job(shell, "connectors.md", "prepared_rows.py")
    often = ("-p", "2", "--set", "checkpoint.interval=100ms", "--json")
    first = shell.start("run", "prepared_rows.py", *often)
    first.wait_for("checkpoint_completed", 2)
    os.kill(shell.worker_pids("prepared_rows")[0], signal.SIGKILL)
    first.wait_for("running", 2)
    first.wait_for("checkpoint_completed", 4)
    first.kill()
    shell.run_ok("run", "prepared_rows.py", *often, timeout=60)

    database = sqlite3.connect(shell.folder / "rows.db")
    rows = [n for (n,) in database.execute("SELECT n FROM rows")]
    (left,) = database.execute("SELECT count(*) FROM prepared WHERE NOT is_visible").fetchone()
    database.close()
    assert sorted(rows) == list(range(3000))
    assert left == 0
