"""FileSource lists files once, reads every line once, knows its position, and says which file and byte is wrong."""

from __future__ import annotations

import bz2
import errno
import gzip
import json
import lzma
import os
import random
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from flowpoint.connectors import FileSource, file_reader, file_streams, files_source
from flowpoint.connectors.file_reader import FileRange
from flowpoint.errors import BadRecordError, IncompatibleStateError, LostInputError, PlanError, StorageError
from flowpoint.runtime.contracts import END, Split
from tests.unit.connectors.conftest import World

ReadAll = Callable[..., Any]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few bytes, so that short texts have many edges."""
    monkeypatch.setattr(file_streams, "BLOCK", 7)
    monkeypatch.setattr(file_streams, "_TAIL_BLOCK", 3)
    monkeypatch.setattr(file_reader, "_PIECE", 5)


def text_of(seed: int, lines: int = 40) -> str:
    draw = random.Random(seed)
    return "".join("".join(draw.choices("aö🙂 \r", k=draw.randrange(9))) + "\n" for _ in range(lines))


def lines_of(text: str) -> list[str]:
    return [line.removesuffix("\r") for line in text.split("\n")[:-1]]


def cut(path: Path, cuts: list[int]) -> list[Split]:
    size = path.stat().st_size
    return [
        Split(str(start), asdict(FileRange(str(path), start, end, size, 0)))
        for start, end in zip([0, *cuts], [*cuts, size], strict=True)
    ]


async def read_splits(source: FileSource, splits: list[Split], world: World, read_all: ReadAll) -> list[Any]:
    return [record for split in splits for record in await read_all(await source.open(split, None, world.context()))]


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# Listing


def test_files_of_a_glob_are_listed_in_path_order_without_hidden_ones(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", ".hidden.txt", "c.md", "sub/d.txt"):
        write(tmp_path / name, "x\n")

    assert _names(FileSource(tmp_path / "*.txt"), tmp_path) == ["a.txt", "b.txt"]
    assert _names(FileSource(tmp_path / "**"), tmp_path) == ["a.txt", "b.txt", "c.md", "sub/d.txt"]
    assert _names(FileSource(tmp_path), tmp_path) == ["a.txt", "b.txt", "c.md"]
    assert _names(FileSource([tmp_path / "sub", tmp_path / "a.txt", tmp_path / "a*"]), tmp_path) == [
        "a.txt",
        "sub/d.txt",
    ]


def test_a_file_whose_name_looks_like_a_glob_is_found_by_its_name(tmp_path: Path) -> None:
    write(tmp_path / "a[1].txt", "x\n")

    assert _names(FileSource(tmp_path / "a[1].txt"), tmp_path) == ["a[1].txt"]


def test_relative_paths_are_those_of_the_working_directory_at_construction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "in" / "a.txt", "x\n")
    monkeypatch.chdir(tmp_path)
    source = FileSource("in/*.txt")
    monkeypatch.chdir("/")

    assert source.splits()[0].data["path"] == str(tmp_path / "in" / "a.txt")


def test_a_big_file_is_cut_into_ranges_that_cover_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_source, "_SMALLEST_RANGE", 10)
    path = write(tmp_path / "big.txt", "0123456789" * 7 + "\n")

    ranges = [(split.data["start"], split.data["end"]) for split in FileSource(path).splits()]

    assert ranges[0][0] == 0
    assert ranges[-1][1] == 71
    assert len(ranges) == 8
    assert all(end == start for (_, end), (start, _) in pairwise(ranges))


def test_split_data_is_json_and_its_id_names_file_and_offset(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "x\n")
    (split,) = FileSource(path).splits()

    assert json.loads(json.dumps(split.data)) == split.data
    assert split.id == f"{path}@0"


@pytest.mark.parametrize("name", ["none/*.txt", "none.txt", "."])
def test_when_nothing_matches_then_the_pattern_and_the_working_directory_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(PlanError) as error:
        FileSource(name).splits()

    assert repr(name) in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_when_a_file_cannot_be_read_then_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "secret.txt", "x\n")
    monkeypatch.setattr(os, "access", lambda path, mode: False)

    with pytest.raises(PlanError, match="secret.txt cannot be read: permission denied"):
        FileSource(path).splits()


def test_a_link_to_nowhere_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "x\n")
    (tmp_path / "b.txt").symlink_to("nowhere")

    with pytest.raises(PlanError, match="b.txt cannot be read: it is a link to nowhere"):
        FileSource(str(tmp_path / "*.txt")).splits()


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(PlanError, match="pipe cannot be read: it is not a regular file"):
        FileSource(str(tmp_path)).splits()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"watch": True}, "watch=True is not supported yet"),
        ({"on_error": "side_output"}, "on_error='side_output'"),
        ({"format": "csv"}, "format='csv' is not supported yet"),
    ],
)
def test_options_that_there_are_not_yet_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        FileSource("x", **options)


def test_a_compression_that_is_not_supported_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"a\.zst is compressed"):
        FileSource(write(tmp_path / "a.zst", b"x")).splits()


# Reading


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("seed", range(5))
async def test_wherever_a_file_is_cut_every_line_is_read_once_and_in_order(
    tmp_path: Path, folder: World, read_all: ReadAll, seed: int
) -> None:
    text = text_of(seed)
    path = write(tmp_path / "a.txt", text)
    draw = random.Random(seed)
    size = path.stat().st_size

    for count in (0, 1, 2, 5, size - 1):
        splits = cut(path, sorted(draw.sample(range(1, size), count)))
        assert await read_splits(FileSource(path), splits, folder, read_all) == lines_of(text)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("n", [1, 3, 1000])
@pytest.mark.parametrize("format", ["lines", "jsonl"])
async def test_a_reader_opened_at_any_position_of_another_goes_on_exactly_there(
    tmp_path: Path, folder: World, read_all: ReadAll, n: int, format: str
) -> None:
    text = text_of(7) if format == "lines" else '{"a": "ö"}\n\n[1,\t2]\r\n \n"x"\n3\n\n'
    path = write(tmp_path / "a.txt", text)
    source = FileSource(path, format=format)

    for split in cut(path, [path.stat().st_size // 2]):
        expected = await read_all(await source.open(split, None, folder.context()))
        reader = await source.open(split, None, folder.context())
        seen: list[Any] = []
        while True:
            position = json.loads(json.dumps(reader.position()))
            rest = await read_all(await source.open(split, position, folder.context()))
            assert seen + rest == expected
            batch = await reader.read(n)
            if not isinstance(batch, list):
                break
            seen += batch
        assert not rest


async def test_the_last_line_needs_no_newline(tmp_path: Path, folder: World, read_all: ReadAll) -> None:
    path = write(tmp_path / "a.txt", "one\ntwo")
    (split,) = FileSource(path).splits()
    reader = await FileSource(path).open(split, None, folder.context())

    assert await read_all(reader) == ["one", "two"]
    assert reader.position() == 7


async def test_blank_lines_are_records_of_lines_but_not_of_jsonl(
    tmp_path: Path, folder: World, read_all: ReadAll
) -> None:
    path = write(tmp_path / "a", "\n1\n\n")

    for format, expected in (("lines", ["", "1", ""]), ("jsonl", [1])):
        source = FileSource(path, format=format)
        assert await read_splits(source, source.splits(), folder, read_all) == expected


async def test_an_empty_file_and_a_byte_order_mark_give_no_record(
    tmp_path: Path, folder: World, read_all: ReadAll
) -> None:
    write(tmp_path / "empty", "")
    write(tmp_path / "windows", "\ufeffa\r\nb\r\n")
    source = FileSource(tmp_path)

    assert await read_splits(source, source.splits(), folder, read_all) == ["a", "b"]


async def test_what_is_appended_after_the_listing_is_not_read(tmp_path: Path, folder: World, read_all: ReadAll) -> None:
    path = write(tmp_path / "a.txt", "one\ntwo\n")
    source = FileSource(path)
    splits = source.splits()
    write(path, "one\ntwo\nthree\n")

    assert await read_splits(source, splits, folder, read_all) == ["one", "two"]


async def test_ac05_after_a_restore_only_what_was_not_read_is_read(
    tmp_path: Path, folder: World, read_all: ReadAll
) -> None:
    path = write(tmp_path / "log", "1\n2\n3\n4\n")
    (split,) = FileSource(path).splits()
    reader = await FileSource(path).open(split, None, folder.context())
    await reader.read(3)

    again = await FileSource(path).open(split, reader.position(), folder.context())

    assert await read_all(again) == ["4"]


async def test_big_blocks_are_read_and_not_lines(tmp_path: Path, folder: World, read_all: ReadAll) -> None:
    path = write(tmp_path / "a.txt", "some words in a line\n" * 40_000)
    (split,) = FileSource(path).splits()

    assert len(await read_all(await FileSource(path).open(split, None, folder.context()))) == 40_000
    assert folder.disk.reads <= 3


# Compressed files


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
async def test_a_compressed_file_is_one_split_and_goes_on_at_any_position(
    tmp_path: Path, folder: World, read_all: ReadAll, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    text = text_of(3, lines=20)
    data = text.encode()
    path = write(tmp_path / f"a{suffix}", pack(data[:50]) + pack(data[50:]))
    source = FileSource(path)
    (split,) = source.splits()
    reader = await source.open(split, None, folder.context())
    seen: list[str] = []

    while isinstance(batch := await reader.read(3), list):
        seen += batch
        assert seen + await read_all(await source.open(split, reader.position(), folder.context())) == lines_of(text)

    assert seen == lines_of(text)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: b"no" + data])
async def test_a_damaged_compressed_file_is_named_and_never_ends_silently(
    tmp_path: Path,
    folder: World,
    read_all: ReadAll,
    suffix: str,
    pack: Callable[[bytes], bytes],
    damage: Callable[[bytes], bytes],
) -> None:
    path = write(tmp_path / f"a{suffix}", damage(pack(b"some text\n" * 100)))
    source = FileSource(path)

    with pytest.raises(BadRecordError, match=f"cannot decompress .*a{suffix}"):
        await read_splits(source, source.splits(), folder, read_all)


# Bad lines


@pytest.mark.parametrize(
    ("format", "text", "offset", "good"),
    [
        ("lines", b"one\ncaf\xe9\nthree\n", 4, ["one", "three"]),
        ("jsonl", b'{"a": 1}\n{"a": 2\n{"a": 3}\n', 9, [{"a": 1}, {"a": 3}]),
        ("jsonl", b"1 2\n[3\n,4]\n", 0, []),
    ],
)
async def test_a_bad_line_fails_with_file_and_offset_or_is_skipped_and_counted(
    tmp_path: Path, folder: World, read_all: ReadAll, format: str, text: bytes, offset: int, good: list[Any]
) -> None:
    path = write(tmp_path / "a", text)
    failing, skipping = FileSource(path, format), FileSource(path, format, on_error="skip")
    (split,) = failing.splits()
    context = folder.context(uid="in")

    number = text[:offset].count(b"\n") + 1
    with pytest.raises(
        BadRecordError, match=f"source 'in' cannot read {path}: line {number} at byte offset {offset} is not"
    ):
        await read_all(await failing.open(split, None, context))
    assert await read_all(await skipping.open(split, None, context)) == good

    assert context.metrics["lines_skipped"] == text.count(b"\n") - len(good)
    assert f"line {number} at byte offset {offset}" in folder.logged[-1]


async def test_the_number_of_a_bad_line_counts_all_pieces_before_it(
    tmp_path: Path, folder: World, read_all: ReadAll
) -> None:
    lines = [b"[1, 2, 3]"] * 30_000
    lines[10_000] = b""
    lines[20_000] = b"bad"
    path = write(tmp_path / "a", b"\n".join(lines))
    source = FileSource(path, "jsonl")
    (split,) = source.splits()

    with pytest.raises(BadRecordError, match="line 20001 at byte offset"):
        await read_all(await source.open(split, None, folder.context()))


async def test_where_reading_began_in_the_middle_the_number_of_a_bad_line_is_said_to_be_unknown(
    tmp_path: Path, folder: World, read_all: ReadAll
) -> None:
    path = write(tmp_path / "a", b"1\n2\nbad\n")
    source = FileSource(path, "jsonl")
    (split,) = source.splits()

    with pytest.raises(
        BadRecordError, match="a line at byte offset 4 is not JSON: .*its number is not known, as reading"
    ):
        await read_all(await source.open(split, 2, folder.context()))


# Lost input


@pytest.mark.parametrize("position", [-5, 15, 10**23])
async def test_a_position_outside_of_the_file_is_refused(tmp_path: Path, folder: World, position: int) -> None:
    source = FileSource(write(tmp_path / "a.txt", "one\ntwo\nthree\n"))
    (split,) = source.splits()

    with pytest.raises(IncompatibleStateError, match=f"a.txt@0' on from position {position}: .* between 0 and 14"):
        await source.open(split, position, folder.context())


def by_folder(path: Path) -> None:
    path.mkdir()


def by_fifo(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("replace", "seen"), [(by_folder, "it is a folder now"), (by_fifo, "it is no regular file now")]
)
@pytest.mark.parametrize("text", ["one\n", ""])
async def test_when_something_else_has_the_name_of_a_file_then_it_is_lost_input(
    tmp_path: Path, folder: World, read_all: ReadAll, replace: Callable[[Path], None], seen: str, text: str
) -> None:
    path = tmp_path / "a.txt"
    source = FileSource(write(path, text))
    (split,) = source.splits()
    path.unlink()
    replace(path)

    with pytest.raises(LostInputError, match=f"a.txt from position 0: {seen}"):
        await source.open(split, None, folder.context())

    assert await read_all(await source.open(split, None, folder.context(skip_lost_input=True))) == []


async def test_ac11_when_the_file_is_shorter_than_the_position_then_file_and_offsets_are_named(
    tmp_path: Path, folder: World, read_all: ReadAll
) -> None:
    path = write(tmp_path / "a.txt", "one\ntwo\nthree\n")
    source = FileSource(path)
    (split,) = source.splits()
    write(path, "one\n")

    with pytest.raises(LostInputError, match=r"a\.txt from position 8: it ends at byte 4 now, but it had 14 bytes"):
        await source.open(split, 8, folder.context())

    assert await read_all(await source.open(split, 8, folder.context(skip_lost_input=True))) == []
    assert "a.txt from position 8" in folder.logged[-1]


async def test_when_lost_input_may_be_skipped_then_what_is_left_is_read(
    tmp_path: Path, folder: World, read_all: ReadAll
) -> None:
    path = write(tmp_path / "a.txt", "one\ntwo\nthree\n")
    source = FileSource(path)
    (split,) = source.splits()
    write(path, "one\ntwo\n")

    assert await read_all(await source.open(split, 4, folder.context(skip_lost_input=True))) == ["two"]


async def test_when_the_file_is_gone_then_it_is_named_also_in_the_middle_of_reading(
    tmp_path: Path, folder: World, read_all: ReadAll
) -> None:
    path = write(tmp_path / "a.txt", "one\n")
    source = FileSource(path)
    (split,) = source.splits()
    opened = await source.open(split, None, folder.context())
    forgiving = await source.open(split, None, folder.context(skip_lost_input=True))
    path.unlink()

    with pytest.raises(LostInputError, match=r"a\.txt from position 0: the file is gone"):
        await source.open(split, None, folder.context())
    with pytest.raises(LostInputError, match=r"a\.txt at byte 0: the file is gone"):
        await opened.read(10)
    assert await read_all(forgiving) == []


@pytest.mark.parametrize("error", [errno.EACCES, errno.EIO, errno.EMFILE])
async def test_when_the_file_cannot_be_read_at_the_moment_then_it_is_not_lost_and_never_skipped(
    tmp_path: Path, folder: World, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    path = write(tmp_path / "a.txt", "one\n")
    source = FileSource(path)
    (split,) = source.splits()
    ctx = folder.context(skip_lost_input=True)
    reader = await source.open(split, None, ctx)

    async def refuse(path: str, offset: int = 0, size: int = -1) -> bytes:
        raise OSError(error, os.strerror(error), path)

    monkeypatch.setattr(ctx.disk, "read", refuse)

    with pytest.raises(StorageError, match=rf"a\.txt at byte 0: {os.strerror(error)}"):
        await reader.read(10)


async def test_when_a_file_is_cut_while_it_is_read_then_it_is_lost_input(
    tmp_path: Path, folder: World, small_blocks: None
) -> None:
    path = write(tmp_path / "a.txt", "one\ntwo\nthree\n")
    source = FileSource(path)
    (split,) = source.splits()
    reader = await source.open(split, None, folder.context())
    await reader.read(1)
    write(path, "one\ntwo\nth")

    with pytest.raises(LostInputError, match="ends at byte 10, but had 14"):
        while await reader.read(10) is not END:
            pass


async def test_when_no_line_begins_at_the_position_any_more_then_the_file_is_another(
    tmp_path: Path, folder: World, read_all: ReadAll
) -> None:
    path = write(tmp_path / "a.txt", "one\ntwo\nthree\nfour\n")
    source = FileSource(path)
    (split,) = source.splits()
    write(path, "rotated\nnew\nlines.\n")

    with pytest.raises(LostInputError, match="position 4: no line begins there"):
        await (await source.open(split, 4, folder.context())).read(10)

    reader = await source.open(split, 4, folder.context(skip_lost_input=True))
    assert await read_all(reader) == ["new", "lines."]


async def test_when_the_disk_fails_then_it_is_transient_and_names_the_file(memory: World) -> None:
    memory.disk.put("/a", b"one\n")
    memory.disk.fail_at(1, OSError(5, "Input/output error"), "read")
    split = Split("a", asdict(FileRange("/a", 0, 4, 4, 0)))

    reader = await FileSource("/a").open(split, None, memory.context())

    with pytest.raises(StorageError, match="/a at byte 0: Input/output error"):
        await reader.read(1)


def _names(source: FileSource, root: Path) -> list[str]:
    return [os.path.relpath(split.data["path"], root) for split in source.splits()]
