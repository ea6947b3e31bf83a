"""Key group -> subtask, and back: the formulas that place keyed state. Never to change; a table test pins them.

group = hash % max_parallelism (the hash is `codec.placement`), owner = group * parallelism // max_parallelism.
"""

from __future__ import annotations

MAX_PARALLELISM_LIMIT = 32768
"""The most key groups that a job can have, and therefore the most subtasks of an operator."""


def owner_of(group: int, parallelism: int, max_parallelism: int) -> int:
    """The index of the subtask that owns a key group.

    Example:
        >>> owner_of(64, 2, 128)
        1
    """
    return group * parallelism // max_parallelism


def group_range(index: int, parallelism: int, max_parallelism: int) -> tuple[int, int]:
    """The first and last key group of a subtask, both inclusive.

    Example:
        >>> [group_range(i, 3, 128) for i in range(3)]
        [(0, 42), (43, 85), (86, 127)]
    """
    first = -(-index * max_parallelism // parallelism)
    last = -(-(index + 1) * max_parallelism // parallelism) - 1
    return first, last


def overlap(groups: tuple[int, int], others: tuple[int, int]) -> tuple[int, int]:
    """The key groups that are in both ranges; the first is greater than the last when there are none.

    Example:
        >>> overlap((0, 63), (32, 95))
        (32, 63)
    """
    return max(groups[0], others[0]), min(groups[1], others[1])
