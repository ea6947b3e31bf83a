"""Datetimes and times, taken apart into what msgpack carries, and rebuilt with the same wall time, zone and fold.

    datetime      [day, microseconds of the day, fold, its zone]
    time          [hour, minute, second, microsecond, fold, its zone]
    a zone        None, [offset in microseconds], [offset, name], or the key of an IANA zone

Not here: dates and timedeltas, which are numbers (`values.py`); datetimes as keys, which follow `==` (`keys.py`).
"""

from __future__ import annotations

from datetime import datetime, time, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from flowpoint.codec.shortened import shortened
from flowpoint.errors import BadRecordError


def take_datetime(v: datetime) -> list[Any]:
    """What stands for a datetime.

    Raises:
        BadRecordError: its time zone is of a class that cannot be found again.
    """
    naive = v.replace(tzinfo=None)
    micros = (naive.hour * 3600 + naive.minute * 60 + naive.second) * 1_000_000 + naive.microsecond
    return [naive.toordinal(), micros, v.fold, _take_zone(v.tzinfo, v)]


def make_datetime(data: list[Any]) -> datetime:
    """The reverse of `take_datetime`.

    Raises:
        BadRecordError: its time zone is not known on this machine.
    """
    ordinal, micros, fold, zone = data
    naive = datetime.fromordinal(ordinal) + timedelta(microseconds=micros)
    return naive.replace(tzinfo=_make_zone(zone), fold=fold)


def take_time(v: time) -> list[Any]:
    """What stands for a time. Raises as `take_datetime`."""
    return [v.hour, v.minute, v.second, v.microsecond, v.fold, _take_zone(v.tzinfo, v)]


def make_time(data: list[Any]) -> time:
    """The reverse of `take_time`. Raises as `make_datetime`."""
    hour, minute, second, microsecond, fold, zone = data
    return time(hour, minute, second, microsecond, _make_zone(zone), fold=fold)


def _take_zone(zone: tzinfo | None, value: object) -> Any:
    """None, [offset in microseconds], [offset, name] or the key of an IANA zone."""
    if zone is None:
        return None
    if type(zone) is timezone:
        offset = zone.utcoffset(None) // timedelta(microseconds=1)
        name = zone.tzname(None)
        return [offset] if name == timezone(timedelta(microseconds=offset)).tzname(None) else [offset, name]
    if type(zone) is ZoneInfo and zone.key is not None:
        return zone.key
    raise BadRecordError(
        f"cannot serialise {shortened(value)}: its time zone is of type {type(zone).__module__}.{type(zone).__qualname__}; "
        f"use datetime.timezone or zoneinfo.ZoneInfo(key)"
    )


def _make_zone(data: Any) -> tzinfo | None:
    if data is None:
        return None
    if isinstance(data, list):
        offset = timedelta(microseconds=data[0])
        return timezone(offset) if len(data) == 1 else timezone(offset, data[1])
    try:
        return ZoneInfo(data)
    except ZoneInfoNotFoundError:
        raise BadRecordError(
            f"cannot read a stored datetime: the time zone {data!r} is not known on this machine; install tzdata"
        ) from None
