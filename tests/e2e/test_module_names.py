"""Job files that are called like a module of Python's library or like an installed one: everybody gets the right one."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.e2e.shell import ROOT, Done, Shell, committed

JOB = """
import mylib
from flowpoint import Job
from flowpoint.connectors import CollectionSource, FileSink

job = Job("named")
(
    job.source(CollectionSource([1, 2, 3]), uid="numbers")
    .map(mylib.double, uid="double")
    .key_by(lambda n: n)
    .count(uid="counts")
    .sink(FileSink("out", format="jsonl"), uid="out")
)
"""
MYLIB = """
def double(n):
    import later  # in a worker, long after the start
    return n * later.TWO
"""
BROKEN = "raise ImportError('this is not the module that was meant')\n"
DOUBLED = [[2, 1], [4, 1], [6, 1]]
NAMES = ["numbers", "queue", "random", "typing", "click"]


def write_job(folder: Path, name: str) -> None:
    """A job with siblings that it needs, among files that nobody may import."""
    folder.mkdir(parents=True, exist_ok=True)
    for other in (*NAMES, "token", "decimal", "asyncio", "msgpack", "psutil"):
        (folder / f"{other}.py").write_text(BROKEN)
    (folder / "mylib.py").write_text(MYLIB)
    (folder / "later.py").write_text("TWO = 2\n")
    (folder / f"{name}.py").write_text(JOB)


@pytest.mark.parametrize("name", NAMES)
def test_in_the_working_directory(shell: Shell, name: str) -> None:
    write_job(shell.folder, name)

    shell.run_ok("run", f"{name}.py", "-p", "2")

    assert sorted(committed(shell.folder / "out")) == DOUBLED


def test_in_the_working_directory_when_that_is_on_pythonpath(shell: Shell) -> None:
    shell.environment["PYTHONPATH"] = f"{shell.folder}:{ROOT}"
    write_job(shell.folder, "numbers")

    shell.run_ok("run", "numbers.py", "-p", "2")

    assert sorted(committed(shell.folder / "out")) == DOUBLED


@pytest.mark.parametrize("name", ["queue", "click"])
def test_in_another_folder(shell: Shell, name: str) -> None:
    write_job(shell.folder / "elsewhere", name)

    shell.run_ok("run", f"elsewhere/{name}.py", "-p", "2")

    assert sorted(committed(shell.folder / "out")) == DOUBLED


def test_in_the_background(shell: Shell) -> None:
    write_job(shell.folder, "random")

    shell.run_ok("run", "random.py", "-p", "1", "--detach")
    shell.run_ok("logs", "named", "-f")  # ends with the job

    assert sorted(committed(shell.folder / "out")) == DOUBLED


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout, installed in place into an environment of its own."""
    root = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "flowpoint", root / "flowpoint", ignore=shutil.ignore_patterns("__pycache__"))
    venv.create(root / ".venv", symlinks=True)
    packages = next((root / ".venv").glob("lib/python*/site-packages"))
    # What it needs is where this interpreter has it; that folder comes first, as the environment's own would.
    (packages / "a.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    (packages / "b_editable.pth").write_text(f"{root}\n")
    script = root / ".venv" / "bin" / "flowpoint"
    script.write_text(
        f"#!{root}/.venv/bin/python\nimport sys\nfrom flowpoint.__main__ import main\nif __name__ == '__main__':\n"
        "    sys.exit(main())\n"
    )
    script.chmod(0o755)
    return root


@pytest.mark.parametrize("command", [["flowpoint"], ["python", "-m", "flowpoint"]], ids=["script", "module"])
@pytest.mark.parametrize("name", ["numbers", "click"])
def test_in_the_root_of_a_checkout_that_is_installed_in_place(
    shell: Shell, checkout: Path, command: list[str], name: str
) -> None:
    write_job(checkout, name)
    del shell.environment["PYTHONPATH"]
    shutil.rmtree(checkout / "out", ignore_errors=True)
    program, *words = command

    run = subprocess.run(
        [checkout / ".venv" / "bin" / program, *words, "run", f"{name}.py", "-p", "2", "--fresh", "--take-output"],
        cwd=checkout,
        env=shell.environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    done = Done(run.returncode, run.stdout, run.stderr)
    assert done.code == 0, done
    assert sorted(committed(checkout / "out")) == DOUBLED
