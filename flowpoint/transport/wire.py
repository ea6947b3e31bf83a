"""The frames on a data link, and the channel they belong to.

    greeting   01, msgpack [attempt, worker]                       first on every link, from the side that opened it
    batch      02, channel, batch (`transport.batches`)            same direction
    event      03, channel, msgpack (`transport.fields`)           same direction
    grant      04, channel, batches (4 bytes), bytes (8 bytes)     the other direction

A channel is twelve bytes: edge, source subtask, target subtask, four each, big-endian. They are the key in the tables of
both ends as they stand, so that no frame's channel is ever unpacked.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, get_args

import msgpack

from flowpoint.errors import LinkLost
from flowpoint.model.elements import Event
from flowpoint.transport.fields import FieldsCodec

GREETING = 1
BATCH = 2
EVENT = 3
GRANT = 4

_CHANNEL = Struct(">III")
_GRANT = Struct(">IQ")
CHANNEL_END = 1 + _CHANNEL.size

_EVENTS: Final[FieldsCodec[Event]] = FieldsCodec(get_args(Event))
encode_event = _EVENTS.encode
decode_event = _EVENTS.decode


def channel_key(edge: int, source: int, target: int) -> bytes:
    """The bytes that stand for a channel."""
    return _CHANNEL.pack(edge, source, target)


def channel_name(key: bytes) -> str:
    """How messages call a channel."""
    edge, source, target = _CHANNEL.unpack(key)
    return f"edge {edge} from subtask {source} to subtask {target}"


def head(kind: int, channel: bytes) -> bytes:
    """What every frame of a channel begins with."""
    return bytes((kind,)) + channel


def encode_greeting(attempt: int, worker: int) -> bytes:
    """Who opened this link, and in which attempt."""
    data: bytes = msgpack.packb([attempt, worker])
    return bytes((GREETING,)) + data


def decode_greeting(frame: bytes) -> tuple[int, int]:
    """The reverse: (attempt, worker).

    Raises:
        LinkLost: the first frame of a link is no greeting.
    """
    try:
        if frame[:1] != bytes((GREETING,)):
            raise ValueError("another first byte")
        attempt, worker = msgpack.unpackb(frame[1:])
        if type(attempt) is not int or type(worker) is not int:
            raise ValueError("no two numbers")
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise LinkLost(f"it began with {frame[:40]!r} and not with the greeting of a worker ({error})") from None
    return attempt, worker


def encode_grant(batches: int, nbytes: int) -> bytes:
    """What follows the head of a grant."""
    return _GRANT.pack(batches, nbytes)


def decode_grant(frame: bytes) -> tuple[int, int]:
    """The reverse: (batches, bytes)."""
    batches, nbytes = _GRANT.unpack_from(frame, CHANNEL_END)
    return batches, nbytes
