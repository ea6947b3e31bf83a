"""Durations and sizes, right and wrong."""

from __future__ import annotations

import pytest

from flowpoint.launch.quantities import parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("10s", 10.0),
        ("5m", 300.0),
        ("5min", 300.0),
        ("1h", 3600.0),
        ("2d", 172800.0),
        ("1.5s", 1.5),
        (" 10 S ", 10.0),
        ("3", 3.0),
        ("0", 0.0),
        (3, 3.0),
        (0.01, 0.01),
    ],
)
def test_durations_are_read(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "value", ["", "s", "10x", "-1s", "1s2", "1e3", "٣s", "nan", -1, float("nan"), float("inf"), True, None, [1]]
)
def test_what_is_no_duration_is_refused(value):
    with pytest.raises(ValueError, match="a duration: seconds as a number, or text such as"):
        parse_duration(value)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64MB", 67108864),
        ("64 mb", 67108864),
        ("64M", 67108864),
        ("64MiB", 67108864),
        ("1KB", 1024),
        ("2GB", 2147483648),
        ("100B", 100),
        ("0.5KB", 512),
        ("7", 7),
        (0, 0),
    ],
)
def test_sizes_are_read(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("value", ["", "MB", "1XB", "-1", "0.3B", -1, 1.5, True, None])
def test_what_is_no_size_is_refused(value):
    with pytest.raises(ValueError, match="a size: bytes as a whole number, or text such as"):
        parse_size(value)
