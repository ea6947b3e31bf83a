"""A default that was lent and not changed costs little to take back."""

from __future__ import annotations

from typing import Any

from flowpoint.state.handles import KeyCell
from flowpoint.state.kinds import ValueState
from tests.unit.state.evolving import Version


def test_a_default_is_encoded_once_however_often_it_is_lent() -> None:
    declaration = ValueState("notes", default={"seen": 1})
    job, cell = Version(declaration.spec), KeyCell()
    handle = declaration.open(job.backend, cell)
    table: Any = job.backend.table(declaration.spec)
    encode, encoded = table.encoded, []

    def counted(value: object) -> bytes | None:
        encoded.append(value)
        return encode(value)

    table.encoded = counted
    for batch in range(3):
        for key in range(10):
            cell.key = f"{batch}/{key}"
            assert handle.value == {"seen": 1}
        cell.clear()

    # Each copy, and the default itself.
    assert len(encoded) == 30 + 1


def test_a_copy_of_another_size_is_not_even_encoded() -> None:
    declaration = ValueState("notes", default={"seen": 1})
    job, cell = Version(declaration.spec), KeyCell()
    handle = declaration.open(job.backend, cell)
    table: Any = job.backend.table(declaration.spec)
    table.encoded = None

    cell.key = "a"
    handle.value["more"] = 2
    cell.clear()

    cell.key = "a"
    assert handle.value == {"seen": 1, "more": 2}
