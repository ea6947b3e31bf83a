"""Disks that are full and checkpoints that are damaged: waited for, skipped, and said aloud."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.jobs import assert_counted, newest_checkpoint, start_counting
from tests.e2e.shell import Running, Shell

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


# ---------------------------------------------------------------------------------------------------- damaged snapshot


def storage(shell: Shell) -> Path:
    """Where the checkpoints of COUNTING are."""
    return shell.home.checkpoints("counting")


def manifest_of(shell: Shell, checkpoint: dict[str, Any]) -> Path:
    """The manifest of a checkpoint."""
    return storage(shell) / Path(checkpoint["path"]).name / "manifest.json"


def names_in(manifest: Path) -> set[str]:
    """The state files that a manifest names."""

    def walk(data: Any) -> set[str]:
        if isinstance(data, dict):
            own = {data["path"]} if "path" in data and "bytes" in data else set()
            return own.union(*map(walk, data.values()))
        return set().union(*map(walk, data)) if isinstance(data, list) else set()

    return walk(json.loads(manifest.read_text()))


def flip_a_byte(shell: Shell, checkpoint: dict[str, Any]) -> None:
    """Damage a file that only this checkpoint has, without changing its size."""
    newest = manifest_of(shell, checkpoint)
    others = set().union(*(names_in(m) for m in storage(shell).glob("chk-*/manifest.json") if m != newest))
    path = storage(shell) / sorted(names_in(newest) - others)[0]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def truncate_a_file(shell: Shell, checkpoint: dict[str, Any]) -> None:
    """Shorten a file that only this checkpoint has."""
    newest = manifest_of(shell, checkpoint)
    others = set().union(*(names_in(m) for m in storage(shell).glob("chk-*/manifest.json") if m != newest))
    path = storage(shell) / sorted(names_in(newest) - others)[0]
    os.truncate(path, path.stat().st_size // 2)


def truncate_the_manifest(shell: Shell, checkpoint: dict[str, Any]) -> None:
    """Half a manifest."""
    path = manifest_of(shell, checkpoint)
    os.truncate(path, path.stat().st_size // 2)


def remove_the_manifest(shell: Shell, checkpoint: dict[str, Any]) -> None:
    """None at all."""
    manifest_of(shell, checkpoint).unlink()


Damage = Callable[[Shell, dict[str, Any]], None]


def kill_behind_a_checkpoint(shell: Shell, backend: str) -> tuple[Running, dict[str, Any]]:
    """A run that was killed, and its newest checkpoint."""
    running = start_counting(shell, backend, 2)
    running.wait_for("checkpoint_completed", 4)
    running.kill()
    entries = sorted((storage(shell) / "commits").glob("*.json"))
    newest = [entry for path in entries if (entry := json.loads(path.read_text()))["kind"] == "checkpoint"][-1]
    return running, {"path": newest["checkpoint"] if isinstance(newest["checkpoint"], str) else newest["directory"]}


@pytest.mark.parametrize("damage", [flip_a_byte, truncate_a_file, truncate_the_manifest, remove_the_manifest])
@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_when_the_newest_checkpoint_is_damaged_then_an_older_one_is_used_and_the_output_taken_back(
    shell: Shell, backend: str, damage: Damage
) -> None:
    _, newest = kill_behind_a_checkpoint(shell, backend)
    damage(shell, newest)

    running = start_counting(shell, backend, 2)
    done = running.wait()

    assert done.code == 0, done
    warnings = " ".join(event["text"] for event in running.events("warning"))
    assert f"checkpoint {Path(newest['path']).name} is damaged and is skipped" in warnings, done
    assert running.events("restored")[-1]["data"]["directory"] != Path(newest["path"]).name
    assert_counted(shell)
