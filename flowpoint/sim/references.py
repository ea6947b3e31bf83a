"""What a random job must write: plain loops over the numbers, never the engine.

Every topology's output is a multiset that does not depend on the order in which records of different subtasks meet, so
it is compared exactly.

Not here: the loops of the wider topologies (`topologies`), reading what was written (`scenario`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import assert_never

from flowpoint.sim import topologies
from flowpoint.sim.jobs import JobShape, Topology
from flowpoint.sim.topologies import Row
from flowpoint.sim.world import InvariantBroken


def reference(shape: JobShape) -> Counter[Row]:
    """What the job must write, each row as often as given."""
    numbers = range(shape.records)
    match shape.topology:
        case Topology.COUNT | Topology.FILES | Topology.REBALANCED | Topology.KEYED_MAP:
            rows = _running_counts(n % shape.keys for n in numbers)
        case Topology.UNION:
            rows = _running_counts(n % shape.keys for n in range(2 * shape.records))
        case Topology.TWO_KEYED:
            first = _running_counts(n % shape.keys for n in numbers)
            rows = _running_counts(int(count) % shape.keys for _, count in first)
        case Topology.STATES:
            rows = list(_states_reference(shape))
        case Topology.TIMERS:
            rows = [("seen", *row) for row in _running_counts(n % shape.keys for n in numbers)]
            # What waits for time when the input ends fires then.
            rows += [("timer", key) for key in range(min(shape.keys, shape.records))]
        case Topology.STATELESS:
            rows = [(n, copy) for n in numbers if n % 3 > 0 for copy in (0, 1)]
        case Topology.REBALANCE:
            rows = _running_counts((n + 1) % shape.keys for n in numbers)
        case Topology.SIDE_OUTPUT:
            rows = list(topologies.halves_reference(shape.records))
        case Topology.TWO_INPUTS:
            rows = list(topologies.both_reference(shape.records, shape.keys))
        case Topology.BROADCAST:
            rows = list(topologies.rules_reference(shape.records, shape.keys))
        case Topology.EVENT_TIME:
            rows = list(topologies.windows_reference(shape.records, shape.keys))
        case _:
            assert_never(shape.topology)
    return Counter(rows)


def _running_counts(keys: Iterable[int]) -> list[Row]:
    counts: Counter[int] = Counter()
    rows: list[Row] = []
    for key in keys:
        counts[key] += 1
        rows.append((key, counts[key]))
    return rows


def _states_reference(shape: JobShape) -> Iterator[Row]:
    counts: Counter[int] = Counter()
    kinds: Counter[tuple[int, int]] = Counter()
    for n in range(shape.records):
        key = n % shape.keys
        counts[key] += 1
        kinds[key, n % 3] += 1
        yield ("seen", key, counts[key])
        yield ("length", key, counts[key])
        yield ("kind", key, n % 3, kinds[key, n % 3])


def check_output(shape: JobShape, found: Counter[Row]) -> None:
    """Compare committed rows with the reference.

    At least once, rows may be given again, and counts go on above what they should be; none may be missing.

    Raises:
        InvariantBroken: rows are missing, doubled or wrong.
    """
    expected = reference(shape)
    missing, extra = expected - found, found - expected
    if shape.settings.checkpoint.mode == "at_least_once":
        extra = Counter()
    if missing or extra:
        raise InvariantBroken(
            f"the output is wrong: {missing.total()} rows are missing, such as {list(missing)[:3]}; "
            f"{extra.total()} are too many, such as {list(extra)[:3]}"
        )
