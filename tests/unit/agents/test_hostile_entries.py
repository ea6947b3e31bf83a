"""Stores that somebody has changed: every command reads what is whole and refuses the rest, naming where it is."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flowpoint.agents.saver import CoreSaver
from flowpoint.errors import DamagedStoreError, FlowPointError, InternalError
from tests.unit.agents.memory_kv import LogOnly, MemoryKv, saver_on
from tests.unit.agents.stores import config, each_saver, export, open_saver, put
from tests.unit.agents.test_hostile_bytes import nothing_is_imported

__all__ = ["nothing_is_imported"]

FIXED = settings(
    max_examples=40,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
KEYS = {"k": bytes(32)}
MANY = [f"{i}" * 3 for i in range(900)]
PEAK_TIMES, PEAK_MORE = 300, 40_000_000
"""Bytes that reading takes at most: for every byte read, and besides."""


def fill(saver: CoreSaver) -> None:
    """A thread with every kind of entry: values inside and apart, long lists, branches, a cut, pending writes."""
    for thread in ("t", "u"):
        old = at = put(saver, config(thread), {"a": 1}, id="0")
        at = put(saver, at, {"a": 1, "large": b"x" * 6000, "list": MANY[:700]}, id="1", step=1, run_id="r1")
        put(saver, old, {"a": 2}, id="branch")
        saver.prune([thread])
        at = put(saver, at, {"a": {"k": (1, {2})}, "large": b"x" * 6000, "list": MANY}, id="2", step=2, run_id="r2")
        put(saver, config(thread, ns="sub:1"), {"inner": [1]}, id="3")
        saver.put_writes(at, [("a", 1), ("large", b"y" * 7000)], "task", "~__pregel_pull, n")


def commands(saver: CoreSaver) -> Iterator[Callable[[], object]]:
    """Everything that can be asked of a store; what changes it comes last."""
    for thread in ("t", "u"):
        for ns, id_ in (("", None), ("", "1"), ("", "2"), ("sub:1", None), ("sub:1", "3")):
            yield partial(saver.get_tuple, config(thread, ns, id_))
        yield lambda thread=thread: list(saver.list({"configurable": {"thread_id": thread}}))
        yield lambda thread=thread: list(saver.list(config(thread), before=config(id="2")))
        yield lambda thread=thread: saver.get_delta_channel_history(config=config(thread, id="2"), channels=["list"])
    yield lambda: list(saver.list(None, filter={"step": 1}))
    yield lambda: export(saver)
    yield lambda: saver.put_writes(config(id="2"), [("a", 2)], "task", "")
    yield lambda: put(saver, config(id="2"), {"a": 3}, versions={"a": 2, "large": 1, "list": 1}, id="4")
    yield lambda: saver.copy_thread("t", "copy")
    yield lambda: saver.delete_for_runs(["r2"])
    yield lambda: saver.expire(keep_last=1, ttl=timedelta(0))
    yield lambda: saver.sweep(timedelta(0))
    yield lambda: saver.prune(["t", "u"])
    yield lambda: saver.delete_thread("t")


def ask_everything(saver: CoreSaver) -> int:
    """How many commands were refused, each naming a thread or an entry."""
    refused = 0
    for command in commands(saver):
        try:
            command()
        except InternalError:
            raise
        except FlowPointError as error:
            refused += 1
            assert any(name in str(error) for name in ("thread 't'", "thread 'u'", "thread 'copy'", "t/t/", "t/u/")), (
                error
            )
    return refused


ENTRIES: dict[tuple[type, bool], dict[str, bytes]] = {}
for kind in (MemoryKv, LogOnly):
    for sealed in (False, True):
        kv = kind()
        fill(saver_on(kv, KEYS if sealed else None))
        ENTRIES[kind, sealed] = dict(kv.scan(""))

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5)
    | st.binary(max_size=20) | st.sampled_from([b"x" * 16, [1, b"x" * 16], [2, 1, b"x" * 32], "put", "cut"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def bent(data: bytes, draw: Any) -> bytes:
    """Bytes with something about them changed, also deep inside of what they hold."""
    match draw(st.integers(0, 6)):
        case 0 if data:
            at = draw(st.integers(0, len(data) - 1))
            return data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :]
        case 1:
            return data[: draw(st.integers(0, len(data)))]
        case 2:
            return draw(st.binary(max_size=40))
        case 3:
            at = draw(st.integers(0, len(data)))
            return data[:at] + draw(st.sampled_from([b"\xdd", b"\xdf", b"\xdb", b"\xc6"])) + b"\x80\0\0\0" + data[at:]
        case _:
            return bent_inside(data, draw)


def bent_inside(data: bytes, draw: Any) -> bytes:
    try:
        value = msgpack.unpackb(data, strict_map_key=False)
    except (ValueError, msgpack.UnpackException):
        return data + b"\0"
    return msgpack.packb(bent_value(value, draw))


def bent_value(value: Any, draw: Any) -> Any:
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        at = draw(st.integers(0, len(value) - 1))
        return [*value[:at], bent_value(value[at], draw), *value[at + 1 :]]
    if isinstance(value, dict) and value and draw(st.integers(0, 4)):
        key = draw(st.sampled_from(sorted(value, key=repr)))
        return {**value, key: bent_value(value[key], draw)}
    if isinstance(value, bytes) and draw(st.booleans()):
        return bent(value, draw)
    return draw(plain)


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("kind", [MemoryKv, LogOnly], ids=["index", "log"])
@FIXED
@given(data=st.data())
def test_a_store_with_a_bent_entry_is_read_or_refused_by_thread(kind: Any, sealed: bool, data: Any) -> None:
    entries = ENTRIES[kind, sealed]
    kv = kind()
    kv.write(entries.items())
    key = data.draw(st.sampled_from(sorted(entries)))
    kv.write([(key, bent(entries[key], data.draw))])
    ask_everything(saver_on(kv, KEYS if sealed else None))


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("kind", [MemoryKv, LogOnly], ids=["index", "log"])
def test_a_store_that_lacks_an_entry_or_has_two_of_them_swapped_is_read_or_refused(kind: Any, sealed: bool) -> None:
    entries = ENTRIES[kind, sealed]
    of_t = [key for key in entries if key.startswith("t/t/")]
    for key in of_t[::16]:
        for other in (None, of_t[0], of_t[-1], key.replace("t/t/", "t/u/")):
            kv = kind()
            kv.write(entries.items())
            if other is None:
                kv.write([], [key])
            else:
                kv.write([(key, entries.get(other, b""))])
            ask_everything(saver_on(kv, KEYS if sealed else None))


@each_saver
def test_real_stores_with_bent_entries_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        fill(saver)
        entries = dict(saver.core.kv.scan("t/"))
    refused = 0
    for at, key in enumerate(sorted(entries)[::20]):
        data = entries[key]
        with open_saver(kind, tmp_path / f"{at}") as saver:
            saver.core.kv.write([(name, value) for name, value in entries.items() if name != key], sync=False)
            saver.core.kv.write([(key, data[: len(data) // 2])], sync=False)
        with open_saver(kind, tmp_path / f"{at}") as saver:
            refused += ask_everything(saver)
    assert refused > 5


@pytest.mark.parametrize("part", ["*.sst", "*.log", "CURRENT", "MANIFEST-*"])
def test_a_database_with_damaged_files_is_read_or_refused_by_its_path(part: str, tmp_path: Path) -> None:
    with open_saver("rocks", tmp_path) as saver:
        fill(saver)
        if part == "*.sst":
            saver.core.kv.compact()  # type: ignore[attr-defined]
    for file in (tmp_path / "rocks").glob(part):
        data = file.read_bytes()
        file.write_bytes(data[: len(data) // 3] + bytes(40) + data[len(data) // 3 + 40 :])
    try:
        with open_saver("rocks", tmp_path) as saver:
            for command in commands(saver):
                command()
    except FlowPointError as error:
        assert str(tmp_path) in str(error) or "thread" in str(error)  # noqa: PT017


def bomb(kv: MemoryKv, ref: list[Any]) -> None:
    """Make `large` of checkpoint 2 lead to something else."""
    key = max(name for name in dict(kv.scan("t/t/c/")))
    head, body = msgpack.unpackb(kv.get(key) or b"")
    checkpoint, metadata, channels = msgpack.unpackb(body, strict_map_key=False)
    kv.write([(key, msgpack.packb([head, msgpack.packb([checkpoint, metadata, {**channels, "large": ref}])]))])


def blob(kv: MemoryKv, name: bytes, data: bytes) -> bytes:
    key = name.ljust(16, b"-")
    kv.write([(f"t/t/b/{key.hex()}", data)])
    return key


def lists_of_lists(kv: MemoryKv) -> list[Any]:
    """A leaf of one element, 128 times in a node, 128 times in the next, and so on."""
    key = blob(kv, b"leaf", msgpack.packb([msgpack.packb("x" * 50)]))
    for level in range(8):
        key = blob(kv, b"node%d" % level, key * 128)
    return [2, 8, key]


def empty_leaves(kv: MemoryKv) -> list[Any]:
    key = blob(kv, b"leaf", msgpack.packb([]))
    for level in range(8):
        key = blob(kv, b"node%d" % level, key * 128)
    return [2, 8, key]


def a_node_in_itself(kv: MemoryKv) -> list[Any]:
    key = b"itself".ljust(16, b"-")
    return [2, 8, blob(kv, b"itself", key * 100)]


def many_containers(kv: MemoryKv) -> list[Any]:
    """The smallest bytes that become the largest objects."""
    deques = msgpack.packb(msgpack.ExtType(14, msgpack.packb([None, []]))) * 60_000
    return [1, blob(kv, b"deques", b"\xdd" + (20_000).to_bytes(4, "big") + deques)]


def nothing_many_times(kv: MemoryKv) -> list[Any]:
    return [1, blob(kv, b"empty", b"\xdd" + (100_000).to_bytes(4, "big") + b"\x80" * 100_000)]


def deep(kv: MemoryKv) -> list[Any]:
    data = b"\xc0" * 10_000
    for _ in range(99):
        data = msgpack.packb(msgpack.ExtType(1, data))
    return [1, blob(kv, b"deep", data)]


def large_texts_of_nothing(kv: MemoryKv) -> list[Any]:
    empty_text = msgpack.packb(msgpack.ExtType(13, msgpack.packb(["<U0", False, [1 << 34], b""])))
    return [1, blob(kv, b"numpy", empty_text)]


@pytest.mark.parametrize(
    "made",
    [lists_of_lists, empty_leaves, a_node_in_itself, many_containers, nothing_many_times, deep, large_texts_of_nothing],
    ids=lambda made: made.__name__.replace("_", " "),
)
def test_entries_made_to_grow_take_memory_and_time_in_proportion_to_their_size(made: Any) -> None:
    kv = MemoryKv()
    kv.write(ENTRIES[MemoryKv, False].items())
    bomb(kv, made(kv))
    size = sum(len(value) for _key, value in kv.scan("t/t/"))
    began = perf_counter()
    tracemalloc.start()
    try:
        for command in list(commands(saver_on(kv)))[:7]:
            try:
                command()
            except FlowPointError as error:
                assert "thread 't'" in str(error)  # noqa: PT017
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < PEAK_TIMES * size + PEAK_MORE
    assert perf_counter() - began < 30


def test_a_list_that_repeats_itself_is_stored_whole_and_comes_back() -> None:
    kv = MemoryKv()
    saver = saver_on(kv)
    lists = [["x" * 200] * 200_000, ["y"] * 3000, [MANY] * 50, MANY * 20]
    at = config()
    for value in lists:
        at = put(saver, at, {"list": value})
        assert saver.get_tuple(at).checkpoint["channel_values"] == {"list": value}
    saver.copy_thread("t", "u")
    assert saver.get_tuple(config("u")).checkpoint["channel_values"] == {"list": lists[-1]}


def test_a_lie_in_the_index_does_not_show_another_checkpoint() -> None:
    kv = MemoryKv()
    kv.write(ENTRIES[MemoryKv, True].items())
    saver = saver_on(kv, KEYS)
    number = kv.get("t/t/i/%/1") or b""
    kv.write([("t/t/i/%/2", number), ("t/t/h/%", msgpack.packb(["", int(number), "2"]))])
    for at in (config(id="2"), config()):
        with pytest.raises(DamagedStoreError, match="thread 't': the index leads to commit .*, which is checkpoint 1"):
            saver.get_tuple(at)


@pytest.mark.parametrize("kind", [MemoryKv, LogOnly], ids=["index", "log"])
def test_a_commit_that_is_missing_is_an_error_for_every_command_but_deleting(kind: Any) -> None:
    kv = kind()
    kv.write(ENTRIES[kind, False].items())
    saver = saver_on(kv)
    lost = saver.core.index.find("t", "", "1")
    assert lost is not None
    kv.write([], [f"t/t/c/{lost:012d}"])
    for command in (
        lambda: list(saver.list(config())),
        lambda: saver.get_tuple(config(id="1")),
        lambda: saver.prune(["t"]),
        lambda: saver.copy_thread("t", "copy"),
        lambda: export(saver, "t"),
    ):
        with pytest.raises(DamagedStoreError, match="thread 't'.* is missing"):
            command()
    saver.delete_thread("t")
    assert list(saver.list(config())) == []
