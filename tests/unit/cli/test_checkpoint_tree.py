"""`flowpoint checkpoints` shows a line of checkpoints as a line, and what branches off it indented."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from flowpoint.cli.output import as_tree


def drawn(*checkpoints: tuple[int, int]) -> list[str]:
    """The tree of checkpoints given as (id, parent)."""
    data: list[dict[str, Any]] = [{"id": id_, "parent": parent} for id_, parent in checkpoints]
    return [
        f"{indent}{checkpoint['id']}" for indent, checkpoint in as_tree(data, itemgetter("id"), itemgetter("parent"))
    ]


def test_a_line_stays_a_line() -> None:
    assert drawn((3, 2), (4, 3), (5, 4)) == ["3", "4", "5"]


def test_what_was_given_up_is_a_branch_below_the_checkpoint_that_it_was_taken_after() -> None:
    assert drawn((16, 15), (17, 16), (18, 17), (19, 16), (20, 19)) == ["16", "├─ 17", "│  18", "19", "20"]


def test_branches_of_branches_are_indented_further() -> None:
    tree = drawn((1, 0), (2, 1), (3, 2), (4, 2), (5, 1))

    assert tree == ["1", "├─ 2", "│  ├─ 3", "│  4", "5"]


def test_checkpoints_whose_parent_is_gone_stand_at_the_left() -> None:
    assert drawn((4, 3), (9, 8)) == ["4", "9"]


def test_a_number_that_was_used_twice_is_told_apart() -> None:
    assert drawn((1, 0), (2, 1), (2, 1), (3, 2)) == ["1", "├─ 2", "2", "3"]


def test_a_long_line_needs_no_deep_recursion() -> None:
    assert len(drawn(*((n, n - 1) for n in range(1, 5000)))) == 4999
