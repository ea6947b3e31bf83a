"""Frames in a stream of bytes: four bytes of length (big-endian), then that many bytes.

Sans-I/O: `FrameDecoder.feed` takes whatever a socket gave and returns the frames that are complete by now. Chunks of an
incomplete frame are kept as they came and joined once, when the frame's last byte is there, so that a big frame costs
one copy however many reads it took.

Invariants: the frames returned, in order, are exactly those written; never more than one incomplete frame is held.
Not here: sockets (`host.links`), and what a frame means (`transport`).
"""

from __future__ import annotations

from struct import Struct

from flowpoint.errors import LinkLost

FRAME_BYTES_MAX = 256 * 1024 * 1024
"""No frame is longer. A length above it means that the other end does not speak this protocol."""

_LENGTH = Struct(">I")
HEADER_BYTES = _LENGTH.size

pack_length = _LENGTH.pack


class FrameDecoder:
    """Cuts a stream of bytes into frames."""

    __slots__ = ("_chunks", "_held", "_wanted")

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._held = 0
        self._wanted = HEADER_BYTES

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes.

        Raises:
            LinkLost: a frame longer than `FRAME_BYTES_MAX` is announced; the stream cannot be followed any further.

        Example:
            >>> decoder = FrameDecoder()
            >>> decoder.feed(b"\\x00\\x00\\x00\\x02a"), decoder.feed(b"b\\x00")
            ([], [b'ab'])
        """
        if self._chunks:
            self._chunks.append(data)
            self._held += len(data)
            if self._held < self._wanted:
                return []
            data = b"".join(self._chunks)
            self._chunks.clear()
        return self._cut(data)

    @property
    def is_between_frames(self) -> bool:
        """Whether the stream may end here without tearing a frame."""
        return not self._chunks

    def _cut(self, data: bytes) -> list[bytes]:
        frames: list[bytes] = []
        at, size = 0, len(data)
        while size - at >= HEADER_BYTES:
            (length,) = _LENGTH.unpack_from(data, at)
            if length > FRAME_BYTES_MAX:
                raise LinkLost(
                    f"cannot follow a link: a frame of {length} bytes was announced and the limit is {FRAME_BYTES_MAX}; "
                    "the other end is not FlowPoint or has a bug"
                )
            end = at + HEADER_BYTES + length
            if end > size:
                self._keep(data[at:], HEADER_BYTES + length)
                return frames
            frames.append(data[at + HEADER_BYTES : end])
            at = end
        if at < size:
            self._keep(data[at:], HEADER_BYTES)
        return frames

    def _keep(self, rest: bytes, wanted: int) -> None:
        self._chunks.append(rest)
        self._held, self._wanted = len(rest), wanted
