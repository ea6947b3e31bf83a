"""Files of every format there ever was can be read, and today's are written as the fixture shows, byte for byte.

The fixtures are never changed: a new format gets new ones beside them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from flowpoint.model.commits import CommitEntry
from flowpoint.model.manifest import Manifest, OperatorState, StateFile, SubtaskState
from flowpoint.snapshot.commit_log import decode_entry, encode_entry
from flowpoint.snapshot.manifests import decode_manifest, encode_manifest

FIXTURES = Path(__file__).parents[2] / "fixtures"

ENTRY = CommitEntry(
    number=17,
    kind="checkpoint",
    attempt=7,
    lineage="5f0c3a9e1b2d4c68",
    checkpoint=12,
    directory="chk-12-a7",
    parent=11,
    nonce="00112233aabbccdd",
    created=1_790_000_000_000,
    extra={"reason": "interval", "größe": 3},
)

MANIFEST = Manifest(
    kind="checkpoint",
    job="wordcount",
    id=12,
    attempt=7,
    lineage="5f0c3a9e1b2d4c68",
    parent=11,
    created=1_790_000_000_000,
    plan={"job": "wordcount", "max_parallelism": 128, "fingerprint": "ab12"},
    operators={
        "lines": OperatorState(
            1, (SubtaskState(splits=({"id": "a.txt", "data": {}, "position": {"offset": 10**18}, "ended": False},)),)
        ),
        "zähler": OperatorState(
            2,
            (
                SubtaskState(
                    files=(
                        StateFile("shared/z_hler~8d3b-0-a6-1.base", "base", 1000, "0f" * 8, 40, (0, 63)),
                        StateFile("shared/z_hler~8d3b-0-a7-2.delta", "delta", 10, "a0" * 8, 2, (0, 63), {"x": 1}),
                    ),
                    states={"count": {"kind": "value", "default": 0}},
                ),
                SubtaskState(),
            ),
        ),
        "out": OperatorState(
            1, (SubtaskState(committables=({"checkpoint": 12, "data": {"file": "\udcff.part", "bytes": 1.5}},)),)
        ),
    },
)


def test_a_commit_entry_of_format_1_is_read_and_written() -> None:
    data = (FIXTURES / "commit-format-1.json").read_bytes()
    assert decode_entry(data, "commits/00000017.json", 17) == ENTRY
    assert encode_entry(ENTRY) == data


def test_a_manifest_of_format_1_is_read_and_written_again_as_it_was() -> None:
    data = (FIXTURES / "manifest-format-1.json").read_bytes()
    manifest = replace(MANIFEST, format=1)
    assert decode_manifest(data, "chk-12-a7/manifest.json") == manifest
    assert encode_manifest(manifest) == data


def test_a_manifest_of_format_2_is_read_and_written() -> None:
    data = (FIXTURES / "manifest-format-2.json").read_bytes()
    typed = {"count": {"kind": "value", "version": 2, "type": {"form": "list", "of": ["int"]}, "key": "str"}}
    counts = MANIFEST.operators["zähler"]
    subtasks = (replace(counts.subtasks[0], states=typed), counts.subtasks[1])
    manifest = replace(
        MANIFEST, operators={**MANIFEST.operators, "zähler": replace(counts, subtasks=subtasks)}, format=2
    )
    assert decode_manifest(data, "chk-12-a7/manifest.json") == manifest
    assert encode_manifest(manifest) == data


def test_spaces_and_the_order_of_fields_do_not_matter() -> None:
    data = (FIXTURES / "commit-format-1.json").read_text()
    first, *rest = data.strip().removeprefix("{\n").removesuffix("\n}").split(",\n")
    assert decode_entry(("{ " + " , \n\n".join([*rest, first]) + "}").encode(), "x", 17) == ENTRY


def test_a_commit_entry_travels_as_data() -> None:
    assert CommitEntry.from_data(json.loads(json.dumps(ENTRY.to_data()))) == ENTRY
