"""`coordinator.origin`: what the newest attempt of a lineage hands to the next one."""

from flowpoint.coordinator.origin import facts, rescaled_to
from flowpoint.model.commits import CommitEntry


def attempt(number, lineage, rescaled):
    return CommitEntry(number, "attempt", number, lineage, 0, "", 0, "nonce", 0, facts(None, rescaled))


def test_a_rescale_is_remembered_for_its_own_lineage_only():
    entries = [attempt(1, "L1", 0), attempt(2, "L1", 3), attempt(3, "L2", 0)]

    assert rescaled_to(entries, "L1") == 3
    assert rescaled_to(entries, "L2") == 0
    assert rescaled_to([], "L1") == 0
