"""docs/cases.md says what shows each case: every test named there exists, and none of a case is left out."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROWS = dict(re.findall(r"^\| AC-(\d\d) \|(.*)$", (ROOT / "docs" / "cases.md").read_text(), flags=re.MULTILINE))
DEFINED = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), flags=re.MULTILINE)
}


def named_in(row: str) -> set[str]:
    """The tests that a row of the page names."""
    return set(re.findall(r"`(test_\w+)`", row))


def test_every_row_names_tests_that_exist():
    assert len(ROWS) >= 17
    assert {case: sorted(named_in(row) - DEFINED) for case, row in ROWS.items()} == {case: [] for case in ROWS}
    assert all(named_in(row) for row in ROWS.values())


def test_every_test_of_a_case_is_in_its_row():
    of_cases: dict[str, set[str]] = {}
    for name in DEFINED:
        if case := re.match(r"test_ac(\d\d)[a-z]?_", name):
            of_cases.setdefault(case[1], set()).add(name)

    missing = {case: sorted(names - named_in(ROWS.get(case, ""))) for case, names in of_cases.items()}

    assert {case: names for case, names in missing.items() if names} == {}
