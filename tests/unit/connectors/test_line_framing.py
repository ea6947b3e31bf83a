"""Every line of a file is read by exactly one split, wherever the cuts and the blocks fall."""

from __future__ import annotations

import pytest

from flowpoint.connectors import line_framing
from flowpoint.connectors.line_framing import LineFramer, LineTooLongError

TEXT = "one\n\ntwo zwölf\nthree\n\n".encode()


def feed_in_blocks(framer: LineFramer, data: bytes, size: int) -> bytes:
    lines = b""
    for at in range(0, len(data), size):
        if framer.done:
            return lines
        lines += framer.feed(data[at : at + size])
    return lines if framer.done else lines + framer.finish()


@pytest.mark.parametrize("text", [TEXT, TEXT.rstrip(b"\n"), b"", b"\n", b"x"])
def test_blocks_of_any_size_give_the_same_lines(text: bytes) -> None:
    expected = text if not text or text.endswith(b"\n") else text + b"\n"

    for size in range(1, len(text) + 2):
        assert feed_in_blocks(LineFramer(0, None), text, size) == expected


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_a_framer_stops_after_the_line_that_holds_the_last_byte_of_its_split(size: int) -> None:
    starts = [0] + [i + 1 for i, byte in enumerate(TEXT) if byte == 10 and i + 1 < len(TEXT)]

    for end in range(len(TEXT) + 1):
        framer = LineFramer(0, end)
        lines = feed_in_blocks(framer, TEXT, size)

        assert lines.count(b"\n") == sum(start < end for start in starts)
        assert framer.done


def test_what_is_fed_is_whole_lines_or_nothing() -> None:
    framer = LineFramer(0, None)

    assert framer.feed(b"no newline yet") == b""
    assert framer.feed(b", now\nand more") == b"no newline yet, now\n"
    assert framer.finish() == b"and more\n"


def test_a_line_without_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_framing, "MAX_LINE", 10)
    framer = LineFramer(0, None)
    framer.feed(b"0123456789")

    with pytest.raises(LineTooLongError):
        framer.feed(b"0")
