"""Histories by chance, many of them: everything that a saver offers, on stores that fail, beside a model in plain dicts.

    python -m scripts.agents.histories [--store memory|disk|rocks|folder] [--first 0] [--seeds 1000] [--length 60]

Of a seed that finds something the shortest history that still finds the same is told. Exits with 1 if any does. The tests
run the first few seeds of each store (`tests/unit/agents/test_histories.py`).
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from tests.unit.agents.history_machine import Step, history, options_of, run_history
from tests.unit.agents.history_stores import STORES


def attempt(store: str, seed: int, steps: Sequence[Step]) -> BaseException | None:
    """What a history ends with, if not well. A loss of power is no `Exception`."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            run_history(store, seed, steps, Path(folder))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return error
    return None


def shortest(store: str, seed: int, steps: list[Step], found: BaseException) -> list[Step]:
    """Steps without those that do not matter: first large parts of them, then single ones."""
    wanted, size = where(found), max(len(steps) // 2, 1)
    while True:
        before, at = len(steps), 0
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            error = attempt(store, seed, fewer)
            if error is not None and where(error) == wanted:
                steps = fewer
            else:
                at += size
        if size == 1 and len(steps) == before:
            return steps
        size = max(size // 2, 1)


def where(error: BaseException) -> tuple[str, str, int]:
    """What tells one finding from another."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return type(error).__name__, last.filename, last.lineno or 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Run histories by chance.")
    parser.add_argument("--store", choices=list(STORES), default="memory")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--length", type=int, default=60, help="steps of each history")
    given = parser.parse_args()
    logging.disable(logging.ERROR)  # conflicts and refusals are what is asked for
    found: set[tuple[str, str, int]] = set()
    bad = 0
    for seed in range(given.first, given.first + given.seeds):
        steps = history(seed, given.length)
        error = attempt(given.store, seed, steps)
        if error is None:
            continue
        bad += 1
        if where(error) in found:
            continue
        found.add(where(error))
        steps = shortest(given.store, seed, steps, error)
        error = attempt(given.store, seed, steps)
        print(f"seed {seed} on {given.store}, {options_of(seed)}: {[tuple(step) for step in steps]}")
        print("".join(traceback.format_exception(error, limit=-6)), flush=True)
    print(f"{given.seeds} histories on {given.store}, {bad} of them found something")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
