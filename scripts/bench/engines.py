"""The two sides of the bench: how each is installed, prepared and started for one run of a workload."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
BYTEWAX = "bytewax==0.21.1"


@dataclass(frozen=True)
class Run:
    """One run: commands to start together, and what they need."""

    commands: list[list[str]]
    environment: dict[str, str]


class FlowPoint:
    """`flowpoint run` of the job in `jobs/`, with a home of its own, checkpoints each second."""

    name = "flowpoint"

    def __init__(self, command: str, settings: list[str]) -> None:
        """`command` is the path of `flowpoint`; "" looks beside this Python and then on the PATH."""
        beside = Path(sys.executable).with_name("flowpoint")
        self._command = command or (str(beside) if beside.exists() else shutil.which("flowpoint") or "flowpoint")
        self._settings = settings

    def prepare(self, workload: str, source: Path, folder: Path, workers: int) -> Run:
        """Nothing is kept from run to run."""
        options = ["checkpoint.interval=1s", "state.backend=rocksdb", *self._settings]
        command = [
            *(self._command, "run", str(HERE / "jobs" / f"{workload.lower()}.py"), "--plain"),
            *("-p", str(workers), "--workers", str(workers)),
            *("--param", f"input={source}", "--param", f"output={folder / 'out'}"),
            *(part for option in options for part in ("--set", option)),
        ]
        return Run([command], {"FLOWPOINT_HOME": str(folder / "home")})


class Bytewax:
    """The program in `peers/`, in a virtual environment of its own, with its recovery snapshots each second."""

    name = "bytewax"

    def __init__(self, home: Path) -> None:
        """The environment is made in `home` when it is not there."""
        self._python = home / "venv-bytewax" / "bin" / "python"
        if not self._python.exists():
            python = sys.executable if sys.version_info[:2] == (3, 11) else shutil.which("python3.11")
            if python is None:
                raise SystemExit("the peer needs Python 3.11: put python3.11 on the PATH, or use --only flowpoint")
            subprocess.run([python, "-m", "venv", self._python.parent.parent], check=True)
            subprocess.run([self._python, "-m", "pip", "install", "--quiet", BYTEWAX], check=True)

    def prepare(self, workload: str, source: Path, folder: Path, workers: int) -> Run:
        """Makes the recovery store; several workers are several processes."""
        store = folder / "recovery"
        store.mkdir()
        (folder / "out").mkdir()
        python = str(self._python)
        subprocess.run([python, "-m", "bytewax.recovery", store, str(workers)], check=True)
        flow = f"{HERE / 'peers' / 'bytewax_flow.py'}:flow"
        command = [python, "-m", "bytewax.run", flow, "-r", str(store), "-s", "1", "-b", "0"]
        environment = {
            "BENCH_WORKLOAD": workload,
            "BENCH_INPUT": str(source),
            "BENCH_OUTPUT": str(folder / "out"),
            "BENCH_WORKERS": str(workers),
        }
        if workers == 1:
            return Run([command], environment)
        addresses = ";".join(f"localhost:{port}" for port in _free_ports(workers))
        return Run([[*command, "-i", str(index), "-a", addresses] for index in range(workers)], environment)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports
