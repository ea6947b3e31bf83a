"""Snapshots that older versions of FlowPoint wrote can be inspected, proved, and gone on from.

Each folder of `tests/fixtures/snapshots` is a format, each folder in it a snapshot of the job beside it, taken half way.
They are never changed: a new format gets new ones beside them (docs/state-evolution.md says how they are made).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flowpoint import snapshot
from tests.e2e.shell import Shell, committed

FIXTURES = Path(__file__).parents[1] / "fixtures" / "snapshots"
JOBS = sorted(FIXTURES.glob("format-*/every_kind.py"))
END, KEYS = 1200, 12
BYTES_MAX = 200_000
SNAPSHOTS = sorted(path.parent for path in FIXTURES.rglob("manifest.json"))
STATES = {
    "everything": {"__timers__", "account", "by_digit", "largest", "readings"},
    "counts": {"count"},
    "means": {"aggregate"},
    "ruled": {"__timers__", "rules", "seen"},
}


def name_of(folder: Path) -> str:
    return "-".join(folder.relative_to(FIXTURES).parts)


def test_the_fixtures_are_of_every_kind_of_snapshot_and_stay_small() -> None:
    kinds = {folder.relative_to(FIXTURES).parts[:2] for folder in SNAPSHOTS}
    formats = {kind[0] for kind in kinds}

    assert kinds >= {(each, kind) for each in formats for kind in ("heap", "unaligned", "savepoint")}
    assert formats == {job.parent.name for job in JOBS}
    assert sum(path.stat().st_size for path in FIXTURES.rglob("*") if path.is_file()) < BYTES_MAX


@pytest.mark.parametrize("folder", SNAPSHOTS, ids=name_of)
def test_an_old_snapshot_is_whole_and_can_be_looked_into(folder: Path) -> None:
    opened = snapshot.open(folder)

    report = opened.verify()

    assert report.damages == []
    assert report.entries > 100
    for uid, states in STATES.items():
        operator = opened.operator(uid)
        assert states <= {*operator.states, *operator.broadcast_states}
    account = opened.operator("everything").state("account").get(5)
    assert dict(account.items())["owner"] == "owner-5"
    assert dict(account.items())["total"] > 1
    assert opened.operator("counts").state("count").get(5) > 1


def pairs() -> list[tuple[Path, Path]]:
    """Each snapshot with its own job, and one of each older format with the job of the newest."""
    own = [(folder, FIXTURES / folder.relative_to(FIXTURES).parts[0] / "every_kind.py") for folder in SNAPSHOTS]
    older = [folder for folder in SNAPSHOTS if folder.name.startswith("chk") and folder.parent.name == "unaligned"]
    return own + [(folder, JOBS[-1]) for folder in older if JOBS[-1].parent not in folder.parents]


@pytest.mark.parametrize(("folder", "job"), pairs(), ids=name_of)
def test_a_job_goes_on_from_an_old_snapshot_to_the_same_end(folder: Path, job: Path, shell: Shell) -> None:
    params = ["--param", f"end={END}", "--param", "rate=", "--param", "slow=0"]
    how = ["-p", "3", "--set", "max_parallelism=8", "--plain"]

    done = shell.run_ok("run", str(job), "--from", str(folder), *params, *how, timeout=60)

    assert "finished" in done.out
    rows: dict[str, list[Any]] = {"all": [], "count": [], "mean": [], "seen": []}
    for kind, *row in committed(shell.folder / "out"):
        rows[kind].append(row)
    each = END // KEYS
    numbers = {key: range(key, END, KEYS) for key in range(KEYS)}
    for name, last in (("count", each), ("seen", each)):
        counts = {key: [count for other, count in rows[name] if other == key] for key in range(KEYS)}
        # What came before the snapshot is not counted again, and nothing after it is missing.
        assert all(sorted(seen) == list(range(min(seen), last + 1)) for seen in counts.values())
    assert {key: max(total for other, total in rows["mean"] if other == key) for key in range(KEYS)} == {
        key: sum(numbers[key]) for key in range(KEYS)
    }
    # One timer of event time and one of processing time per key: both fire when the input ends.
    assert sorted(rows["all"], key=str) == sorted(
        (
            [f"owner-{key}", each, 2, dict(Counter(str(n % 10) for n in numbers[key])), numbers[key][-1]]
            for key in (*range(KEYS), *range(KEYS))
        ),
        key=str,
    )
