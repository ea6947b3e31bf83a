"""The checkpoints of a job that does not run: what is damaged and what cannot be read are told apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowpoint.host.system import SystemHost
from flowpoint.launch.history import describe_retained
from flowpoint.model.manifest import Manifest
from flowpoint.snapshot import rereading
from flowpoint.snapshot.commit_log import CommitLog
from flowpoint.snapshot.manifests import write_manifest
from flowpoint.snapshot.places import FolderPlace


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rereading, "PAUSES", ())


async def described(root: Path, numbers: range, *harm: Any) -> list[str]:
    """The states of some checkpoints after harm was done to their manifests."""
    host = SystemHost("history", str(root))
    place = FolderPlace(host, str(root))
    log = CommitLog(place.storage, "", host)
    attempt = (await log.begin_attempt("L")).attempt
    for number in numbers:
        manifest = Manifest(
            kind="checkpoint",
            job="words",
            id=number,
            attempt=attempt,
            lineage="L",
            parent=number - 1,
            created=1,
            plan={},
            operators={},
        )
        directory = await write_manifest(place.storage, manifest)
        await log.append("checkpoint", attempt, checkpoint=number, directory=directory, parent=number - 1)
    for number, do in zip(numbers, harm, strict=True):
        do(root / f"chk-{number}-a{attempt}" / "manifest.json")
    try:
        return [checkpoint["state"] for checkpoint in await describe_retained(place, log)]
    finally:
        await host.close()


def nothing(_: Path) -> None:
    """It stays as it is."""


def cut(manifest: Path) -> None:
    manifest.write_bytes(manifest.read_bytes()[:-3])


def refuse(manifest: Path) -> None:
    """A link to itself is opened for nobody."""
    manifest.unlink()
    manifest.symlink_to(manifest)


async def test_each_checkpoint_is_told_for_itself_and_what_cannot_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    states = await described(tmp_path, range(1, 5), nothing, cut, Path.unlink, refuse)

    assert states == ["completed", "damaged", "damaged", "unreadable"]
