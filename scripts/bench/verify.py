"""Compares what an engine wrote with the truth: every update of every key must be there exactly once.

W1's counts of a key must be 1, 2, ... n. W2's sums of a key only grow, so the right number of different values and the
right last one leave no room for a lost or doubled update that changes a result.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path


def read_jsonl(line: str) -> tuple[str, int]:
    """FlowPoint's rows: `["key",value]`."""
    key, value = json.loads(line)
    return key, value


def read_csv(line: str) -> tuple[str, int]:
    """The peer's rows: `key,value`."""
    key, _, value = line.rpartition(",")
    return key, int(value)


def verify(workload: str, truth: Path, output: Path, read: Callable[[str], tuple[str, int]]) -> str:
    """ "" when the output is exact, else what is wrong with it."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for key, value in _rows(output, read):
        found[key].append(value)
    wrong = []
    for line in truth.read_text().splitlines():
        key, rows, final = line.split(",")
        values = sorted(found.pop(key, []))
        if workload == "W1":
            right = values == list(range(1, int(rows) + 1))
        else:
            right = len(set(values)) == len(values) == int(rows) and values[-1] == int(final)
        if not right:
            wrong.append(key)
    if wrong:
        return f"{len(wrong)} keys are wrong, for instance {wrong[0]!r}"
    return f"{len(found)} keys should not be there, for instance {next(iter(found))!r}" if found else ""


def _rows(output: Path, read: Callable[[str], tuple[str, int]]) -> Iterator[tuple[str, int]]:
    for path in sorted(output.iterdir()):
        if not path.name.startswith("."):
            with path.open() as file:
                for line in file:
                    yield read(line.rstrip("\n"))
