"""docs/simulation.md says what shows each rule: every rule has a row, and every test named there exists."""

from __future__ import annotations

import re
from pathlib import Path

from tests.simulation.ablations import ABLATIONS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "simulation.md").read_text()
RULES = 24


def test_every_rule_has_a_row():
    rows = re.findall(r"^\| (\d+) ", PAGE, flags=re.MULTILINE)

    assert [int(number) for number in rows] == list(range(1, RULES + 1))


def test_every_test_that_is_named_exists():
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    defined = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }

    assert sorted(named - defined) == []


def test_every_ablation_is_named():
    assert [ablation.name for ablation in ABLATIONS if f"*{ablation.name}*" not in PAGE] == []
