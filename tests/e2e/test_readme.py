"""The README's job and its "kill -9 and see", as they stand there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

from tests.e2e.shell import ROOT, Shell


def test_the_walk_through_of_the_readme_holds_what_it_promises(shell: Shell) -> None:
    job, verification = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    shell.write("remainders.py", job)
    command = ("run", "remainders.py", "-p", "2", "--set", "checkpoint.interval=500ms")
    first = shell.start(*command)
    shell.wait_for_status("remainders", lambda status: status["last_checkpoint"])

    os.kill(shell.worker_pids("remainders")[0], signal.SIGKILL)
    restarted = shell.wait_for_status("remainders", lambda status: status["restarts"] == 1 and status["rate"])
    newest = restarted["last_checkpoint"]["id"]
    shell.wait_for_status("remainders", lambda status: status["last_checkpoint"]["id"] > newest)
    first.kill()
    second = shell.start(*command)
    shell.wait_for_status("remainders", lambda status: status["state"] == "RUNNING" and status["rate"])
    second.signal(signal.SIGINT)
    done = second.wait()

    assert done.code == 130, done
    assert "checkpoint" in done.out, done
    checked = subprocess.run(
        [sys.executable, "-c", verification], cwd=shell.folder, capture_output=True, text=True, timeout=30, check=False
    )
    assert "each exactly once" in checked.stdout, checked.stderr
