"""What only the store on RocksDB has to promise: it belongs to one process, which can close it and open it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowpoint.agents.rocks_kv import RocksKv
from flowpoint.errors import UsageError


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("walk", ["scan", "keys"])
def test_a_store_can_be_opened_again_while_somebody_keeps_a_walk_through_it_and_that_one_does_not_end_as_if_whole(
    tmp_path: Path, walk: str, *, reverse: bool
) -> None:
    kv = RocksKv(tmp_path)
    kv.write([(f"t/{n}", b"") for n in range(3)])
    kept = getattr(kv, walk)("t/", reverse=reverse)
    next(kept)

    kv.close()
    RocksKv(tmp_path).close()

    with pytest.raises(UsageError, match="it is closed"):
        next(kept)
