"""A checkpoint that would be its own ancestor is refused; where one is in a store, everything still comes to its end."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from flowpoint.agents.core import SaverCore
from flowpoint.agents.exchange import imported
from flowpoint.agents.saver import CoreSaver
from flowpoint.errors import BadRecordError, ConcurrentRunError, DamagedStoreError, UsageError
from tests.unit.agents.stores import THREAD, config, each_saver, export, ids, open_saver, put

CIRCLE = ["1", "2", "3"]


def put_circle(saver: CoreSaver) -> None:
    """Puts 1, 2 from 1, 3 from 2, and then 1 from 3. Of each another channel waits for its stored value."""
    at: Any = config()
    for id_ in (*CIRCLE, "1"):
        at = put(saver, at, {"c": id_}, id=id_, run_id=f"run{id_}", counters_since_delta_snapshot={"d": 1})


@each_saver
def test_a_checkpoint_is_not_made_from_one_that_was_made_from_it(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        with pytest.raises(BadRecordError, match="cannot save checkpoint 1 of thread 't' as made from 3"):
            put_circle(saver)
        assert sorted(ids(saver.list(THREAD))) == CIRCLE
        assert saver.get_tuple(config(id="1")).parent_config is None

        put(saver, config(), {"c": "again"}, id="1")
        assert saver.get_tuple(config(id="1")).checkpoint["channel_values"] == {"c": "again"}


@each_saver
def test_a_checkpoint_that_is_given_as_its_own_parent_has_none(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        put(saver, config(id="1"), id="1")
        assert saver.get_tuple(config()).parent_config is None


@each_saver
def test_a_file_whose_checkpoints_lead_in_a_circle_is_not_imported(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path / "from") as saver:
        at = config()
        for id_ in CIRCLE:
            at = put(saver, at, id=id_)
        lines = [json.loads(line) for line in export(saver)]
    next(line for line in lines if line["id"] == "1")["parent"] = "3"
    with open_saver(kind, tmp_path / "to") as saver:
        with pytest.raises(UsageError, match="thread 't': its checkpoint . is an ancestor of itself"):
            imported(saver.core, map(json.dumps, lines))
        assert list(saver.list(None)) == []


@each_saver
@pytest.mark.timeout(30)
def test_a_circle_in_a_store_holds_nobody_up(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SaverCore, "_checked_parent", lambda _self, _place, _id, parent, _older: parent)
    with open_saver(kind, tmp_path, on_conflict="raise") as saver:
        put_circle(saver)
        saver.copy_thread("t", "u")
        with pytest.raises(DamagedStoreError, match="is an ancestor of itself"):
            saver.get_delta_channel_history(config=config(), channels=["d"])
        with pytest.raises(ConcurrentRunError):
            put(saver, config(id="2"), id="4")
        assert saver.expire(["t"], keep_last=2) == 0, "what waits for a value keeps all of its ancestors"
        saver.prune(["u"])
        assert sorted(ids(saver.list(config("u")))) == CIRCLE
        saver.delete_for_runs(["run1", "run2", "run3"])
        assert list(saver.list(None)) == []
        assert saver.sweep(timedelta(0)) == 0
