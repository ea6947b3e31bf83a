"""A sink of the contract's methods learns what became of all that it has prepared: committed, or aborted, never both."""

from __future__ import annotations

from tests.simulation.stage import Stage, settings, witness

ROWS = 400
JOB = f"""
numbers = job.source(SequenceSource(0, {ROWS}, rate=400), uid="numbers")
numbers.sink(PreparedRowsSink(), uid="rows", parallelism=1)
numbers.map(lambda n: (n,), uid="boxed").sink(SINK)
"""
LATE = 'LateSink("/data/out", format="jsonl"), uid="out", parallelism=1'


def told(verb: str) -> list[str]:
    """What the sink was told to commit or to abort, in order."""
    return [name for told, name in witness.seen if told == verb]


def visible_rows() -> list[int]:
    return sorted(row for is_visible, rows in witness.target.values() for row in rows if is_visible)


def left_prepared() -> list[str]:
    return [name for name, (is_visible, _) in witness.target.items() if not is_visible]


def test_what_was_prepared_for_a_checkpoint_that_never_counted_is_aborted_by_the_next_attempt():
    stage = Stage(JOB, settings(), output=LATE)

    async def script():
        run = stage.start()
        await stage.until(lambda: told("commit") == ["a1-0-1"])
        witness.failures.update(late=1, prepare=1)
        await stage.finish(run)

    stage.play(script())

    void = told("abort")
    assert len(void) == 1
    assert void[0].startswith("a1-0-")
    assert void[0] not in told("commit")
    assert left_prepared() == []
    assert visible_rows() == list(range(ROWS))
    # The last thing before was to commit, once more, what the restored checkpoint holds; no attempt had written yet.
    at = witness.seen.index(("abort", void[0]))
    assert witness.seen[at - 1][0] == "commit"
    assert {name.partition("-")[0] for _, name in witness.seen[: at + 1]} == {"a1"}


def test_what_an_expired_checkpoint_had_prepared_is_committed_with_the_next_one_and_not_aborted():
    stage = Stage(JOB, settings(timeout=0.5, tolerable_failures=3), output=LATE)

    async def script():
        run = stage.start()
        await stage.until(lambda: told("commit"))
        witness.failures.update(late=1)
        await stage.finish(run)

    stage.play(script())

    assert stage.story("was not complete within checkpoint.timeout")
    assert told("abort") == []
    assert left_prepared() == []
    assert visible_rows() == list(range(ROWS))


def test_an_abort_that_fails_is_told_and_tried_again_by_the_next_attempt():
    stage = Stage(JOB, settings(), output=LATE)

    async def script():
        run = stage.start()
        await stage.until(lambda: told("commit"))
        witness.failures.update(late=1, prepare=1, abort=1)
        await stage.until(lambda: told("abort"))
        await stage.until(lambda: any(name.startswith("a2") for name in told("commit")))
        stage.kill(stage.workers()[0])
        await stage.finish(run)

    stage.play(script())

    assert stage.story("coordinator", "which never counted, is left", "'rows'", "the database does not answer")
    assert told("abort")[0] == told("abort")[1]
    assert left_prepared() == []
    assert visible_rows() == list(range(ROWS))
