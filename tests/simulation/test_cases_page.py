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
    for case, row in ROWS.items():
        of_the_case = {name for name in DEFINED if name.startswith(f"test_ac{case}_")}
        assert sorted(of_the_case - named_in(row)) == [], f"the row of AC-{case}"
