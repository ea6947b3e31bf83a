"""Manifests: published whole, refused when damaged, foreign or of a newer format; and files proved against them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from flowpoint.errors import BadRecordError, SnapshotError, StorageError
from flowpoint.model.manifest import Manifest, OperatorState, StateFile, SubtaskState
from flowpoint.snapshot import encoding
from flowpoint.snapshot.manifests import (
    Damage,
    decode_manifest,
    encode_manifest,
    read_manifest,
    verify,
    write_manifest,
)
from tests.unit.snapshot.fakes import MemoryDisk, PowerLoss
from tests.unit.snapshot.faults import Fault, with_every_fault
from tests.unit.snapshot.worlds import ROOT, Coordinator, manifest_of

FILE = StateFile("shared/counts-0-a1-1.delta", "delta", 5, "c" * 16, 1, (0, 127))
MANIFEST = manifest_of(1, 1, "L1", [FILE])


async def test_a_manifest_is_read_as_it_was_written() -> None:
    storage = Coordinator(MemoryDisk()).storage
    assert await write_manifest(storage, MANIFEST) == "chk-1-a1"
    assert await read_manifest(storage, "chk-1-a1") == MANIFEST


async def test_a_savepoint_has_its_manifest_at_the_root_of_its_folder() -> None:
    coordinator = Coordinator(MemoryDisk())
    savepoint = replace(MANIFEST, kind="savepoint")
    assert await write_manifest(coordinator.storage, savepoint, "") == ""
    assert list(coordinator.disk.files()) == [f"{ROOT}/manifest.json"]
    assert await read_manifest(coordinator.storage, "") == savepoint


async def test_writing_the_same_manifest_again_is_done_already() -> None:
    storage = Coordinator(MemoryDisk()).storage
    await write_manifest(storage, MANIFEST)
    assert await write_manifest(storage, MANIFEST) == "chk-1-a1"
    with pytest.raises(SnapshotError, match=r"cannot write chk-1-a1/manifest.json: another manifest is there"):
        await write_manifest(storage, replace(MANIFEST, created=1))


async def test_a_position_that_is_not_json_names_the_operator() -> None:
    for position in (b"bytes", {1, 2}, float("nan"), {1: 2}, [{"a": {None: 0}}]):
        source = OperatorState(1, (SubtaskState(splits=({"id": "0", "position": position},)),))
        with pytest.raises(BadRecordError, match="operator 'lines': its source position"):
            encode_manifest(replace(MANIFEST, operators={"counts": MANIFEST.operators["counts"], "lines": source}))


async def test_a_missing_manifest_is_an_incomplete_snapshot() -> None:
    with pytest.raises(SnapshotError, match="there is no chk-1-a1/manifest.json: the snapshot is incomplete"):
        await read_manifest(Coordinator(MemoryDisk()).storage, "chk-1-a1")


def change_committable(committable: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    return lambda body: body["operators"]["counts"]["subtasks"][0].update(committables=[committable])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: b"", "0 bytes that are not JSON"),
        (lambda data: data[:-20], "not JSON"),
        (lambda data: b"\xff" + data, "not JSON"),
        (lambda data: data.replace(b'"id": 1', b'"id": 2'), "checksum"),
        (
            lambda data: data.replace(b'"format": 2', b'"format": 9'),
            "has format 9, and this FlowPoint reads formats up to 2",
        ),
        (lambda data: data.replace(b'"format": 2', b'"format": true'), "format True, which is not a number"),
        (lambda data: b'"text"', "JSON of type str"),
        (lambda data: re.sub(rb',\n"checksum": "\w+"', b"", data), "checksum None in the file"),
    ],
)
def test_damage_is_an_error_that_names_the_file_and_what_was_seen(change: Callable[[bytes], bytes], says: str) -> None:
    with pytest.raises(SnapshotError, match=says) as caught:
        decode_manifest(change(encode_manifest(MANIFEST)), "chk-1-a1/manifest.json")
    assert "chk-1-a1/manifest.json" in str(caught.value)


def test_no_changed_byte_goes_unseen() -> None:
    data = encode_manifest(MANIFEST)
    for place in range(len(data)):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        try:
            assert decode_manifest(changed, "m") == MANIFEST
        except SnapshotError:
            continue


def change_file(field: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(body: dict[str, Any]) -> None:
        body["operators"]["counts"]["subtasks"][0]["files"][0][field] = value

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda body: body.pop("lineage"), "'lineage' is None, not of type str"),
        (lambda body: body.update(id="1"), "'id' is '1', not of type int"),
        (lambda body: body.update(operators=[]), "'operators' is"),
        (lambda body: body["operators"].update(counts=3), "operator 'counts' is 3"),
        (lambda body: body["operators"]["counts"].update(parallelism=2), "has parallelism 2 and 1 subtasks"),
        (lambda body: body["operators"]["counts"]["subtasks"][0].update(other=1), "subtask 0 of operator 'counts'"),
        (lambda body: body["operators"]["counts"]["subtasks"][0].update(splits=[1]), "split or committable"),
        (lambda body: body["operators"]["counts"]["subtasks"][0].update(splits=[{}]), "split or committable"),
        (change_committable({"checkpoint": "7", "data": {}}), "split or committable"),
        (change_committable({"checkpoint": 7}), "split or committable"),
        (change_committable({"checkpoint": 7, "data": {}, "files": ["a-file-of-nobody"]}), "split or committable"),
        (change_committable({"checkpoint": 7, "data": {}, "files": [[]]}), "split or committable"),
        (change_file("path", "../../etc/passwd.txt"), "a file of subtask 0 of operator 'counts'"),
        (change_file("path", "/etc/passwd.txt"), "a file of subtask 0 of operator 'counts'"),
        (change_file("bytes", -1), "a file of subtask 0 of operator 'counts'"),
        (change_file("bytes", 1.5), "'bytes' of a file of subtask 0 of operator 'counts' is 1.5"),
        (change_file("groups", [1]), "a file of subtask 0 of operator 'counts'"),
        (change_file("unknown", 1), "a file of subtask 0 of operator 'counts'"),
    ],
)
def test_a_wrong_shape_is_refused_though_the_checksum_holds(
    change: Callable[[dict[str, Any]], object], says: str
) -> None:
    body = json.loads(encode_manifest(MANIFEST))
    del body["checksum"]
    change(body)
    with pytest.raises(SnapshotError, match=says):
        decode_manifest(encoding.encode(body), "m.json")


async def test_whatever_fails_a_manifest_is_whole_or_there_is_none() -> None:
    async def scenario(fault: Fault) -> MemoryDisk:
        disk = MemoryDisk()
        storage = Coordinator(disk).storage
        fault.arm(disk)
        written = False
        try:
            await write_manifest(storage, MANIFEST)
            written = True
        except (StorageError, PowerLoss):
            pass
        disk.lose_power()
        try:
            assert await read_manifest(Coordinator(disk, "next").storage, "chk-1-a1") == MANIFEST
        except SnapshotError as error:
            assert not written and "there is no" in str(error)
        return disk

    await with_every_fault(scenario)


# ------------------------------------------------------------------ verify


async def written() -> tuple[Coordinator, Manifest, dict[str, Any]]:
    coordinator = Coordinator(MemoryDisk())
    await coordinator.begin()
    await coordinator.complete(1)
    await coordinator.complete(2)
    shared = coordinator.disk.folders[f"{ROOT}/shared"].seen
    return coordinator, await read_manifest(coordinator.storage, "chk-2-a1"), shared


@pytest.mark.parametrize("deep", [False, True])
async def test_an_intact_snapshot_has_no_damage(deep: bool) -> None:
    coordinator, manifest, _ = await written()
    assert len(manifest.files()) == 2
    assert await verify(coordinator.storage, manifest, deep=deep) == []


@pytest.mark.parametrize("deep", [False, True])
async def test_every_missing_short_or_long_file_is_named(deep: bool) -> None:
    coordinator, manifest, shared = await written()
    first, second = sorted(shared)
    del shared[first]
    shared[second].data += b"!"
    damages = await verify(coordinator.storage, manifest, deep=deep)
    longer = "6 bytes long instead of 5" if deep else "longer than the 5 bytes it must have"
    assert damages == [Damage(f"shared/{first}", "missing"), Damage(f"shared/{second}", longer)]
    shared[second].data = b"sta"
    assert (await verify(coordinator.storage, manifest, deep=deep))[1].problem.startswith(("3 bytes", "shorter"))


async def test_a_changed_byte_is_found_by_a_deep_look_only() -> None:
    coordinator, manifest, shared = await written()
    name = min(shared)
    shared[name].data = b"stat3"
    assert await verify(coordinator.storage, manifest, deep=False) == []
    assert [damage.path for damage in await verify(coordinator.storage, manifest, deep=True)] == [f"shared/{name}"]


@pytest.mark.parametrize("deep", [False, True])
async def test_a_file_that_cannot_be_read_is_no_damage(deep: bool) -> None:
    coordinator, manifest, _ = await written()
    coordinator.disk.faults.fail(1, "before", persistent=True, counted=frozenset({"read"}))

    with pytest.raises(StorageError, match=r"cannot read .*\.delta: Input/output error \(EIO\)"):
        await verify(coordinator.storage, manifest, deep=deep)
