"""A codec for tests of the transport: plain msgpack. The real one is `codec.values.Codec`."""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped]

from flowpoint.errors import BadRecordError


class StandInCodec:
    def encode_column(self, values: list[Any]) -> bytes:
        try:
            data: bytes = msgpack.packb(values)
        except TypeError as error:
            raise BadRecordError(str(error)) from error
        return data

    def decode_column(self, data: bytes) -> list[Any]:
        if b"poison" in data:
            raise BadRecordError("this column cannot be decoded")
        values: list[Any] = msgpack.unpackb(data)
        return values
