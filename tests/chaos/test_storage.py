"""Disks that are full and checkpoints that are damaged: waited for, skipped, and said aloud."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.chaos.jobs import assert_counted, start_counting
from tests.e2e.shell import Shell

# ---------------------------------------------------------------------------------------------------------- full disk


def can_mount() -> bool:
    """Whether this user may mount a file system of its own."""
    return subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


def fill(folder: Path) -> Path:
    """Use up the disk that a folder is on."""
    ballast = folder / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return ballast


@pytest.mark.skipif(not can_mount(), reason="needs the right to mount a small tmpfs in a namespace (unshare -m)")
@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_when_the_disk_of_the_checkpoints_is_full_then_the_job_says_so_and_goes_on_when_there_is_room_again(
    shell: Shell, backend: str
) -> None:
    small = shell.folder / "small"
    small.mkdir()
    shell.prefix = ("unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=4m none {small} && exec "$@"', "sh")
    running = start_counting(shell, backend, 2, "--set", f"checkpoint.storage={small}")
    running.wait_for("checkpoint_completed", 2)

    ballast = fill(Path(f"/proc/{running.pid}/root{small}"))
    warning = running.wait_for("warning")
    completed = len(running.events("checkpoint_completed"))
    ballast.unlink()
    running.wait_for("checkpoint_completed", completed + 1)
    done = running.wait()

    assert "the disk is full; free some space there" in warning["text"]
    assert done.code == 0, done
    assert_counted(shell)


@pytest.mark.skipif(not can_mount(), reason="needs the right to mount a small tmpfs in a namespace (unshare -m)")
def test_when_the_disk_of_the_home_is_full_then_the_job_restarts_until_there_is_room_again(shell: Shell) -> None:
    small = shell.folder / "small"
    small.mkdir()
    shell.prefix = ("unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=4m none {small} && exec "$@"', "sh")
    shell.move_home("small/home")
    running = start_counting(shell, "heap", 2, "--set", "restart.delay=200ms", "--set", "restart.delay_max=200ms")
    running.wait_for("checkpoint_completed", 2)
    worker, *_ = psutil.Process(running.pid).children()

    ballast = fill(Path(f"/proc/{running.pid}/root{small}"))
    worker.kill()
    running.wait_for("restarting", 3)
    ballast.unlink()
    running.wait_for("running", 2)
    done = running.wait()

    assert done.code == 0, done
    told = [event["text"] for event in running.events("restarting")]
    assert any("No space left" in text or "the disk is full" in text for text in told), told
    assert_counted(shell)


@pytest.mark.skipif(not can_mount(), reason="needs the right to mount a small tmpfs in a namespace (unshare -m)")
def test_when_the_disk_of_the_output_is_full_then_the_job_says_so_and_the_output_is_exact_when_there_is_room_again(
    shell: Shell,
) -> None:
    small = shell.folder / "out"
    small.mkdir()
    # The output is read where it was written, before its namespace is gone.
    then = "mkdir seen && cp out/part-* seen/; exit $code"
    script = f'mount -t tmpfs -o size=1m none {small} && "$@"; code=$?; {then}'
    shell.prefix = ("unshare", "-m", "sh", "-c", script, "sh")
    running = start_counting(shell, "heap", 2, "--set", "restart.delay=200ms", "--set", "restart.delay_max=200ms")
    running.wait_for("checkpoint_completed", 2)
    coordinator = running.wait_for("started")["data"]["pid"]

    ballast = fill(Path(f"/proc/{coordinator}/root{small}"))
    running.wait_until(lambda: "full" in str(running.events()) or "No space" in str(running.events()), "a word of it")
    ballast.unlink()
    done = running.wait()

    assert done.code == 0, done
    assert_counted(shell, "seen")


# ---------------------------------------------------------------------------------------------------- damaged snapshot


def storage(shell: Shell) -> Path:
    """Where the checkpoints of COUNTING are."""
    return shell.home.checkpoints("counting")


def manifest_of(shell: Shell, checkpoint: str) -> Path:
    """The manifest of a checkpoint."""
    return storage(shell) / checkpoint / "manifest.json"


def names_in(manifest: Path) -> set[str]:
    """The state files that a manifest names."""

    def walk(data: Any) -> set[str]:
        if isinstance(data, dict):
            own = {data["path"]} if "path" in data and "bytes" in data else set()
            return own.union(*map(walk, data.values()))
        return set().union(*map(walk, data)) if isinstance(data, list) else set()

    return walk(json.loads(manifest.read_text()))


def own_file_of(shell: Shell, checkpoint: str) -> Path:
    """A state file that only this checkpoint has."""
    own = manifest_of(shell, checkpoint)
    others = [names_in(manifest) for manifest in storage(shell).glob("chk-*/manifest.json") if manifest != own]
    return storage(shell) / min(names_in(own).difference(*others))


def flip_a_byte(shell: Shell, checkpoint: str) -> None:
    """Damage that does not show in a file's size."""
    path = own_file_of(shell, checkpoint)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def truncate_a_file(shell: Shell, checkpoint: str) -> None:
    """Half a state file."""
    path = own_file_of(shell, checkpoint)
    os.truncate(path, path.stat().st_size // 2)


def truncate_the_manifest(shell: Shell, checkpoint: str) -> None:
    """Half a manifest."""
    path = manifest_of(shell, checkpoint)
    os.truncate(path, path.stat().st_size // 2)


def remove_the_manifest(shell: Shell, checkpoint: str) -> None:
    """None at all."""
    manifest_of(shell, checkpoint).unlink()


Damage = Callable[[Shell, str], None]


def kill_behind_a_checkpoint(shell: Shell, backend: str) -> str:
    """Kill a run that has checkpoints; returns the folder of the newest, as the commit log says."""
    running = start_counting(shell, backend, 2)
    running.wait_for("checkpoint_completed", 4)
    running.kill()
    entries = sorted((storage(shell) / "commits").glob("*.json"))
    kinds = [json.loads(path.read_text()) for path in entries]
    newest: str = [entry["checkpoint"] for entry in kinds if entry["kind"] == "checkpoint"][-1]
    return newest


@pytest.mark.parametrize(
    ("backend", "damage"),
    [
        ("heap", flip_a_byte),
        ("rocksdb", flip_a_byte),
        ("heap", truncate_a_file),
        ("rocksdb", truncate_the_manifest),
        ("heap", remove_the_manifest),
    ],
)
def test_when_the_newest_checkpoint_is_damaged_then_an_older_one_is_used_and_the_output_taken_back(
    shell: Shell, backend: str, damage: Damage
) -> None:
    newest = kill_behind_a_checkpoint(shell, backend)
    damage(shell, newest)

    running = start_counting(shell, backend, 2)
    done = running.wait()

    assert done.code == 0, done
    warnings = " ".join(event["text"] for event in running.events("warning"))
    assert f"checkpoint {newest} is damaged and is skipped" in warnings, done
    assert running.events("restored")[-1]["data"]["directory"] != newest
    assert_counted(shell)
