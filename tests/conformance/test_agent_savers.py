"""LangGraph's own suite for savers, with the numbers asserted: it calls a saver without methods complete, too."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.importorskip("langgraph.checkpoint.conformance")

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.conformance import checkpointer_test, validate

from flowpoint.agents.reading import SPECIAL
from flowpoint.agents.saver import CoreSaver
from tests.unit.agents.stores import each_saver, open_saver


@pytest.mark.parametrize("keys", [None, {"k": bytes(16)}], ids=["plain", "encrypted"])
@each_saver
async def test_a_saver_passes_the_whole_suite(kind: str, keys: dict[str, bytes] | None) -> None:
    @checkpointer_test(name=kind)
    async def fresh() -> AsyncIterator[CoreSaver]:
        with tempfile.TemporaryDirectory() as folder, open_saver(kind, Path(folder), keys=keys) as saver:
            yield saver

    report = await validate(fresh)

    assert [failure for result in report.results.values() for failure in result.failures] == []
    assert sum(result.tests_passed for result in report.results.values()) == 81
    assert sum(result.detected for result in report.results.values()) == 8


def test_special_writes_are_those_of_langgraph() -> None:
    assert SPECIAL == WRITES_IDX_MAP
