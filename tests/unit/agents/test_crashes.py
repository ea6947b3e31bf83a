"""Processes that are killed or race, in small; `scripts/agents/torture.py` does it at length."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from flowpoint.agents.core import SaverCore
from flowpoint.agents.opening import system_world
from flowpoint.agents.rocks import SIZES
from flowpoint.agents.rocks_kv import RocksKv
from flowpoint.agents.saver import CoreSaver
from flowpoint.agents.serde import StrictSerde
from scripts.agents import torture
from tests.unit.agents.stores import config, each_saver, put


@each_saver
def test_no_acknowledged_checkpoint_is_lost_by_a_kill(kind: str) -> None:
    assert torture.kills(kind, 4)


def test_of_many_processes_one_wins_each_round() -> None:
    assert torture.races(4, 3)


def test_every_synced_put_is_one_sync_of_the_log_and_pending_writes_are_none(tmp_path: Path) -> None:
    kv = RocksKv(tmp_path, statistics=True)
    saver = CoreSaver(SaverCore(kv, StrictSerde(), system_world(), SIZES))
    at: Any = put(saver, config(), id="begin")

    def synced() -> int:
        found = re.search(r"rocksdb.wal.synced COUNT : (\d+)", kv.statistics())
        assert found is not None
        return int(found[1])

    before = synced()
    for step in range(20):
        at = put(saver, at, {"large": f"{step}" * 9000})
    assert synced() - before == 20

    before = synced()
    for step in range(20):
        saver.put_writes(at, [("a", step)], f"task {step}")
    assert synced() - before <= 2, "only now and then, for all of them"
    saver.close()
