"""The checkers: each rule, broken once by hand, and the lawful things that look like a breach."""

from __future__ import annotations

import pytest

from flowpoint.sim.stored_names import Part, parse_part
from flowpoint.sim.world import InvariantBroken
from tests.simulation.machine import Machine


@pytest.fixture
def machine():
    return Machine()


def test_an_orderly_life_with_retention_and_take_back_is_fine(machine):
    machine.commit(1, 1, kind="attempt")
    for number, checkpoint in (2, 1), (3, 2):
        path = machine.checkpoint(number, checkpoint, 1)
        machine.part(checkpoint, 1)
    machine.files.remove("/s/commits/00000002.json")
    machine.files.remove("/s/chk-1-a1/manifest.json")
    machine.files.remove("/s/shared/f-1-a1")
    machine.commit(4, 2, kind="attempt")
    machine.files.remove(machine.part_path(2, 1))
    machine.checkpoint(5, 3, 2)
    machine.part(3, 2)

    machine.verdict()
    assert path == "shared/f-2-a1"
    assert machine.output.visible() == [machine.part_path(1, 1)[3:], machine.part_path(3, 2)[3:]]


def break_overwritten_commit(m):
    m.commit(1, 1, kind="attempt")
    m.files.remove("/s/commits/00000001.json")
    m.commit(1, 2, kind="attempt")


def break_older_attempt_commits(m):
    m.commit(1, 1, kind="attempt")
    m.commit(2, 2, kind="attempt")
    m.checkpoint(3, 1, 1)


def break_descending_checkpoints(m):
    m.checkpoint(1, 5, 1)
    m.checkpoint(2, 4, 1)


def break_unsynced_commit(m):
    m.commit(1, 1, kind="attempt", sync=False)


def break_second_manifest(m):
    m.manifest(1, 1)
    m.files.remove("/s/chk-1-a1/manifest.json")
    m.write("/s/shared/f", b"x")
    m.manifest(1, 1, "shared/f")


def break_manifest_in_the_wrong_folder(m):
    m.files.make_dirs("/s/chk-2-a1")
    m.publish("/s/chk-2-a1/manifest.json", b'{"id": 1, "attempt": 1, "operators": {}}')


def break_missing_file(m):
    m.manifest(1, 1, "shared/none")


def break_short_file(m):
    m.write("/s/shared/f", b"x")
    m.manifest(1, 1, "shared/f", size=2)


def break_unsynced_file(m):
    m.write("/s/shared/f", b"x", sync=False)
    m.manifest(1, 1, "shared/f")


def break_unsynced_name(m):
    m.write("/s/shared/f", b"x", sync_dir=False)
    m.manifest(1, 1, "shared/f")


def break_commit_without_manifest(m):
    m.commit(1, 1, 1)


def break_removed_file(m):
    m.files.remove(f"/s/{m.checkpoint(1, 1, 1)}")


def break_part_before_its_commit(m):
    m.commit(1, 1, kind="attempt")
    m.part(1, 1)


def break_part_of_an_attempt_without_commit(m):
    m.checkpoint(1, 1, 1)
    m.part(1, 2)


def break_part_before_the_commit_is_durable(m):
    m.write("/s/shared/f", b"x")
    m.manifest(1, 1, "shared/f")
    m.commit(1, 1, 1, sync_dir=False)
    m.part(1, 1)


def break_unsynced_part(m):
    m.checkpoint(1, 1, 1)
    m.part(1, 1, sync=False)


def break_part_removed_in_its_own_attempt(m):
    m.checkpoint(1, 1, 1)
    m.part(1, 1)
    m.files.remove(m.part_path(1, 1))


def break_part_committed_again_with_other_content(m):
    m.checkpoint(1, 1, 1)
    m.part(1, 1)
    m.part(1, 1, b"other\n")


@pytest.mark.parametrize(
    ("breach", "words"),
    [
        (break_overwritten_commit, "overwritten"),
        (break_older_attempt_commits, "after attempt 2 began"),
        (break_descending_checkpoints, "after 5 was committed"),
        (break_unsynced_commit, "before it was durable"),
        (break_second_manifest, "written twice"),
        (break_manifest_in_the_wrong_folder, "says checkpoint 1"),
        (break_missing_file, "there are -1"),
        (break_short_file, "with 2 bytes; there are 1"),
        (break_unsynced_file, "not durable"),
        (break_unsynced_name, "not durable"),
        (break_commit_without_manifest, "not durable"),
        (break_removed_file, "still needs it"),
        (break_part_before_its_commit, "no checkpoint 1 or later of attempt 1"),
        (break_part_of_an_attempt_without_commit, "no checkpoint 1 or later of attempt 2"),
        (break_part_before_the_commit_is_durable, "no checkpoint 1 or later of attempt 1"),
        (break_unsynced_part, "before its content was durable"),
        (break_part_removed_in_its_own_attempt, "not by an attempt that takes it back"),
        (break_part_committed_again_with_other_content, "other content"),
    ],
)
def test_a_breach_ends_the_run(machine, breach, words):
    breach(machine)

    with pytest.raises(InvariantBroken, match=words):
        machine.verdict()


def test_part_names_are_read_with_and_without_the_uid_of_the_sink():
    for name in "part-00000017-003-a7-L1.jsonl", "part-00000017-out-003-a7-L1.jsonl":
        assert parse_part(name) == Part(checkpoint=17, subtask=3, attempt=7, lineage="L1")
    for name in ".part-00000017-003-a7-L1.jsonl", ".part-out-003-a7-000002-L1.jsonl", "owner.json":
        assert parse_part(name) is None


def test_a_stale_writer_may_find_a_number_free_that_was_cleaned_away(machine):
    for number in 1, 2:
        machine.checkpoint(number, number, 1)
    machine.files.remove("/s/commits/00000001.json")

    machine.commit(1, 9, kind="attempt")

    machine.verdict()


def test_after_a_power_failure_an_unsynced_commit_may_be_gone_and_its_number_used_again(machine):
    machine.commit(1, 1, kind="attempt")
    machine.commit(2, 2, kind="attempt", sync_dir=False)
    while machine.files.find("/s/commits/00000002.json") is not None:
        machine.files.remove("/s/commits/00000002.json")
        machine.files.power_failure()

    machine.commit(2, 3, kind="attempt")

    machine.verdict()


def test_damage_hits_only_what_no_older_checkpoint_needs_and_is_forgiven(machine):
    assert machine.storage.damage_newest() is None
    for number in 1, 2:
        machine.checkpoint(number, number, 1)

    damaged = machine.storage.damage_newest()

    assert damaged in ("/s/shared/f-2-a1", "/s/chk-2-a1/manifest.json")
    machine.verdict()
