"""The pages for maintainers follow the code: what they name is there, and the glossary has one row for a word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "flowpoint"
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()

NAMED = re.compile(r"`((?:\w+/)*\w+\.py|(?:\w+/)+\w*)`")
"""A file, or a folder with its slash; a file without a folder is in that of the one named before."""


def missing_paths(page: str) -> list[str]:
    """The paths that a page names and that are neither in the package nor in the checkout."""
    folder, missing = "", []
    for path in NAMED.findall(page):
        if "/" in path:
            folder = path.rpartition("/")[0]
        full = path if "/" in path else f"{folder}/{path}"
        if not ((PACKAGE / full).exists() or (ROOT / full).exists()):
            missing.append(path)
    return missing


def repeated_words(page: str) -> list[str]:
    """The words that have more than one row in the tables of a page."""
    words = [word for word in re.findall(r"^\| ([^|]+?) \|", page, flags=re.MULTILINE) if word != "word"]
    return sorted({word for word in words if words.count(word) > 1})


def test_every_path_that_the_page_of_the_architecture_names_exists() -> None:
    assert len(NAMED.findall(ARCHITECTURE)) > 40
    assert missing_paths(ARCHITECTURE) == []


def test_every_room_has_its_row() -> None:
    rooms = {f"{folder.name}/" for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists()}
    rows = {
        room for row in re.findall(r"^\| (`.+?) \|", ARCHITECTURE, flags=re.MULTILINE) for room in NAMED.findall(row)
    }

    assert rooms - rows == set()


def test_every_word_of_the_glossary_has_one_row() -> None:
    assert GLOSSARY.count("\n| ") > 50
    assert repeated_words(GLOSSARY) == []


@pytest.mark.parametrize(
    ("page", "missing"),
    [
        ("`runtime/subtask.py` takes them in slices (`slices.py`)", []),
        ("`runtime/subtask.py` takes them in slices (`layers.py`)", ["layers.py"]),
        ("`stat/` and `runtime/sub.py`, but `scripts/sim`", ["stat/", "runtime/sub.py"]),
    ],
)
def test_a_path_that_is_not_there_is_found(page: str, missing: list[str]) -> None:
    assert missing_paths(page) == missing


def test_a_word_that_has_two_rows_is_found() -> None:
    assert repeated_words("| word | meaning |\n| a | x |\n| b | y |\n| a | z |\n") == ["a"]
