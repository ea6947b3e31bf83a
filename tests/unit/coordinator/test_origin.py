"""`coordinator.origin`: what the newest attempt of a lineage hands to the next one."""

from flowpoint.coordinator.origin import Origin, facts, rescaled_to
from flowpoint.model.commits import CommitEntry


def attempt(number, lineage, rescaled):
    return CommitEntry(number, "attempt", number, lineage, 0, "", 0, "nonce", 0, facts(None, rescaled))


def test_a_rescale_is_remembered_for_its_own_lineage_only():
    entries = [attempt(1, "L1", 0), attempt(2, "L1", 3), attempt(3, "L2", 0)]

    assert rescaled_to(entries, "L1") == 3
    assert rescaled_to(entries, "L2") == 0
    assert rescaled_to([], "L1") == 0


def test_a_snapshot_is_the_same_one_wherever_it_lies_and_another_one_once_it_was_written_anew():
    begun = Origin("/sp", "L1", 7, claim=False, handed_on=True, created=1_000)

    assert Origin("/moved", "L1", 7, claim=True, handed_on=True, created=1_000).is_same_snapshot(begun)
    assert not Origin("/sp", "L1", 7, claim=False, handed_on=True, created=2_000).is_same_snapshot(begun)
    assert not Origin("/sp", "L2", 7, claim=False, handed_on=True, created=1_000).is_same_snapshot(begun)


def test_of_a_snapshot_whose_time_of_creation_was_not_noted_nothing_is_said():
    begun = Origin("/sp", "L1", 7, claim=False, handed_on=True)

    assert not begun.is_same_snapshot(begun)
