"""Verifying finds every damage and says where it is; opening damaged or hostile files ends, and imports nothing."""

from __future__ import annotations

import contextlib
import errno
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest
from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from flowpoint import snapshot
from flowpoint.codec.values import Codec
from flowpoint.errors import FlowPointError
from flowpoint.host import disk
from flowpoint.model.manifest import Manifest, StateFile
from flowpoint.snapshot.encoding import encode
from flowpoint.snapshot.opened import Snapshot
from flowpoint.snapshot.value_text import json_of, text_of, type_of
from flowpoint.state.backend import Backend
from flowpoint.state.file_builder import FileBuilder
from flowpoint.state.file_format import TRAILER, BlockRef
from tests.unit.snapshot.made import DAYS, UID, VALUE, WORDS, Maker, checkpoint, fill, splits, with_files


def damages(opened: Snapshot) -> list[tuple[str, str]]:
    return [(damage.path, damage.problem) for damage in opened.verify().damages]


def state_files(root: Path) -> list[Path]:
    return sorted((root / "shared").iterdir())


def test_a_whole_snapshot_is_said_to_be_whole_and_what_was_looked_at(tmp_path: Path) -> None:
    opened = snapshot.open(checkpoint(tmp_path))

    report = opened.verify()

    assert report.damages == []
    assert (report.files, report.entries) == (2, 2 * len(WORDS) + len(DAYS))
    assert report.bytes == sum(path.stat().st_size for path in state_files(tmp_path))


def test_every_changed_byte_is_found_and_told_by_file(tmp_path: Path) -> None:
    opened_at = checkpoint(tmp_path, lambda backend: backend.table(VALUE).put("a", 1))
    (file,) = state_files(tmp_path)
    data = file.read_bytes()

    for at in range(len(data)):
        file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        found = damages(snapshot.open(opened_at))
        assert found
        assert {path for path, _ in found} == {f"shared/{file.name}"}


def test_a_damaged_block_is_told_by_state_and_key_groups_and_the_rest_is_still_looked_at(tmp_path: Path) -> None:
    path = checkpoint(tmp_path)
    first, second = state_files(tmp_path)
    first.write_bytes(first.read_bytes()[:20] + b"x" + first.read_bytes()[21:])
    second.unlink()

    found = damages(snapshot.open(path))

    assert [name for name, _ in found] == [f"shared/{first.name}"] * 2 + [f"shared/{second.name}"]
    assert "checksum" in found[0][1]
    assert "block at byte 12 (state 'count', key groups 0-63)" in found[1][1]
    assert found[2][1] == "missing"


def test_a_file_that_cannot_be_read_is_told_apart_from_damage_and_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = snapshot.open(checkpoint(tmp_path))
    unreadable, other = state_files(tmp_path)
    read = disk.read

    def refuse(path: str, offset: int, size: int) -> bytes:
        if path == str(unreadable):
            raise OSError(errno.ESTALE, "Stale file handle", path)
        return read(path, offset, size)

    monkeypatch.setattr(disk, "read", refuse)
    report = opened.verify()

    assert report.damages == [] and not report.is_proof
    ((path, problem),) = [(one.path, one.problem) for one in report.unreadable]
    assert path == f"shared/{unreadable.name}" and "Stale file handle (ESTALE)" in problem
    assert report.bytes == unreadable.stat().st_size + other.stat().st_size


def test_a_file_that_was_cut_or_grew_is_found(tmp_path: Path) -> None:
    path = checkpoint(tmp_path)
    first, second = state_files(tmp_path)
    sizes = [file.stat().st_size for file in (first, second)]
    first.write_bytes(first.read_bytes()[:-1])
    second.write_bytes(second.read_bytes() + b"x")

    found = dict(reversed(damages(snapshot.open(path))))

    assert found[f"shared/{first.name}"] == f"{sizes[0] - 1} bytes long instead of {sizes[0]}"
    assert found[f"shared/{second.name}"] == f"{sizes[1] + 1} bytes long instead of {sizes[1]}"


def lie(**fields: Any) -> Callable[[Manifest], Manifest]:
    return lambda manifest: with_files(manifest, lambda file: replace(file, **fields))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lie(entries=3), "entries in it, 3 in the manifest"),
        (lie(groups=(5, 600)), "it is to count for key groups 5-600, its subtask has"),
        (lie(checksum="0" * 16), "instead of 0000000000000000"),
    ],
)
def test_a_manifest_that_does_not_agree_with_the_files_is_found(
    tmp_path: Path, change: Callable[[Manifest], Manifest], said: str
) -> None:
    maker = Maker(tmp_path, parallelism=1)
    path = maker.write({UID: maker.states(fill)})
    maker.rewrite(path, change)

    assert any(said in problem for _, problem in damages(snapshot.open(path)))


def test_a_split_twice_and_key_groups_twice_are_found(tmp_path: Path) -> None:
    maker = Maker(tmp_path)
    source = splits(1, 2)
    twice = replace(source.subtasks[0], splits=source.subtasks[0].splits * 2)
    operator = maker.states(fill)
    path = maker.write(
        {
            "lines": replace(source, subtasks=(twice,)),
            UID: replace(operator, subtasks=(operator.subtasks[0], operator.subtasks[0])),
        }
    )

    found = [problem for _, problem in damages(snapshot.open(path))]

    assert "source 'lines' has the split '/in/0.txt@0' more than once" in found
    assert "subtasks 0 and 1 of operator 'counts' own the same key groups" in found


def craft(maker: Maker, *pieces: bytes, entries: int, groups: tuple[int, int] = (0, 127)) -> Path:
    """A snapshot with one file that is not what it should be, but has right checksums."""
    data = b"".join(pieces)
    (maker.root / "shared").mkdir(parents=True, exist_ok=True)
    (maker.root / "shared" / "x-0-a1-1.base").write_bytes(data)
    file = StateFile("shared/x-0-a1-1.base", "base", len(data), xxh3_64_hexdigest(data), entries, groups)
    operator = maker.states()
    subtask = replace(operator.subtasks[0], files=(file,))
    return maker.write({UID: replace(operator, subtasks=(subtask,))})


def test_an_entry_in_the_wrong_key_group_is_found(tmp_path: Path) -> None:
    builder = FileBuilder(Codec())
    pieces = [builder.header(), builder.block("count", "value", [(0, ["a", "b"], [1, 2])]), builder.footer()]
    path = craft(Maker(tmp_path, parallelism=1), *pieces, entries=2)

    assert ["2 entries are not in the key group" in problem for _, problem in damages(snapshot.open(path))] == [True]


def nested(levels: int) -> bytes:
    data: bytes = msgpack.packb([])
    for _ in range(levels):
        data = msgpack.packb([msgpack.ExtType(1, data)])
    return data


HOSTILE = {
    "extensions nested deeper than the C stack": b"\0" + nested(5000),
    "arrays nested deeply": b"\0" + b"\x91" * 100_000,
    "an array of four billion": b"\0" + b"\xdd\xff\xff\xff\xff",
    "arrays that claim to be big, nested": b"\0" + b"\xdd\x00\x00\xff\xff" * 500,
    "columns in columns": b"\x01\0\0\0\x01\0\0\0\0\0\0\0\xff" * 500,
    "columns of four billion": b"\x01\xff\xff\xff\xff\0\0\0\0",
    "an object of a module": b"\0"
    + msgpack.packb([msgpack.ExtType(12, msgpack.packb(["antigravity:Popen", ["args"], ["true"]]))]),
    "an enum of a module": b"\0" + msgpack.packb([msgpack.ExtType(11, msgpack.packb(["antigravity:X", "Y"]))]),
    "a zone that is a module": b"\0"
    + msgpack.packb([msgpack.ExtType(5, msgpack.packb([1, 1, 0, "../../antigravity"]))]),
    "a zone that is a folder": b"\0" + msgpack.packb([msgpack.ExtType(5, msgpack.packb([1, 1, 0, "America"]))]),
    "a day that is none": b"\0" + msgpack.packb([msgpack.ExtType(6, msgpack.packb(-1))]),
    "a length of time that is none": b"\0" + msgpack.packb([msgpack.ExtType(8, msgpack.packb([2**62, 1, 1]))]),
    "digits that are none": b"\0" + msgpack.packb([msgpack.ExtType(9, b"1e")]),
    "a number of very many digits": b"\0" + msgpack.packb([msgpack.ExtType(9, b"1e999999999")]),
    "a long int": b"\0" + msgpack.packb([msgpack.ExtType(4, b"\x7f" * 10_000)]),
    "an array without elements": b"\0"
    + msgpack.packb([msgpack.ExtType(13, msgpack.packb(["<f8", False, [2**60], b""]))]),
    "an array of nonsense": b"\0" + msgpack.packb([msgpack.ExtType(13, msgpack.packb([1, 2, 3, 4]))]),
    "something that cannot be a key": b"\0" + msgpack.packb([[1]]),
    "an unknown extension": b"\0" + msgpack.packb([msgpack.ExtType(99, b"")]),
    "nothing": b"",
    "not a list": b"\0\x01",
}


@pytest.mark.parametrize("column", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_with_right_checksums_ends_in_data_or_a_clear_error(tmp_path: Path, column: bytes) -> None:
    builder = FileBuilder(Codec())
    header = builder.header()
    body = msgpack.packb([[0, 1], column, column, [], Codec().encode_column([])])
    builder.block("count", "value", [(0, ["a"], [1])])
    builder._refs = [BlockRef(0, 0, 0, len(header), len(body), 1, 0, xxh3_64_intdigest(body))]
    builder._offset = len(header) + len(body)
    path = craft(Maker(tmp_path, parallelism=1), header, body, builder.footer(), entries=1)
    before = set(sys.modules)

    look_everywhere(path)

    assert "antigravity" not in set(sys.modules) - before


def look_everywhere(path: Path) -> None:
    """Open, verify, and read all there is; only our own errors may come out."""
    with contextlib.suppress(FlowPointError):
        opened = snapshot.open(path)
        opened.verify()
        for operator in opened.operators.values():
            assert len(operator.splits) >= 0
            for state in operator.states.values():
                state.count()
                state.get("a")
                for key, value in state.items():
                    assert (text_of(key), text_of(value), type_of(value)) is not None
                    json_of(key), json_of(value)


INDEXES: dict[str, Any] = {
    "no index": 1,
    "no blocks": {"states": []},
    "a state that is not there": {"states": [], "blocks": [[0, 0, 0, 12, 1, 1, 0, 0]]},
    "a block outside of the file": {"states": [["count", "value"]], "blocks": [[0, 0, 0, 10**12, 10**12, 1, 0, 0]]},
    "a block of negative size": {"states": [["count", "value"]], "blocks": [[0, 0, 0, 12, -5, 1, 0, 0]]},
    "numbers that are none": {"states": [["count", "value"]], "blocks": [["x"] * 8]},
    "too few numbers": {"states": [["count", "value"]], "blocks": [[0, 0]]},
    "states of unknown kinds": {"states": [["count", "heap"]], "blocks": []},
    "states without a name": {"states": [[["x"], "value"]], "blocks": []},
    "blocks that overlap": {"states": [["count", "value"]], "blocks": [[0, 0, 127, 12, 0, 0, 0, 0]] * 5000},
}


@pytest.mark.parametrize("index", INDEXES.values(), ids=INDEXES)
def test_a_hostile_index_with_right_checksums_ends_in_a_clear_error(tmp_path: Path, index: Any) -> None:
    header = FileBuilder(Codec()).header()
    body = msgpack.packb(index)
    end = TRAILER.pack(len(header), xxh3_64_intdigest(body), b"FLOWEND\n")

    path = craft(Maker(tmp_path, parallelism=1), header, body, end, entries=1)

    look_everywhere(path)
    assert damages(snapshot.open(path))


@pytest.mark.parametrize("seed", range(4))
def test_mutated_files_end_in_data_or_a_clear_error(tmp_path: Path, seed: int) -> None:
    """The checksums of the manifest and of blocks are made right again, so that what is behind them is reached."""
    random_ = random.Random(seed)
    maker = Maker(tmp_path, parallelism=1)

    def few(backend: Backend) -> None:
        for n in range(5):
            backend.table(VALUE).put(f"a{n}", (n, {"x": [n]}, {n}))

    path = maker.write({UID: maker.states(few), "lines": splits(1, None)})
    (file,) = state_files(tmp_path)
    data, manifest = file.read_bytes(), (path / "manifest.json").read_bytes()

    for _ in range(150):
        mutated = bytearray(data)
        for _ in range(random_.randrange(1, 4)):
            mutated[random_.randrange(len(mutated))] = random_.randrange(256)
        file.write_bytes(with_right_checksums(bytes(mutated)))
        look_everywhere(path)
    file.write_bytes(data)
    for _ in range(150):
        text = bytearray(manifest)
        text[random_.randrange(len(text))] = random_.randrange(32, 127)
        (path / "manifest.json").write_bytes(text)
        look_everywhere(path)


def with_right_checksums(data: bytes) -> bytes:
    """A state file whose blocks' and index's checksums are those of its bytes, as far as it still has an index."""
    offset, _, end = TRAILER.unpack(data[-TRAILER.size :])
    try:
        index = msgpack.unpackb(data[offset : -TRAILER.size])
        for block in index["blocks"]:
            block[7] = xxh3_64_intdigest(data[block[3] : block[3] + block[4]])
        body = msgpack.packb(index)
    except Exception:
        return data
    return data[:offset] + body + TRAILER.pack(offset, xxh3_64_intdigest(body), end)


@pytest.mark.parametrize(
    "body",
    [
        {"format": 1, "kind": float("inf")},
        {"format": 1, "plan": {"max_parallelism": 10**9}},
        {"format": 1, "plan": {"max_parallelism": True}},
    ],
)
def test_a_hostile_manifest_ends_in_a_clear_error(tmp_path: Path, body: dict[str, Any]) -> None:
    whole = {"kind": "checkpoint", "job": "j", "id": 1, "parent": 0, "attempt": 1, "lineage": "L", "created": 1}
    whole |= {"finished": False, "plan": {}, "operators": {}} | body
    (tmp_path / "manifest.json").write_bytes(encode(whole) if "kind" not in body else b'{"format":1,"x":Infinity}')

    with pytest.raises(FlowPointError, match="is damaged"):
        snapshot.open(tmp_path)


def test_a_deeply_nested_manifest_ends_in_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(b"[" * 1_000_000)

    with pytest.raises(FlowPointError, match="is damaged"):
        snapshot.open(tmp_path)
