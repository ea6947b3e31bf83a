"""Each file of jobs/ through the shell, on both state backends, against a plain Python computation."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

import pytest

from tests.e2e.shell import ROOT, Shell, committed

BACKENDS = pytest.mark.parametrize("backend", ["heap", "rocksdb"])
WORDS = ("the", "The", "state", "of", "a", "stream", "barrier", "Barrier,", "schön", "x1")


def write_books(shell: Shell) -> str:
    """Some text in several files, one of them empty; returns all of it."""
    chance = random.Random(1)
    texts = ["\n".join(" ".join(chance.choices(WORDS, k=9)) for _ in range(120)) + "\n" for _ in range(5)]
    for number, text in enumerate([*texts, "no newline at the end", ""]):
        shell.write(f"books/{number}.txt", text)
    return "".join(texts) + "no newline at the end"


def run(shell: Shell, job: str, backend: str, *params: str) -> list[Any]:
    """Run a file of jobs/ to its end and return its committed output."""
    options = [option for param in ("output=out", *params) for option in ("--param", param)]
    shell.run_ok("run", str(ROOT / "jobs" / job), "-p", "2", "--set", f"state.backend={backend}", *options)
    return committed(shell.folder / "out")


def running_counts(items: list[str]) -> Counter[tuple[str, int]]:
    """Every (item, how often it was seen by then)."""
    return Counter((item, count) for item, total in Counter(items).items() for count in range(1, total + 1))


def test_every_job_is_tested() -> None:
    assert {path.stem for path in (ROOT / "jobs").glob("*.py")} == {
        "inactivity_alert",
        "readings_per_minute",
        "user_statistics",
        "vocabulary",
        "wordcount",
    }


@BACKENDS
def test_wordcount(shell: Shell, backend: str) -> None:
    text = write_books(shell)

    output = run(shell, "wordcount.py", backend, "input=books/*.txt")

    assert Counter(map(tuple, output)) == running_counts(text.split())


@BACKENDS
def test_vocabulary(shell: Shell, backend: str) -> None:
    text = write_books(shell)

    output = run(shell, "vocabulary.py", backend, "input=books")

    words = set(re.findall(r"[a-z]+", text.lower()))
    assert Counter(map(tuple, output)) == running_counts([word[0] for word in words])


@BACKENDS
def test_user_statistics(shell: Shell, backend: str) -> None:
    views: dict[str, list[str]] = {}
    expected = []
    for n in range(1000):
        page = ("home", "search", "cart", "help")[(n // 7 + n % 3) % 4]
        seen = views.setdefault(f"user-{n % 7}", [])
        seen.append(page)
        favourite = min(set(seen), key=lambda page: (-seen.count(page), page))  # noqa: B023  used at once
        expected.append([f"user-{n % 7}", len(seen), seen[-3:], favourite])

    output = run(shell, "user_statistics.py", backend, "views=1000")

    assert sorted(output) == sorted(expected)


@BACKENDS
def test_inactivity_alert(shell: Shell, backend: str) -> None:
    output = run(shell, "inactivity_alert.py", backend, "silence=400")

    # On a busy machine a sensor may also seem silent between two readings, so there may be more alerts than sensors.
    assert {sensor for sensor, _ in output} == {f"sensor-{n}" for n in range(5)}
    assert all(sensor == f"sensor-{reading // 20}" for sensor, reading in output)
    assert len(output) == len(set(map(tuple, output)))


@BACKENDS
def test_readings_per_minute(shell: Shell, backend: str) -> None:
    minutes: dict[tuple[str, int], list[int]] = {}
    late = []
    for n in range(20_000):
        at, sensor = max(0, (n - n * 7 % 5) * 1000 - (7_200_000 if n % 10_000 == 9_999 else 0)), f"sensor-{n % 3}"
        if n % 10_000 == 9_999:
            late.append((sensor, at))
        else:
            minutes.setdefault((sensor, at // 60_000 * 60_000), []).append(n % 17)

    run(shell, "readings_per_minute.py", backend, "readings=20000")

    found = committed(shell.folder / "out/minutes")
    assert sorted(found) == sorted([*key, len(values), max(values)] for key, values in minutes.items())
    assert sorted(map(tuple, committed(shell.folder / "out/late"))) == sorted(late)
