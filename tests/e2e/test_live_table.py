"""The live table in a terminal: whole, up to date, and not torn by what the job prints, the end of which comes below."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from tests.e2e.shell import Shell

SPEAKING = """
from flowpoint import Job
from flowpoint.connectors import FileSink, SequenceSource


def speak(n):
    if n % 100 == 0:
        print("a word from the job")
    return n


job = Job("speaking")
(
    job.source(SequenceSource(0, 10_000_000, rate=2000), uid="numbers")
    .map(speak, uid="speak")
    .key_by(lambda n: n % 10)
    .count(uid="counts")
    .sink(FileSink("out", format="jsonl"), uid="out")
)
"""
WIDTH, HEIGHT = 120, 40


class Terminal:
    """A pseudo terminal with a `flowpoint` in it. `screen` is what was drawn last, without colours."""

    def __init__(self, shell: Shell, *arguments: str) -> None:
        self._drawn = bytearray()
        self._pid, self._master = pty.fork()
        if self._pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
            os.chdir(shell.folder)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever runs the tests may ignore it
            environment = {**shell.environment, "TERM": "xterm-256color"}
            os.execve(sys.executable, [sys.executable, "-m", "flowpoint", *arguments], environment)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # nobody has the other end any more
                return
            self._drawn += data

    @property
    def screen(self) -> str:
        """The last whole picture."""
        text = self._drawn.decode(errors="replace")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", re.split(r"(?:\x1b\[1A\x1b\[2K)+", text)[-1])

    def press_ctrl_c(self) -> None:
        """What the terminal's driver turns into SIGINT for everybody in the foreground."""
        os.write(self._master, b"\x03")

    def close(self) -> None:
        """As when its window is closed: everybody in it gets SIGHUP."""
        os.close(self._master)

    def wait_for(self, condition: Callable[[str], object]) -> str:
        """The first picture that is as wanted."""
        end = time.monotonic() + 20
        while not condition(screen := self.screen):
            assert time.monotonic() < end, screen
            time.sleep(0.02)
        return screen

    def wait(self) -> int:
        """Until the command has ended and everything that it drew is here."""
        self._reader.join(15)
        _, status = os.waitpid(self._pid, 0)
        with suppress(OSError):  # closed already
            os.close(self._master)
        return os.waitstatus_to_exitcode(status)


def test_the_table_shows_whom_to_kill_and_what_happens_then_and_stays_whole(shell: Shell) -> None:
    shell.write("job.py", SPEAKING)
    terminal = Terminal(shell, "run", "job.py", "-p", "2", "--set", "checkpoint.interval=300ms")
    terminal.wait_for(lambda screen: "last checkpoint 1" in screen)
    victim = shell.recorded_workers("speaking")[0]
    table = terminal.wait_for(lambda screen: f" {victim} " in screen and "numbers#0" in screen)
    assert "RUNNING" in table and "back-pressure" in table
    assert "a word from the job" not in table and "`flowpoint logs speaking`" in table

    os.kill(victim, signal.SIGKILL)
    terminal.wait_for(lambda screen: "restarts 1" in screen and "attempt 2 is running" in screen)
    terminal.press_ctrl_c()
    code = terminal.wait()

    assert code == 130
    lines = [line.strip() for line in terminal.screen.splitlines() if line.strip()]
    assert lines[0].startswith("speaking  STOPPED  attempt 2  restarts 1")
    last = next(i for i, line in enumerate(lines) if line.endswith("job speaking stopped"))
    assert lines[last + 1].startswith("printed output, ")
    assert set(lines[last + 2 :]) == {"a word from the job"}
    assert "a word from the job" in shell.run_ok("logs", "speaking").out


def test_a_terminal_that_is_closed_stops_the_job_after_a_last_checkpoint_and_the_status_says_so(shell: Shell) -> None:
    shell.write("job.py", SPEAKING)
    terminal = Terminal(shell, "run", "job.py", "-p", "2", "--set", "checkpoint.interval=300ms")
    terminal.wait_for(lambda screen: "last checkpoint 1" in screen)

    terminal.close()
    code = terminal.wait()

    assert code == 130
    ended = shell.run("status", "speaking", "--json").json()
    assert (ended["state"], ended["reason"]) == ("STOPPED", "the terminal that it ran in was closed")
    assert ended["operators"][0]["records_in"] == ended["records_in"]
