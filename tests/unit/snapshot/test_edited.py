"""A child of a snapshot has what was changed, and all the rest; its parent stays as it was."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flowpoint import snapshot
from flowpoint.codec.values import Codec
from flowpoint.errors import FlowPointError, NotFoundError, SnapshotError, StorageError, UsageError
from flowpoint.host.blocking import BlockingDisk, run_now
from flowpoint.model.manifest import OperatorState
from flowpoint.model.settings import StateSettings
from flowpoint.snapshot.addresses import delete_by_text, move_by_text, set_by_text
from flowpoint.snapshot.edited import Child
from flowpoint.snapshot.opened import Snapshot
from flowpoint.snapshot.reader import load
from flowpoint.state.backend import Backend
from flowpoint.state.heap import HeapBackend
from tests.unit.snapshot.made import (
    DAYS,
    MAP,
    MAX,
    UID,
    VALUE,
    WORDS,
    Maker,
    checkpoint,
    folder_bytes,
    sink,
    splits,
)
from tests.unit.snapshot.test_opened import Color, Item

Edit = Callable[[Child], None]


@pytest.fixture(scope="module")
def child_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Child]:
    """Children of one checkpoint, which nobody changes."""
    path = checkpoint(tmp_path_factory.mktemp("job"))
    return lambda: snapshot.open(path).edit()


def edited(tmp_path: Path, *edits: Edit) -> Snapshot:
    child = snapshot.open(checkpoint(tmp_path / "job")).edit()
    for edit in edits:
        edit(child)
    return snapshot.open(child.write(tmp_path / "child").path)


def counts(opened: Snapshot) -> dict[Any, Any]:
    return dict(opened.operator(UID).state("count").items())


def test_a_value_is_set_and_all_others_stay(tmp_path: Path) -> None:
    child = edited(tmp_path, lambda c: c.set(UID, "count", "word-3", 33), lambda c: c.delete(UID, "count", "word-4"))

    expected = {word: n for word, n in WORDS.items() if word != "word-4"} | {"word-3": 33}
    assert counts(child) == expected
    assert child.operator(UID).state("count").get("word-4") is None
    assert dict(child.operator(UID).state("days").entries()) == DAYS


def test_entries_of_a_map_are_set_and_deleted_one_by_one_or_all_together(tmp_path: Path) -> None:
    child = edited(
        tmp_path,
        lambda c: c.set(UID, "days", "user-1", 100, map_key="mon"),
        lambda c: c.delete(UID, "days", "user-2", map_key="mon"),
        lambda c: c.delete(UID, "days", "user-3"),
    )

    expected = {pair: n for pair, n in DAYS.items() if pair != ("user-2", "mon") and pair[0] != "user-3"}
    assert dict(child.operator(UID).state("days").entries()) == expected | {("user-1", "mon"): 100}


def test_a_list_is_set_whole(tmp_path: Path) -> None:
    child = edited(tmp_path, lambda c: c.set(UID, "recent", "word-1", ["a", "b", "c"]))

    assert child.operator(UID).state("recent").get("word-1") == ["a", "b", "c"]


def test_a_key_that_is_new_is_added_where_the_job_looks_for_it_and_said_to_be(tmp_path: Path) -> None:
    new = {f"new-{n}": n for n in range(20)}
    child = edited(tmp_path, *(lambda c, k=k, n=n: c.set(UID, "count", k, n) for k, n in new.items()))

    assert counts(child) == WORDS | new
    assert child.operator(UID).state("count").get("new-7") == 7
    assert child.manifest.origin["changes"][:2] == ["add counts/count/new-0=0", "add counts/count/new-1=1"]


def test_what_is_new_comes_first_in_a_subtask_that_had_nothing(tmp_path: Path) -> None:
    maker = Maker(tmp_path)
    parent = snapshot.open(maker.write({UID: maker.states(lambda backend: backend.table(VALUE).put("only", 1))}))
    new = {f"new-{n}": n for n in range(20)}
    child = parent.edit()
    for key, n in new.items():
        set_by_text(child, f"counts/count/{key}={n}")

    opened = snapshot.open(child.write(tmp_path / "child").path)
    assert counts(opened) == {"only": 1} | new
    for subtask in opened.operator(UID).subtasks:
        backend = HeapBackend(Codec(), MAX, StateSettings(backend="heap"), "unused", UID)
        backend.restore(run_now(load(opened.location.storage, subtask.files)), subtask.groups)
        assert 0 < len(dict(backend.table(VALUE).items())) < len(new)


def test_an_entry_that_is_new_is_added_to_a_map_that_is_there_and_to_one_that_is_not(tmp_path: Path) -> None:
    child = edited(
        tmp_path,
        lambda c: set_by_text(c, "counts/days/user-1/tue=5"),
        lambda c: set_by_text(c, "counts/days/user-x/mon=6"),
        lambda c: c.set(UID, "days", "user-y", 7, map_key="wed"),
    )

    added = {("user-1", "tue"): 5, ("user-x", "mon"): 6, ("user-y", "wed"): 7}
    assert dict(child.operator(UID).state("days").entries()) == DAYS | added


def test_the_text_of_a_new_key_means_what_the_others_are(tmp_path: Path) -> None:
    maker = Maker(tmp_path)
    child = snapshot.open(maker.write({UID: maker.states(lambda backend: backend.table(VALUE).put(5, 1))})).edit()

    set_by_text(child, "counts/count/6=2")
    with pytest.raises(NotFoundError, match="has no key 'six'"):
        set_by_text(child, "counts/count/six=2")
    with pytest.raises(NotFoundError, match="has no key 'six', and none of its type: there is, for example, 5"):
        child.set(UID, "count", "six", 2)

    assert counts(snapshot.open(child.write(tmp_path / "child").path)) == {5: 1, 6: 2}


def test_a_new_entry_that_may_mean_two_is_refused(child_of: Callable[[], Child]) -> None:
    with pytest.raises(UsageError, match="is ambiguous: .* it may mean a new one at 'a'/'b/c', 'a/b'/'c'"):
        set_by_text(child_of(), "counts/days/a/b/c=5")


def test_an_operator_is_dropped_with_its_files(tmp_path: Path) -> None:
    child = edited(tmp_path, lambda c: c.drop(UID))

    assert list(child.operators) == ["lines", "out"]
    assert child.manifest.files() == []
    assert list((tmp_path / "child").iterdir()) == [tmp_path / "child" / "manifest.json"]


def test_a_source_is_moved_also_where_it_had_read_to_the_end(tmp_path: Path) -> None:
    child = edited(
        tmp_path,
        lambda c: c.move("lines", "/in/0.txt@0", 2),
        lambda c: c.move("lines", "/in/1.txt@0", None),
        lambda c: c.move("lines", "/in/2.txt@0", 3),
    )

    moved = [(split.position, split.ended) for split in child.operator("lines").splits]
    assert moved == [(2, False), (None, False), (3, False)]


def test_a_child_says_whose_child_it_is_and_what_was_changed(tmp_path: Path) -> None:
    child = edited(tmp_path, lambda c: c.set(UID, "count", "word-3", 33), lambda c: c.drop("out"))

    assert (child.kind, child.id, child.parent, child.job) == ("savepoint", 8, 7, "words")
    origin = child.manifest.origin
    assert (origin["kind"], origin["id"], origin["path"]) == ("checkpoint", 7, str(tmp_path / "job" / "chk-7-a1"))
    assert origin["changes"] == ["set counts/count/word-3=33", "drop out"]


def test_the_parent_is_not_touched_and_its_files_are_copied_as_they_are(tmp_path: Path) -> None:
    parent = snapshot.open(checkpoint(tmp_path / "job"))
    before = folder_bytes(tmp_path / "job")
    child = parent.edit()
    child.set(UID, "count", "word-3", 33)

    child.write(tmp_path / "child")

    assert folder_bytes(tmp_path / "job") == before
    after = folder_bytes(tmp_path / "child")
    copied = {file.path: before[file.path] for file in parent.manifest.files()}
    assert {name: data for name, data in after.items() if name in copied} == copied
    assert len(after) == len(copied) + 2, "and one file of changes, and the manifest"


def test_a_child_needs_nothing_of_its_parent_and_can_be_moved_and_edited_again(tmp_path: Path) -> None:
    edited(tmp_path, lambda c: c.set(UID, "count", "word-3", 33))
    (tmp_path / "job").rename(tmp_path / "gone")
    (tmp_path / "child").rename(tmp_path / "moved")

    second = snapshot.open(tmp_path / "moved").edit()
    second.set(UID, "count", "word-4", 44)
    second.set(UID, "count", "word-3", 333)
    grandchild = snapshot.open(second.write(tmp_path / "again").path)

    assert counts(grandchild) == {**WORDS, "word-3": 333, "word-4": 44}
    assert (grandchild.id, grandchild.parent) == (9, 8)
    assert grandchild.verify().damages == []


def test_a_backend_restores_the_child(tmp_path: Path) -> None:
    child = edited(
        tmp_path,
        lambda c: c.set(UID, "count", "word-3", 33),
        lambda c: c.delete(UID, "count", "word-4"),
        lambda c: c.set(UID, "days", "user-1", 100, map_key="mon"),
    )
    backend = HeapBackend(Codec(), MAX, StateSettings(backend="heap"), "unused", UID)

    for subtask in child.operator(UID).subtasks:
        backend.restore(run_now(load(child.location.storage, subtask.files)), subtask.groups)

    expected = {word: n for word, n in WORDS.items() if word != "word-4"} | {"word-3": 33}
    assert dict(backend.table(VALUE).items()) == expected
    assert backend.map_table(MAP).get("user-1", "mon") == 100


def test_values_of_classes_are_edited_by_their_fields(tmp_path: Path) -> None:
    maker = Maker(tmp_path / "job", types=[Item, Color])

    def put(backend: Backend) -> None:
        backend.table(VALUE).put("i", Item("n", Color.RED))

    child = snapshot.open(maker.write({UID: maker.states(put)})).edit()
    set_by_text(child, 'counts/count/i={"name": "m", "color": "RED"}')
    path = child.write(tmp_path / "child").path

    assert snapshot.open(path, types=[Item, Color]).operator(UID).state("count").get("i") == Item("m", Color.RED)


def test_keys_of_classes_are_edited_where_they_are_stored(tmp_path: Path) -> None:
    maker = Maker(tmp_path / "job", types=[Item, Color])
    child = snapshot.open(maker.write({UID: OperatorState(2, maker.states(put_red).subtasks)})).edit()

    set_by_text(child, "counts/count/Color.RED=2")

    opened = snapshot.open(child.write(tmp_path / "child").path, types=[Color])
    assert counts(opened) == {Color.RED: 2}
    assert opened.operator(UID).state("count").get(Color.RED) == 2


def put_red(backend: Backend) -> None:
    backend.table(VALUE).put(Color.RED, 1)


# ---------------------------------------------------------------------- what a person types


@pytest.mark.parametrize(
    ("edit", "text", "change"),
    [
        (set_by_text, "counts/count/word-3=5", "set counts/count/word-3=5"),
        (set_by_text, 'counts/count/"word-3"=5', "set counts/count/word-3=5"),
        (set_by_text, 'counts/recent/word-3=["a=1"]', 'set counts/recent/word-3=["a=1"]'),
        (set_by_text, "counts/days/user-1/mon=5", "set counts/days/user-1/mon=5"),
        (delete_by_text, "counts/count/word-3", "delete counts/count/word-3"),
        (delete_by_text, "counts/days/user-1/mon", "delete counts/days/user-1/mon"),
        (delete_by_text, "counts/days/user-1", "delete counts/days/user-1"),
        (move_by_text, "lines//in/0.txt@0=4", "position lines//in/0.txt@0=4"),
        (move_by_text, "lines//in/0.txt@0=null", "position lines//in/0.txt@0=null"),
    ],
)
def test_an_edit_is_typed_as_a_path(
    child_of: Callable[[], Child], edit: Callable[[Child, str], None], text: str, change: str
) -> None:
    child = child_of()

    edit(child, text)

    assert child.changes == [change]


def test_uids_states_and_keys_may_have_slashes_and_equal_signs_in_them(tmp_path: Path) -> None:
    def put(backend: Backend) -> None:
        backend.table(VALUE).put("a/b=c", "x")
        backend.map_table(MAP).put("k/1", "m/2", "x")

    maker = Maker(tmp_path)
    child = snapshot.open(maker.write({"u": splits(), "u/v=w": maker.states(put)})).edit()

    set_by_text(child, 'u/v=w/count/a/b=c="y=1"')
    set_by_text(child, 'u/v=w/days/k/1/m/2="z"')

    assert child.changes == ['set u/v=w/count/a/b=c="y=1"', 'set u/v=w/days/k/1/m/2="z"']


def test_an_address_that_may_mean_two_entries_of_a_map_is_refused(tmp_path: Path) -> None:
    def put(backend: Backend) -> None:
        backend.map_table(MAP).put("k", "1/m", 1)
        backend.map_table(MAP).put("k/1", "m", 1)

    maker = Maker(tmp_path)
    child = snapshot.open(maker.write({UID: maker.states(put)})).edit()

    with pytest.raises(UsageError, match="is ambiguous: .* has 2 entries that it may mean: 'k'/'1/m', 'k/1'/'m'"):
        set_by_text(child, "counts/days/k/1/m=2")


@pytest.mark.parametrize(
    ("edit", "text", "kind", "said"),
    [
        (set_by_text, "conts/count/word-3=5", NotFoundError, "no operator 'conts'; did you mean 'counts'?"),
        (set_by_text, "counts/cuont/word-3=5", NotFoundError, "no state 'cuont'; did you mean 'count'?"),
        (set_by_text, 'counts/count/json:["a"]=5', NotFoundError, "no key 'json:[\"a\"]'"),
        (set_by_text, "counts/count/new=1.5", UsageError, "it is of type float, not int (write a whole number)"),
        (set_by_text, "counts/count/word-3=x", UsageError, "what stands after '=' is not JSON"),
        (set_by_text, "counts/count/word-3", UsageError, "what stands after '=' is not JSON"),
        (set_by_text, "counts/count/word-3=1.5", UsageError, "it is of type float, not int (write a whole number)"),
        (set_by_text, 'counts/recent/word-3="a"', UsageError, "it is of type str, not list[str] (write an array)"),
        (set_by_text, "counts/count=5", NotFoundError, "no state 'count=5'; did you mean 'count'?"),
        (set_by_text, "counts/count", UsageError, "it names a state and no key"),
        (set_by_text, "counts/days/user-1=5", UsageError, "write KEY/MAPKEY=JSON"),
        (delete_by_text, "counts/days/user-x", NotFoundError, "no key 'user-x'"),
        (move_by_text, "lines//in/9.txt@0=4", NotFoundError, "no split '/in/9.txt@0'; did you mean '/in/"),
        (
            move_by_text,
            "lines//in/0.txt@0=99999999999999999999",
            UsageError,
            "cannot move split '/in/0.txt@0' of source",
        ),
        (move_by_text, 'lines//in/0.txt@0="4"', UsageError, "it is of type str, not int"),
        (move_by_text, 'lines//in/2.txt@0="4"', UsageError, "it is of type str, not int"),
        (move_by_text, "counts/x=4", NotFoundError, "source 'counts' has no split 'x'; it has none"),
    ],
)
def test_what_is_not_there_or_does_not_fit_is_refused(
    child_of: Callable[[], Child],
    edit: Callable[[Child, str], None],
    text: str,
    kind: type[FlowPointError],
    said: str,
) -> None:
    child = child_of()

    with pytest.raises(kind) as caught:
        edit(child, text)

    assert said in str(caught.value)
    assert child.changes == []


def test_an_operator_that_is_not_there_cannot_be_dropped(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="did you mean 'out'"):
        snapshot.open(checkpoint(tmp_path)).edit().drop("outt")


# ---------------------------------------------------------------------- writing


def test_a_child_is_written_only_into_a_folder_of_its_own(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "job")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    child = snapshot.open(path).edit()

    for folder, said in [(path, "inside of its parent"), (path / "in", "inside of its parent")]:
        with pytest.raises(UsageError, match=said):
            child.write(folder)
    with pytest.raises(UsageError, match="not empty"):
        child.write(tmp_path / "full")
    with pytest.raises(UsageError, match="that is a file"):
        child.write(tmp_path / "full" / "x")


def test_a_damaged_file_of_the_parent_leaves_no_child(tmp_path: Path) -> None:
    child = snapshot.open(checkpoint(tmp_path / "job")).edit()
    child.set(UID, "count", "word-3", 33)
    file = next(iter((tmp_path / "job" / "shared").iterdir()))
    file.write_bytes(file.read_bytes()[:-1] + b"x")

    with pytest.raises(SnapshotError, match=f"cannot copy shared/{file.name}: the file is damaged"):
        child.write(tmp_path / "child")

    assert not (tmp_path / "child").exists()


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), OSError(errno.EIO, "Input/output error")])
def test_an_edit_that_is_broken_off_at_its_manifest_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interruption: BaseException
) -> None:
    child = snapshot.open(checkpoint(tmp_path / "job")).edit()
    sync_dir = BlockingDisk.sync_dir

    async def broken_off(disk: BlockingDisk, path: str) -> None:
        if (tmp_path / "child" / "manifest.json").exists():  # it can be seen, and nobody knows for how long
            raise interruption
        await sync_dir(disk, path)

    with monkeypatch.context() as patched, pytest.raises((KeyboardInterrupt, StorageError)):
        patched.setattr(BlockingDisk, "sync_dir", broken_off)
        child.write(tmp_path / "child")

    assert not (tmp_path / "child").exists()
    child.write(tmp_path / "child")


def test_a_folder_that_cannot_be_looked_at_is_told(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")

    for folder in (tmp_path / "loop", tmp_path / ("x" * 300)):
        with pytest.raises(UsageError, match=r"cannot write a snapshot to .*; choose another folder"):
            snapshot.open(checkpoint(tmp_path / folder.name[:1])).edit().write(folder)


def test_everything_is_durable_before_the_manifest_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = snapshot.open(checkpoint(tmp_path / "job")).edit()
    child.set(UID, "count", "word-3", 33)
    real_link = BlockingDisk.link
    published: list[str] = []

    async def link(self: BlockingDisk, source: str, target: str) -> None:
        if target.endswith("manifest.json"):
            raise OSError(5, "Input/output error")
        published.append(target)
        await real_link(self, source, target)

    monkeypatch.setattr(BlockingDisk, "link", link)
    with pytest.raises(StorageError):
        child.write(tmp_path / "child")

    assert len(published) == 3, "two copies and the file of changes"
    assert not (tmp_path / "child").exists()


def test_without_a_change_a_checkpoint_becomes_a_savepoint_of_its_own(tmp_path: Path) -> None:
    child = edited(tmp_path)

    assert counts(child) == WORDS
    assert json.loads((tmp_path / "child" / "manifest.json").read_text())["kind"] == "savepoint"


def test_sinks_keep_what_they_had_prepared(tmp_path: Path) -> None:
    assert edited(tmp_path).manifest.operators["out"] == sink()
