"""The simulated file system: what a crash may take, and what it may not."""

from __future__ import annotations

from random import Random

import pytest

from flowpoint.sim.files import FileSystem

SEEDS = range(60)
WRITER = object()


def file_system(seed: int = 0) -> FileSystem:
    files = FileSystem(Random(seed), lambda: 0)
    files.make_dirs("/d")
    return files


def write(files: FileSystem, path: str, data: bytes, *, sync: bool) -> None:
    file = files.create(path, WRITER)
    files.append(file, data)
    if sync:
        files.sync(file, path)


def after_power_failure(seed: int, prepare) -> FileSystem:
    files = file_system(seed)
    prepare(files)
    files.power_failure()
    return files


def test_what_was_synced_with_its_name_survives_every_power_failure():
    def prepare(files):
        write(files, "/d/f", b"data", sync=True)
        files.sync_dir("/d")
        assert files.is_durable("/d/f")

    for seed in SEEDS:
        assert after_power_failure(seed, prepare).file("/d/f").data == b"data"


def test_a_synced_file_whose_folder_was_not_synced_may_vanish_or_stay():
    def prepare(files):
        write(files, "/d/f", b"data", sync=True)
        assert not files.is_durable("/d/f")

    outcomes = {after_power_failure(seed, prepare).find("/d/f") is None for seed in SEEDS}

    assert outcomes == {True, False}


def test_unsynced_bytes_are_lost_kept_torn_or_zeroed():
    def prepare(files):
        write(files, "/d/f", b"old", sync=True)
        files.append(files.file("/d/f"), b"NEW-BYTES")
        files.sync_dir("/d")

    outcomes = {bytes(after_power_failure(seed, prepare).file("/d/f").data) for seed in range(300)}

    assert all(data.startswith(b"old") for data in outcomes)
    assert {b"old", b"oldNEW-BYTES", b"oldNEW"} <= outcomes
    assert any(data.endswith(b"\0") for data in outcomes)


def test_changes_of_a_folder_survive_in_their_order():
    def prepare(files):
        for name in "abc":
            write(files, f"/d/{name}", b"", sync=True)

    outcomes = {"".join(after_power_failure(seed, prepare).list("/d")) for seed in SEEDS}

    assert outcomes == {"", "a", "ab", "abc"}


def test_a_rename_is_there_or_not_but_never_half():
    def prepare(files):
        write(files, "/d/old", b"1", sync=True)
        files.sync_dir("/d")
        files.rename("/d/old", "/d/new")

    outcomes = {"".join(after_power_failure(seed, prepare).list("/d")) for seed in SEEDS}

    assert outcomes == {"old", "new"}


def test_a_removed_file_may_come_back():
    def prepare(files):
        write(files, "/d/f", b"1", sync=True)
        files.sync_dir("/d")
        files.remove("/d/f")

    assert {len(after_power_failure(seed, prepare).list("/d")) for seed in SEEDS} == {0, 1}


def test_after_a_failed_sync_the_bytes_never_become_durable():
    files = file_system()
    write(files, "/d/f", b"data", sync=False)
    files.sync_dir("/d")
    file = files.file("/d/f")
    file.lost = True

    files.sync(file, "/d/f")

    assert not files.is_durable("/d/f")


def test_a_killed_writer_loses_a_tail_of_what_was_unsynced_and_nothing_else():
    outcomes = set()
    for seed in SEEDS:
        files = file_system(seed)
        write(files, "/d/mine", b"old", sync=True)
        files.append(files.file("/d/mine"), b"new")
        other = files.create("/d/other", object())
        files.append(other, b"other")
        files.crash_writer(WRITER)
        assert files.file("/d/other").data == b"other"
        outcomes.add(bytes(files.file("/d/mine").data))

    assert {b"old", b"oldn", b"oldne", b"oldnew"} == outcomes


def test_both_names_of_a_linked_file_have_one_content_after_a_crash():
    def prepare(files):
        write(files, "/d/a", b"data", sync=False)
        files.link("/d/a", "/d/b")
        files.sync_dir("/d")

    for seed in SEEDS:
        files = after_power_failure(seed, prepare)
        assert files.file("/d/a") is files.file("/d/b")


def test_renames_across_folders_are_refused_in_words():
    files = file_system()
    files.make_dirs("/e")
    write(files, "/d/f", b"", sync=True)

    with pytest.raises(NotImplementedError, match="across folders"):
        files.rename("/d/f", "/e/f")


def test_relative_paths_are_refused():
    with pytest.raises(ValueError, match="absolute"):
        file_system().find("d/f")


def test_damage_flips_one_bit():
    files = file_system()
    write(files, "/d/f", bytes(8), sync=True)

    files.damage("/d/f")

    assert sum(byte.bit_count() for byte in files.file("/d/f").data) == 1
