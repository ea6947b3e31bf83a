"""`protocol.recovery`: what to restore, from the commit log and what is known of the checkpoints."""

import itertools
from dataclasses import replace

import pytest

from flowpoint.model.commits import CommitEntry
from flowpoint.protocol.recovery import (
    AlreadyFinished,
    Examine,
    Refuse,
    Restore,
    StartEmpty,
    choose,
    next_checkpoint_id,
    standing,
)


class Log:
    """Builds a commit log."""

    def __init__(self, lineage="L1"):
        self.entries = []
        self.lineage = lineage
        self.attempt = 0

    def add(self, kind, checkpoint=0, parent=0):
        name = f"chk-{checkpoint}-a{self.attempt}" if checkpoint else ""
        number = len(self.entries) + 1
        entry = CommitEntry(number, kind, self.attempt, self.lineage, checkpoint, name, parent, nonce="", created=0)
        self.entries.append(entry)
        return entry

    def begin(self, lineage=None):
        self.lineage = lineage or self.lineage
        self.attempt += 1
        self.add("attempt")

    def checkpoints(self, *ids):
        return [self.add("checkpoint", id, parent) for parent, id in itertools.pairwise((0, *ids))]


def decide(log, damaged=(), can_take_back=True, accept_duplicates=False):
    """Ask, examine, ask again. Also says in which order checkpoints were examined."""
    health, examined = {}, []
    options = {"can_take_back": can_take_back, "accept_duplicates": accept_duplicates}
    while isinstance(decision := choose(log.entries, health, **options), Examine):
        examined.append(decision.entry.checkpoint)
        health[decision.entry.directory] = "torn" if decision.entry in damaged else None
    return decision, examined


def test_when_the_log_is_empty_then_the_job_starts_empty():
    assert decide(Log()) == (StartEmpty(""), [])


def test_ac06_when_no_checkpoint_was_completed_then_the_job_starts_empty_in_its_lineage():
    log = Log()
    log.begin()

    assert decide(log) == (StartEmpty("L1"), [])


def test_when_the_newest_checkpoint_is_good_then_it_is_restored_and_no_other_is_looked_at():
    log = Log()
    log.begin()
    *_, newest = log.checkpoints(1, 2, 3)

    assert decide(log) == (Restore(newest), [3])


def test_when_the_log_comes_in_any_order_then_the_decision_is_the_same():
    log = Log()
    log.begin()
    *_, newest = log.checkpoints(1, 2, 3)

    for entries in itertools.permutations(log.entries):
        log.entries = list(entries)
        assert decide(log) == (Restore(newest), [3])


def test_ac07_when_a_new_attempt_has_begun_then_it_starts_from_the_last_complete_one():
    log = Log()
    log.begin()
    [complete] = log.checkpoints(1)
    log.begin()

    assert decide(log) == (Restore(complete), [1])


def test_when_the_newest_is_damaged_and_all_sinks_can_take_back_then_its_parent_is_restored():
    log = Log()
    log.begin()
    _, second, third = log.checkpoints(1, 2, 3)

    assert decide(log, damaged=[third]) == (Restore(second, skipped=(third,)), [3, 2])


def test_when_several_are_damaged_then_the_newest_good_ancestor_is_restored():
    log = Log()
    log.begin()
    first, second, third = log.checkpoints(1, 2, 3)

    assert decide(log, damaged=[second, third]) == (Restore(first, skipped=(third, second)), [3, 2, 1])


def test_when_the_newest_is_damaged_and_a_sink_cannot_take_back_then_it_is_refused_with_the_flag_named():
    log = Log()
    log.begin()
    *_, newest = log.checkpoints(1, 2)

    decision, examined = decide(log, damaged=[newest], can_take_back=False)

    assert isinstance(decision, Refuse)
    assert examined == [2]
    for part in ("chk-2-a1", "torn", "chk-1-a1", "--accept-duplicates"):
        assert part in decision.reason


def test_when_duplicates_are_accepted_then_an_older_one_is_restored():
    log = Log()
    log.begin()
    older, newest = log.checkpoints(1, 2)

    decision, _ = decide(log, damaged=[newest], can_take_back=False, accept_duplicates=True)

    assert decision == Restore(older, skipped=(newest,))


@pytest.mark.parametrize("can_take_back", [True, False])
def test_when_all_are_damaged_then_it_is_refused_and_never_started_over(can_take_back):
    log = Log()
    log.begin()
    [only] = log.checkpoints(1)

    decision, _ = decide(log, damaged=[only], can_take_back=can_take_back)

    assert isinstance(decision, Refuse)
    assert "chk-1-a1: torn" in decision.reason
    assert "--fresh" in decision.reason


def test_when_what_a_job_began_with_is_damaged_then_the_snapshot_it_was_made_of_is_named():
    log = Log()
    log.begin()
    [imported] = log.checkpoints(1)
    log.entries[-1] = imported = replace(imported, extra={"from": "/backup/savepoint-counts-1"})

    decision, _ = decide(log, damaged=[imported])

    assert isinstance(decision, Refuse)
    assert (
        "start from /backup/savepoint-counts-1, which the job began with, with --from and another --name"
        in decision.reason
    )


def test_when_output_of_a_checkpoint_was_taken_back_then_it_is_never_restored_even_if_readable_again():
    log = Log()
    log.begin()
    first, _taken_back = log.checkpoints(1, 2)
    log.begin()  # could not read 2, so went on from 1
    third = log.add("checkpoint", 3, parent=1)

    assert decide(log, damaged=[third]) == (Restore(first, skipped=(third,)), [3, 1])


def test_when_a_fall_back_died_before_its_first_checkpoint_then_the_skipped_one_stays_skipped_even_if_readable_again():
    log = Log()
    log.begin()
    older, newest = log.checkpoints(16, 17)
    log.begin()
    log.add("restored", older.checkpoint)
    log.begin()

    assert decide(log) == (Restore(older), [16])
    assert decide(log, damaged=[newest]) == (Restore(older), [16])


def test_when_parents_have_been_cleaned_away_then_only_what_is_left_is_considered():
    log = Log()
    log.begin()
    log.checkpoints(1, 2, 3)
    del log.entries[1]  # checkpoint 1
    _, second, third = log.entries

    assert isinstance(decide(log, damaged=[second, third])[0], Refuse)


def test_when_there_is_a_newer_savepoint_then_it_is_not_restored():
    log = Log()
    log.begin()
    [complete] = log.checkpoints(1)
    log.add("savepoint", 2, parent=1)

    assert decide(log) == (Restore(complete), [1])


def test_when_the_job_was_stopped_then_it_goes_on_from_its_last_checkpoint():
    log = Log()
    log.begin()
    *_, newest = log.checkpoints(1, 2)
    log.add("stopped", 0)

    assert decide(log) == (Restore(newest), [2])


def test_when_the_job_has_finished_then_nothing_is_left_to_do():
    log = Log()
    log.begin()
    log.checkpoints(1)
    finished = log.add("finished")

    assert decide(log) == (AlreadyFinished(finished), [])


def test_when_a_finished_job_was_started_over_then_only_the_new_lineage_counts():
    log = Log()
    log.begin()
    log.checkpoints(1, 2)
    log.add("finished")
    log.begin(lineage="L2")

    assert decide(log) == (StartEmpty("L2"), [])
    newest = log.add("checkpoint", 3)
    assert decide(log) == (Restore(newest), [3])


def test_when_a_new_id_is_needed_then_it_is_above_all_that_were_ever_committed():
    log = Log()
    assert next_checkpoint_id(log.entries) == 1

    log.begin()
    log.checkpoints(1, 2)
    log.add("savepoint", 5)
    log.begin(lineage="L2")

    assert next_checkpoint_id(log.entries) == 6


def test_when_a_checkpoint_has_two_commits_then_it_is_a_bug():
    log = Log()
    log.begin()
    log.add("checkpoint", 1)
    log.add("checkpoint", 1)

    with pytest.raises(AssertionError, match="two commits of one checkpoint"):
        choose(log.entries, {}, can_take_back=True)


def test_when_a_checkpoint_is_older_than_its_parent_then_it_is_a_bug():
    log = Log()
    log.begin()
    log.add("checkpoint", 1, parent=1)

    with pytest.raises(AssertionError, match="newer than its parent"):
        choose(log.entries, {}, can_take_back=True)


@pytest.mark.parametrize("can_take_back", [True, False])
def test_when_any_mix_of_checkpoints_is_damaged_then_only_ancestors_are_restored_and_never_behind_a_commit(
    can_take_back,
):
    """All logs of up to four checkpoints, each taken after any older one, with any of them damaged."""
    for parents in itertools.product(range(1), range(2), range(3), range(4)):
        log = Log()
        log.begin()
        entries = [log.add("checkpoint", id, parent) for id, parent in enumerate(parents, start=1)]
        for damage in itertools.product([False, True], repeat=4):
            damaged = [entry for entry, is_damaged in zip(entries, damage, strict=True) if is_damaged]
            ancestors, at = [], 4
            while at:
                ancestors.append(at)
                at = parents[at - 1]
            good = [id for id in ancestors if not damage[id - 1]]

            decision, examined = decide(log, damaged, can_take_back)

            assert examined == ancestors[: len(examined)]
            if not good or (good[0] != 4 and not can_take_back):
                assert isinstance(decision, Refuse)
            else:
                assert decision.entry.checkpoint == good[0]


# ------------------------------------------------------------------ hand-overs, savepoints, refused starts


def told(number, kind, lineage="L1", checkpoint=0, **extra):
    directory = f"chk-{checkpoint}-a1" if checkpoint else ""
    return CommitEntry(number, kind, 1, lineage, checkpoint, directory, 0, f"n{number}", 0, extra)


def test_when_the_output_was_handed_on_then_the_job_is_refused_and_told_how_to_go_on():
    log = [told(1, "attempt"), told(2, "checkpoint", checkpoint=1), told(3, "stopped", checkpoint=1, savepoint="/sp/5")]

    decision = choose(log, {}, can_take_back=True)

    assert isinstance(decision, Refuse)
    assert "/sp/5" in decision.reason
    assert "--from" in decision.reason


def test_when_the_output_was_handed_on_drained_then_the_flag_that_goes_on_from_it_is_named_too():
    log = [
        told(1, "attempt"),
        told(2, "checkpoint", checkpoint=1),
        told(3, "stopped", checkpoint=1, savepoint="/sp/5", drained=True),
    ]

    decision = choose(log, {}, can_take_back=True)

    assert isinstance(decision, Refuse)
    assert "--from and --resume-drained" in decision.reason


def test_when_a_plain_stop_is_the_last_entry_then_the_job_goes_on():
    log = [told(1, "attempt"), told(2, "checkpoint", checkpoint=1), told(3, "stopped", checkpoint=1)]

    assert isinstance(choose(log, {"chk-1-a1": None}, can_take_back=True), Restore)


def test_when_a_start_was_refused_then_the_lineage_before_it_is_still_the_job():
    log = [
        told(1, "attempt"),
        told(2, "checkpoint", checkpoint=1),
        told(3, "attempt", "L2"),
        told(4, "checkpoint", "L2", checkpoint=1),
        told(5, "abandoned", "L2", checkpoint=1),
    ]

    decision = choose(log, {"chk-1-a1": None}, can_take_back=True)

    assert [entry.number for entry in standing(log)] == [1, 2]
    assert decision == Restore(log[1])


def test_when_a_savepoint_was_made_then_no_later_id_is_its_own():
    log = [told(1, "attempt"), told(2, "savepoint", savepoint="/sp/7", id=7)]

    assert next_checkpoint_id(log) == 8
    assert choose(log, {}, can_take_back=True) == StartEmpty("L1")
