"""Only savepoints are disposed of, the manifest first, and nothing that is not theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowpoint import snapshot
from flowpoint.errors import NotFoundError, SnapshotError, UsageError
from flowpoint.host.blocking import BlockingDisk
from flowpoint.snapshot import names
from flowpoint.snapshot.disposed import dispose
from tests.unit.snapshot.made import UID, Maker, checkpoint, fill, folder_bytes


def savepoint(root: Path) -> Path:
    maker = Maker(root, kind="savepoint")
    return maker.write({UID: maker.states(fill)})


def test_a_savepoint_is_deleted_with_its_folder(tmp_path: Path) -> None:
    path = savepoint(tmp_path / "s")

    disposed = dispose(path)

    assert (disposed.id, disposed.left) == (7, ())
    assert disposed.bytes > 0
    assert not path.exists()


def test_the_manifest_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = savepoint(tmp_path / "s")
    removed: list[str] = []

    async def remove(self: BlockingDisk, name: str) -> bool:
        removed.append(Path(name).name)
        return True

    monkeypatch.setattr(BlockingDisk, "remove", remove)
    dispose(path)

    assert removed == ["manifest.json", "counts-0-a1-1.base", "counts-1-a1-2.base"]


def test_what_is_not_of_the_savepoint_stays(tmp_path: Path) -> None:
    path = savepoint(tmp_path / "s")
    (path / "notes.txt").write_text("mine")
    (path / "shared" / "other.base").write_text("mine")

    assert dispose(path).left == ("notes.txt", "shared")
    assert folder_bytes(path) == {"notes.txt": b"mine", "shared/other.base": b"mine"}


def test_what_the_job_had_left_beside_the_savepoint_goes_with_it(tmp_path: Path) -> None:
    path = savepoint(tmp_path / "s")
    stray = path / names.savepoint_output("out", 0, snapshot.open(path).manifest.lineage, 1)
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(b"output")

    assert dispose(path).left == ()
    assert not path.exists()


def test_a_checkpoint_is_refused(tmp_path: Path) -> None:
    path = checkpoint(tmp_path)
    before = folder_bytes(tmp_path)

    with pytest.raises(UsageError, match="it is a checkpoint of job 'words'"):
        dispose(path)

    assert folder_bytes(tmp_path) == before


def test_the_storage_of_a_job_is_refused(tmp_path: Path) -> None:
    path = savepoint(tmp_path / "s")
    (path / "commits").mkdir()

    with pytest.raises(UsageError, match="it has a commit log"):
        dispose(path)


def test_what_is_no_snapshot_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()

    with pytest.raises(NotFoundError):
        dispose(tmp_path)


def test_a_savepoint_with_a_damaged_manifest_is_left_alone(tmp_path: Path) -> None:
    path = savepoint(tmp_path / "s")
    (path / "manifest.json").write_text("{}")

    with pytest.raises(SnapshotError):
        dispose(path)

    assert len(folder_bytes(path)) == 3
