"""Msgpack for what savers write beside values: envelopes, heads, parts of lists.

A packer is kept and used again, since each new one takes a buffer of a megabyte, several times for every step of a
graph. Safe to use from many threads: a packer is in one pair of hands at a time.

Texts may hold lone surrogates, which hardly any do: what lets a packer write these makes it several times slower for
all texts, so that it is used only for what a strict one has refused.

Not here: values of channels, whose types are checked (`serde`).
"""

from __future__ import annotations

from typing import Any

import msgpack


class Packers:
    """Packs plain values: texts, which may hold lone surrogates, numbers, bytes, lists and dicts."""

    def __init__(self) -> None:
        self._idle: list[msgpack.Packer] = []

    def pack(self, value: Any) -> bytes:
        """The bytes of a value.

        Raises:
            TypeError, ValueError, OverflowError: it holds something else, or is nested too deep.
        """
        try:
            packer = self._idle.pop()
        except IndexError:
            packer = msgpack.Packer()
        try:
            data: bytes = packer.pack(value)
        except UnicodeEncodeError:
            return _packed_with_surrogates(value)
        # One that has failed is not kept: what it holds by then is nobody's.
        self._idle.append(packer)
        return data

    def pack_pair(self, first: Any, second: bytes) -> bytes:
        """The bytes of a list of two: the bytes of the first value, and the second.

        Raises:
            TypeError, ValueError, OverflowError: as `pack`.
        """
        try:
            packer = self._idle.pop()
        except IndexError:
            packer = msgpack.Packer()
        try:
            data: bytes = packer.pack([packer.pack(first), second])
        except UnicodeEncodeError:
            return _packed_with_surrogates([_packed_with_surrogates(first), second])
        self._idle.append(packer)
        return data


def _packed_with_surrogates(value: Any) -> bytes:
    data: bytes = msgpack.packb(value, unicode_errors="surrogatepass")
    return data
