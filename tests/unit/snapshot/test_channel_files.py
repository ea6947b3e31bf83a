"""Channel state in files: what is read back is what was recorded, and of keyed records those of the wanted key groups."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowpoint.codec.values import Codec
from flowpoint.errors import SnapshotError
from flowpoint.host.blocking import run_now
from flowpoint.model.elements import Batch
from flowpoint.model.manifest import NO_GROUPS
from flowpoint.snapshot.channel_files import RecordedBatch, pack_groups, read_channels, write_channels
from flowpoint.transport.batches import encode_batch

CODEC = Codec()
NAME = "shared/counts-0-a1-1.channel"


class Memory:
    """Storage of one test."""

    def __init__(self):
        self.objects = {}

    async def put_if_absent(self, name, chunks):
        if name in self.objects:
            return False
        self.objects[name] = b"".join(chunks)
        return True


def recorded(values, *, port=0, groups=None, stamps=None):
    packed = None if groups is None else pack_groups(groups)
    return RecordedBatch(port, packed, len(values), encode_batch(CODEC, values, stamps))


def written(*batches, groups=NO_GROUPS):
    storage = Memory()
    file = run_now(write_channels(storage, batches, NAME, groups))
    return file, storage.objects[NAME]


@given(st.lists(st.lists(st.one_of(st.text(), st.integers(), st.tuples(st.integers(), st.text())), min_size=1)))
def test_batches_come_back_in_their_order(contents):
    file, data = written(*[recorded(values) for values in contents])

    assert [batch.values for _, batch in read_channels(file, data, CODEC, (0, 127))] == contents
    assert (file.entries, file.bytes, file.kind) == (sum(map(len, contents)), len(data), "channel")


def test_ports_and_timestamps_are_kept():
    file, data = written(recorded(["a"], port=1, stamps=[-5]), recorded(["b"]))

    assert list(read_channels(file, data, CODEC, (0, 0))) == [(1, Batch(["a"], [-5])), (0, Batch(["b"]))]


@given(st.lists(st.integers(0, 127), min_size=1), st.integers(1, 6))
def test_each_keyed_record_is_read_by_exactly_the_owner_of_its_key_group(groups, width):
    values = [f"r{number}" for number in range(len(groups))]
    file, data = written(recorded(values, groups=groups, stamps=list(range(len(groups)))), groups=(0, 127))
    cuts = [128 * index // width for index in range(width + 1)]

    found = {}
    for first, after in itertools.pairwise(cuts):
        for _, batch in read_channels(file, data, CODEC, (first, after - 1)):
            assert all(first <= groups[stamp] < after for stamp in batch.timestamps)
            found.update(zip(batch.values, batch.timestamps, strict=True))

    assert found == {value: number for number, value in enumerate(values)}


def test_a_name_is_written_once():
    storage = Memory()
    run_now(write_channels(storage, [recorded([1])], NAME, NO_GROUPS))
    with pytest.raises(Exception, match="exists already"):
        run_now(write_channels(storage, [recorded([2])], NAME, NO_GROUPS))


def test_a_file_of_another_kind_is_refused():
    file, _ = written(recorded([1]))
    with pytest.raises(SnapshotError, match="no channel state that this version can read"):
        list(read_channels(file, b"something else", CODEC, (0, 1)))
