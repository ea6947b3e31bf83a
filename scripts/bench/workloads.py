"""The bench's inputs: made from a seed, the same on every machine, with the right answer beside them.

W1  lines of 10 words from a vocabulary of 50,000 under Zipf's law (exponent 1); 300,000 lines
W2  `key,value`: 100,000 keys, all equally likely, values 1 to 100; 2,000,000 lines
W3  `ms,key,value`: 1,000 keys, 5 lines per millisecond, each up to 2 s early; 2,000,000 lines

Each input is a folder with two files. W1's lines go to them in turn, W2's and W3's by key.
The answer is a plain loop over the same lines: `truth.csv` has `key,rows,final` for W1 and W2 (how many updates a key
gets and its last value), `start,key,count,sum` for W3 (tumbling windows of 10 s).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from string import ascii_lowercase

SEED = 4
WORDS_PER_LINE = 10
EPOCH_MS = 1_700_000_000_000
WINDOW_MS = 10_000
LINES = {"W1": 300_000, "W2": 2_000_000, "W3": 2_000_000}

Line = tuple[int, str]


def words(lines: int) -> Iterator[Line]:
    """W1: which file, and the line."""
    draw = random.Random(f"{SEED}:words")
    vocabulary: dict[str, None] = {}
    while len(vocabulary) < 50_000:
        vocabulary["".join(draw.choices(ascii_lowercase, k=draw.randint(3, 9)))] = None
    ranked = list(vocabulary)
    weights = list(accumulate(1 / rank for rank in range(1, len(ranked) + 1)))
    for number in range(lines):
        yield number % 2, " ".join(draw.choices(ranked, cum_weights=weights, k=WORDS_PER_LINE))


def sums(lines: int) -> Iterator[Line]:
    """W2: which file, and the line."""
    draw = random.Random(f"{SEED}:sums")
    for _ in range(lines):
        key = draw.randrange(100_000)
        yield key % 2, f"{key},{draw.randint(1, 100)}"


def windows(lines: int) -> Iterator[Line]:
    """W3: which file, and the line."""
    draw = random.Random(f"{SEED}:windows")
    for number in range(lines):
        key = draw.randrange(1_000)
        time = EPOCH_MS + 2_000 + number // 5 - draw.randint(0, 2_000)
        yield key % 2, f"{time},{key},{draw.randint(1, 100)}"


GENERATORS: dict[str, Callable[[int], Iterator[Line]]] = {"W1": words, "W2": sums, "W3": windows}


def ensure_input(home: Path, workload: str, lines: int) -> Path:
    """The folder with `input/`, `truth.csv` and `facts.json` of a workload; made when it is not there."""
    folder = home / f"{workload.lower()}-{lines}"
    if not (folder / "facts.json").exists():
        (folder / "input").mkdir(parents=True, exist_ok=True)
        _write_input(folder / "input", GENERATORS[workload](lines))
        rows, events = _truth(workload, folder / "input")
        (folder / "truth.csv").write_text("".join(row + "\n" for row in rows))
        # Last, so that a folder with facts is whole.
        (folder / "facts.json").write_text(json.dumps({"events": events, "keys": len(rows)}))
    return folder


def _write_input(folder: Path, lines: Iterator[Line]) -> None:
    with (folder / "part-0").open("w") as even, (folder / "part-1").open("w") as odd:
        files = (even, odd)
        for file, line in lines:
            files[file].write(line + "\n")


def _truth(workload: str, folder: Path) -> tuple[list[str], int]:
    """The rows of `truth.csv`, and how many events the input has."""
    totals: dict[str, list[int]] = {}
    events = 0
    for path in sorted(folder.iterdir()):
        with path.open() as file:
            for line in file:
                for key, value in _events(workload, line.rstrip("\n")):
                    total = totals.setdefault(key, [0, 0])
                    total[0] += 1
                    total[1] += value
                    events += 1
    return sorted(f"{key},{rows},{final}" for key, (rows, final) in totals.items()), events


def _events(workload: str, line: str) -> list[tuple[str, int]]:
    match workload:
        case "W1":
            return [(word, 1) for word in line.split(" ")]
        case "W2":
            key, value = line.split(",")
            return [(key, int(value))]
        case _:
            time, key, value = line.split(",")
            return [(f"{int(time) // WINDOW_MS * WINDOW_MS},{key}", int(value))]
