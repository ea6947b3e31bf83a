"""The table of keys in docs/operators.md is true: each example is a key, and what is called equal is one key."""

from __future__ import annotations

import re
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from uuid import UUID

import pytest

from flowpoint.codec.keys import canonical

PAGE = (Path(__file__).parents[3] / "docs" / "operators.md").read_text()
ROWS = re.findall(r"^\| ([^|]*) \| `([^|`]*)` \| ([^|]*) ?\|$", PAGE.split("## Keys")[1].split("##")[0], re.MULTILINE)


class Color(Enum):
    RED = 1


NAMES = {"date": date, "timedelta": timedelta, "UUID": UUID, "Color": Color, "Decimal": Decimal}


def key(text: str) -> object:
    return eval(text, dict(NAMES))


def test_all_rows_are_looked_at() -> None:
    assert len(ROWS) == 9


@pytest.mark.parametrize(("what", "example", "equal"), ROWS)
def test_the_example_of_a_row_is_a_key(what: str, example: str, equal: str) -> None:
    assert canonical(key(example))
    forms = [canonical(key(text)) for text in re.findall("`([^`]*)`", equal)]
    assert len(set(forms)) <= 1
