"""Control messages to bytes and back: any dataclass of `model.messages`, by name and fields.

Control has links of its own (worker <-> coordinator), so it never queues behind records (rule 13).
"""

from __future__ import annotations

from typing import Final, get_args

from flowpoint.model.messages import Message
from flowpoint.transport.fields import FieldsCodec

_MESSAGES: Final[FieldsCodec[Message]] = FieldsCodec(get_args(Message))


def encode_message(message: Message) -> bytes:
    """As one frame.

    Raises:
        InternalError: a field holds what msgpack cannot carry.

    Example:
        >>> from flowpoint.model.messages import Start
        >>> decode_message(encode_message(Start(attempt=3)))
        Start(attempt=3)
    """
    return _MESSAGES.encode(message)


def decode_message(frame: bytes) -> Message:
    """The reverse of `encode_message`. Tuples come back as lists.

    Raises:
        InternalError: it is no message of this version of FlowPoint.
    """
    return _MESSAGES.decode(frame)
