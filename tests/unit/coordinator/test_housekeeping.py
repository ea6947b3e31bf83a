"""`coordinator.housekeeping`: what stays until restored state has been read."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import SimpleNamespace

import pytest

from flowpoint.coordinator.housekeeping import Housekeeping
from flowpoint.coordinator.steps import Steps
from flowpoint.protocol.prepared_output import PreparedOutput
from flowpoint.snapshot.retention import CleanReport


@pytest.mark.parametrize(("is_read", "pinned"), [(False, ("chk-3-a1", "chk-2-a1")), (True, ())])
async def test_older_checkpoints_stay_until_all_restored_state_has_been_read(
    is_read: bool, pinned: tuple[str, ...]
) -> None:
    asked: list[tuple[Collection[str], Collection[str]]] = []

    async def run(pinned: Collection[str], abandoned: Collection[str]) -> CleanReport:
        asked.append((pinned, abandoned))
        return CleanReport()

    prepared = SimpleNamespace(chosen=SimpleNamespace(older=("chk-3-a1", "chk-2-a1")), cleaner=SimpleNamespace(run=run))
    steps = Steps()
    housekeeping = Housekeeping(SimpleNamespace(), PreparedOutput(), steps, lambda _: None, pytest.fail)
    async with asyncio.TaskGroup() as group:
        steps.enter(group)
        housekeeping.retain(prepared, lambda: ["shared/left.delta"], is_read=is_read)

    assert asked == [(pinned, ["shared/left.delta"])]
