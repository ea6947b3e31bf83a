"""State that can never be written is an error with every backend, as soon as a batch leaves it behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from flowpoint.codec.values import Codec, TypeRegistry
from flowpoint.errors import UnknownTypeError
from flowpoint.state.open import open_backend
from tests.conformance.state_jobs import KINDS, MAP, MAX, VALUE


@dataclass
class Session:
    number: int


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_that_nobody_declared_is_found_before_any_snapshot(kind: str, tmp_path: Path) -> None:
    backend = open_backend(KINDS[kind], Codec(), MAX, str(tmp_path), "visits")
    backend.table(VALUE).put("a", Session(1))

    with pytest.raises(UnknownTypeError, match=r"state 'counts': .*Session.*types=\[Session\]"):
        backend.needs_spill()
    backend.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_inside_of_a_map_is_found_too(kind: str, tmp_path: Path) -> None:
    backend = open_backend(KINDS[kind], Codec(), MAX, str(tmp_path), "visits")
    backend.map_table(MAP).put("a", "monday", [Session(1)])

    with pytest.raises(UnknownTypeError, match="state 'days'"):
        backend.needs_spill()
    backend.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_declared_class_is_no_trouble(kind: str, tmp_path: Path) -> None:
    backend = open_backend(KINDS[kind], Codec(TypeRegistry([Session])), MAX, str(tmp_path), "visits")
    backend.table(VALUE).put("a", Session(1))

    backend.needs_spill()
    backend.freeze()
    backend.close()
