"""Starting and ending real processes. Each test starts one or two small ones."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Coroutine
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
import uvloop

from flowpoint.errors import InternalError
from flowpoint.host import processes
from flowpoint.host.base import ORPHANED_EXIT_CODE

pytestmark = pytest.mark.timeout(20)

MakeModule = Callable[[str], str]
Run = Callable[[Coroutine[object, object, None]], None]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine in a loop of each kind: they start processes in quite different ways."""
    run: Run = request.param
    return run


@pytest.fixture
def make_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeModule:
    """Write a module that child processes can run: they look for modules where this process does."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(code: str) -> str:
        body = textwrap.indent(textwrap.dedent(code), "    ")
        (tmp_path / "child_main.py").write_text(f"def main():\n{body}\n")
        return "child_main"

    return make


def test_a_child_runs_in_its_own_session_and_writes_to_its_log(
    make_module: MakeModule, tmp_path: Path, run: Run
) -> None:
    async def check() -> None:
        log = tmp_path / "log"
        log.write_text("before\n")
        module = make_module("""
            import os, sys
            print(sys.argv[1:], os.getsid(0) == os.getpid(), sys.stdin.read() == "")
            sys.exit(7)
        """)

        child = await processes.start_process(module, ["a", "b c"], str(log))

        assert await child.wait() == 7
        assert log.read_text() == "before\n['a', 'b c'] True True\n"

    run(check())


def test_a_log_that_cannot_be_opened_keeps_no_child_from_starting(
    make_module: MakeModule, run: Run, tmp_path: Path
) -> None:
    async def check() -> None:
        module = make_module("print('to nobody'); raise SystemExit(7)")

        for log in (tmp_path, tmp_path / "gone" / "log"):
            child = await processes.start_process(module, [], str(log))

            assert await child.wait() == 7

    run(check())


def test_a_killed_child_is_reported_to_everyone_who_waits(make_module: MakeModule, run: Run) -> None:
    async def check() -> None:
        child = await processes.start_process(make_module("import time; time.sleep(60)"), [], None)

        waiters = [asyncio.create_task(child.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        child.kill()

        assert await asyncio.gather(*waiters) == [-signal.SIGKILL] * 3
        assert await child.wait() == -signal.SIGKILL
        child.kill()

    run(check())


def test_only_whoever_sees_a_child_end_ends_what_it_has_left(
    make_module: MakeModule, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda leader, _: groups.append(leader))

    async def check() -> None:
        child = await processes.start_process(make_module("pass"), [], None)
        await asyncio.gather(child.wait(), child.wait())
        # A session has gone meanwhile in which the job was rescaled: the number may be that of somebody else's group.
        await child.wait()
        assert groups == [child.pid]

    run(check())


def test_pid_and_start_time_are_those_of_the_child(make_module: MakeModule, run: Run) -> None:
    async def check() -> None:
        child = await processes.start_process(make_module("import time; time.sleep(60)"), [], None)

        assert psutil.Process(child.pid).create_time() == pytest.approx(child.start_time)
        child.kill()
        await child.wait()

    run(check())


def test_there_is_no_role_but_worker() -> None:
    assert processes.module_of("worker") == "flowpoint.launch.worker_main"
    with pytest.raises(InternalError, match="nurse"):
        processes.module_of("nurse")


def test_kill_stale_ends_that_very_process_only() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    start_time = psutil.Process(child.pid).create_time()

    assert processes.kill_stale(child.pid, start_time - 100) is False
    assert child.poll() is None
    assert processes.kill_stale(child.pid, start_time) is True
    assert not psutil.pid_exists(child.pid)
    assert processes.kill_stale(child.pid, start_time) is False
    child.wait()


def test_kill_stale_takes_a_process_that_only_waits_to_be_reaped_for_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    start_time = psutil.Process(child.pid).create_time()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert processes.kill_stale(child.pid, start_time) is False
    child.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the heartbeat link does this")
def test_a_child_dies_when_its_parent_is_killed() -> None:
    child = "import os, time; processes.die_with_parent({parent}); print(os.getpid(), flush=True); time.sleep(60)"
    parent = f"""
        import os, subprocess, sys
        code = "from flowpoint.host import processes; {child}".format(parent=os.getpid())
        subprocess.run([sys.executable, "-c", code])
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(parent)], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        orphan = psutil.Process(int(started.stdout.readline()))
        started.kill()

        assert processes.wait_dead(orphan)


def test_a_child_whose_parent_is_gone_already_ends_at_once() -> None:
    code = "from flowpoint.host import processes; processes.die_with_parent(1234567); print('alive')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)

    assert (ended.returncode, ended.stdout) == (ORPHANED_EXIT_CODE, "")


def test_as_many_files_may_be_open_as_the_user_is_granted() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        processes.allow_open_files()

        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == (10_240 if hard < 0 else min(hard, 10_240))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
