"""What a source lists is looked at before anything is deployed."""

from __future__ import annotations

from typing import Any

import pytest

from flowpoint.errors import BadRecordError, UserCodeError
from flowpoint.runtime.contracts import Split
from flowpoint.runtime.splits import checked_splits


def test_splits_are_their_ids_and_data() -> None:
    assert checked_splits("s", (split for split in [Split("a"), Split("b", {"from": [1, None]})])) == [
        ("a", {}),
        ("b", {"from": [1, None]}),
    ]


async def coroutine() -> list[Split]:
    return []


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        (None, "returned None, of type NoneType, where a list of Splits belongs"),
        (["a"], "listed 'a', of type str, where a Split belongs"),
        ([Split("a", None)], "listed the Split 'a' with the data None, of type NoneType: make it a dict"),  # type: ignore[arg-type]
        ([Split(1)], "listed a Split with the id 1, of type int: make it a str"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_list_of_splits_is_named(listed: Any, said: str) -> None:
    with pytest.raises(UserCodeError, match=rf"^source 's': splits\(\) {said}") as raised:
        checked_splits("s", listed)
    assert raised.value.operator == "s"


async def test_an_async_splits_is_named() -> None:
    with pytest.raises(UserCodeError, match=r"source 's': splits\(\) is async: make it a plain function"):
        checked_splits("s", coroutine())


@pytest.mark.parametrize("data", [{"o": object}, {"n": 2**70}, {"t": (1,)}, {1: 2}, {"x": float("nan")}], ids=str)
def test_data_that_no_snapshot_keeps_is_refused(data: Any) -> None:
    with pytest.raises(BadRecordError, match=r"the data of split 'a' of source 's' .*use None, bool, int"):
        checked_splits("s", [Split("a", data)])
