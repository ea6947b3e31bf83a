"""The pages for maintainers follow the code: what they name is there, and the glossary has one row for a word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flowpoint.cli import live
from flowpoint.codec import keys, values
from flowpoint.connectors import line_framing
from flowpoint.host import processes
from flowpoint.launch import given_files, http
from flowpoint.model import key_groups, path_names, texts
from flowpoint.model.settings import LogSettings
from flowpoint.transport import exchange

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "flowpoint"
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
OPERATORS = (ROOT / "docs" / "operators.md").read_text()
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


LIMITS = {
    "a job file": f"{given_files.GIVEN_BYTES_MAX >> 20} MiB",
    "a name of": f"{path_names.NAME_BYTES_MAX} bytes",
    "`max_parallelism`": f"{key_groups.MAX_PARALLELISM_LIMIT:,} key groups",
    "a key": f"{keys._NESTING_MAX} levels of tuples and frozensets; a Decimal with {keys._DECIMAL_DIGITS_MAX:,} digits",
    "a value": f"{values._NESTING_MAX} levels",
    "a record": f"{exchange.RECORD_BYTES_MAX >> 20} MiB",
    "a printed line": f"{texts.SENTENCE_CHARACTERS_MAX} characters",
    "a line": f"{line_framing.MAX_LINE >> 20} MiB",
    "the message": f"{texts.MESSAGE_CHARACTERS_MAX:,} characters, of which {texts.SENTENCE_CHARACTERS_MAX}",
    "an event": f"{live.EVENT_CHARACTERS_MAX} characters",
    "the log": f"{LogSettings().max_bytes >> 20} MiB (`log.max_bytes`) is put aside as `log.1`, and {LogSettings().backups} "
    "such files",
    "open files": f"{processes._OPEN_FILES_MAX:,}; a job needs {processes._OPEN_FILES_MIN}, and "
    f"{processes._OPEN_FILES_PER_WORKER} more",
    "clients": f"{http.READING_MAX} that are sending",
}


@pytest.mark.parametrize(("what", "limit"), LIMITS.items())
def test_the_limits_in_the_docs_are_those_of_the_code(what: str, limit: str) -> None:
    rows = [row for row in OPERATORS.splitlines() if row.startswith(f"| {what}")]

    assert len(rows) == 1 and limit in rows[0]
