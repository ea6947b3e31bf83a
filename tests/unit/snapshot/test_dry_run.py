"""Trying out a job's types on every value of a snapshot: what would change, and what would be refused, key by key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from flowpoint.codec.registry import TypeRegistry
from flowpoint.model.manifest import OperatorState
from flowpoint.model.plan import OperatorKind
from flowpoint.snapshot.dry_run import StateReport, open_for_conversion, try_out
from flowpoint.state.backend import Backend
from flowpoint.state.declarations import DeclaredStates, declared_states
from flowpoint.state.spec import StateSpec
from tests.unit.snapshot.made import DAYS, MAP, UID, VALUE, WORDS, Maker, checkpoint, folder_bytes


def tried(root: Path, *specs: StateSpec, **more: Any) -> dict[str, StateReport]:
    """A report for each state of a snapshot with a value, a list and a map."""
    folder = checkpoint(root)
    declared = {UID: DeclaredStates({spec.name: spec for spec in specs}, {})}
    reports = try_out(open_for_conversion(str(folder)), declared, TypeRegistry())
    return {report.state: report for report in reports}


def spec(like: StateSpec, **more: Any) -> StateSpec:
    return StateSpec(like.name, like.kind, **more)


def test_what_stays_as_it_is_is_counted_and_does_not_change(tmp_path: Path) -> None:
    report = tried(tmp_path, VALUE)["count"]

    assert (report.values, report.changed, report.failed, report.is_fine) == (len(WORDS), 0, 0, True)


def test_what_a_migration_changes_is_counted(tmp_path: Path) -> None:
    report = tried(tmp_path, spec(VALUE, version=2, migrate={1: lambda count: max(count, 1)}))["count"]

    assert (report.values, report.changed) == (len(WORDS), 1)
    assert report.notes == ["migrated from version 1 to version 2"]
    assert (report.stored, report.wanted) == ("anything (version 1)", "anything (version 2)")


def test_what_cannot_be_migrated_is_counted_and_the_first_ones_are_named(tmp_path: Path) -> None:
    report = tried(tmp_path, spec(VALUE, version=2, migrate={1: lambda count: 100 // (count % 20)}))["count"]

    assert (report.failed, report.is_fine) == (15, False)
    assert len(report.failures) == 10
    assert all(WORDS[failure.key.strip("'")] % 20 == 0 for failure in report.failures)
    assert "raised ZeroDivisionError" in report.failures[0].reason


def test_entries_of_a_map_are_tried_one_by_one(tmp_path: Path) -> None:
    report = tried(tmp_path, spec(MAP, version=2, migrate={1: str}))["days"]

    assert report.values == report.changed == len(DAYS)


def test_a_state_that_is_gone_or_whose_version_is_newer_is_refused_without_reading_it(tmp_path: Path) -> None:
    reports = tried(tmp_path, spec(VALUE, version=2))

    assert "has no migration from version 1" in reports["count"].refusals[0]
    assert "no longer has state 'days' of operator 'counts'" in reports["days"].refusals[0]
    assert reports["count"].values == reports["days"].values == 0


def test_the_snapshot_is_only_read(tmp_path: Path) -> None:
    checkpoint(tmp_path / "before")
    tried(tmp_path / "after", spec(VALUE, version=2, migrate={1: str}))

    assert folder_bytes(tmp_path / "before") == folder_bytes(tmp_path / "after")


def test_a_count_declares_its_one_state() -> None:
    assert list(declared_states(OperatorKind.COUNT, None).every) == ["count"]


def test_broadcast_state_is_tried_once_and_its_entries_are_named_by_their_own_keys(tmp_path: Path) -> None:
    def write_rules(backend: Backend) -> None:
        for day, value in (("mon", 1), ("tue", 0)):
            backend.map_table(MAP).put("all", day, value)

    maker = Maker(tmp_path, parallelism=1)
    (subtask,) = maker.states(write_rules).subtasks
    everywhere = replace(subtask, files=(), broadcast=subtask.files)
    folder = maker.write({UID: OperatorState(2, (everywhere, everywhere))})

    declared = {UID: DeclaredStates({}, {"days": spec(MAP, version=2, migrate={1: lambda value: 1 // value})})}
    (report,) = try_out(open_for_conversion(str(folder)), declared, TypeRegistry())

    assert (report.state, report.values, report.failed) == ("days", 2, 1)
    assert [failure.key for failure in report.failures] == ["'tue'"]
