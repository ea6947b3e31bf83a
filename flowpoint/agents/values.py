"""Values stored once: small ones inside the envelope, large ones by their content, long lists in shared pieces.

A value becomes a `Ref`: its own bytes, or [BLOB, key], or [LIST, depth, keys]. Keys are names of content within one
thread, so the same value of two checkpoints, or of a checkpoint and a pending write, is one entry.

A long list is cut into leaves of some elements, where the elements themselves tell, not their positions: what is added
or taken away at one place changes the leaves there and no others. Names of leaves that are too many are cut into nodes
in the same way, and so on.

Invariants: `load(save(v)) == v`. An entry never changes; what `save` names is stored before the commit that names it.
Not here: how a value becomes bytes (`serde`), when entries go (`retention`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Protocol
from zlib import crc32

import msgpack

from flowpoint.agents.kv import Kv, part
from flowpoint.agents.packing import Packers
from flowpoint.errors import DamagedStoreError

Ref = Any
"""bytes, or [BLOB, key], or [LIST, depth, keys in one]. As msgpack gives it back."""

Raw = bytes | list[bytes]
"""An encoded value; of a long list, its encoded elements."""

BLOB: Final = 1
LIST: Final = 2

NONE: Final = b"\xc0"
"""What msgpack makes of None."""

_KEY_BYTES: Final = 16
_LEAF_COUNTS: Final = 4  # a leaf has at most so many times the average of elements
_NODE_MASK: Final = 31
_NODE_COUNT_MAX: Final = 128
_ROOT_COUNT_MAX: Final = 64
_DEPTH_MAX: Final = 8
_UNFOLDED_MIN: Final = 1 << 20
_UNFOLDED_TIMES: Final = 16
"""How far a list that repeats itself is folded: to a 16th, or from any size up to 1 MiB. Bytes that were made to unfold
without end are refused by the same rule."""


@dataclass(frozen=True, slots=True)
class Leaves:
    """How long lists are cut. Never to change for a store: what was cut otherwise shares nothing."""

    elements: int
    """How many elements a leaf has on average; a power of two."""
    alone: int
    """An element of so many bytes ends its leaf: rewriting it with its neighbours would cost more."""


class ValueSerde(Protocol):
    """Values to bytes and back, strict about types.

    A list's bytes are msgpack's array of those of its elements, and those of None are `NONE`.
    """

    def encode(self, value: Any, *, thread: str, channel: str) -> bytes:
        """The bytes; an error that names channel and type when they cannot be made."""

    def decode(self, data: bytes, *, thread: str, channel: str) -> Any:
        """The value; an error that names thread and channel when its type is not known."""

    def decode_old(self, data: bytes, *, thread: str, channel: str) -> Any:
        """The value, with stand-ins for instances of classes that are gone: a migration will convert them."""

    def with_types(self, types: Iterable[Any]) -> ValueSerde:
        """One that knows these classes too."""


class Naming(Protocol):
    """The part of a sealer that values need."""

    def seal(self, data: bytes, place: bytes) -> bytes: ...
    def open(self, data: bytes, place: bytes, where: str) -> bytes: ...
    def content_key(self, data: bytes, thread: str) -> str: ...


class Values:
    """Saves and loads values of all threads of one store."""

    def __init__(self, kv: Kv, serde: ValueSerde, sealer: Naming | None, leaves: Leaves) -> None:
        self._leaves = leaves
        self._kv = kv
        self._serde = serde
        self._sealer = sealer
        self._pack = Packers().pack

    def with_types(self, types: Iterable[Any]) -> Values:
        """The same store, read and written by one who knows these classes too."""
        return self.with_serde(self._serde.with_types(types))

    @property
    def serde(self) -> ValueSerde:
        """What turns values into bytes."""
        return self._serde

    def with_serde(self, serde: ValueSerde) -> Values:
        """The same store, read and written with another serde."""
        return Values(self._kv, serde, self._sealer, self._leaves)

    # ------------------------------------------------------------------ saving

    def save(self, thread: str, channel: str, value: Any, inline_max: int, out: dict[bytes, bytes]) -> Ref:
        """The ref of a value. What has to be stored for it is added to `out`: key -> content, for `missing`."""
        if value is None:  # of what most channels hold that lead from node to node
            return NONE
        data = self._serde.encode(value, thread=thread, channel=channel)
        return data if len(data) <= inline_max else self._save_apart(thread, value, data, out)

    def save_all(
        self,
        thread: str,
        values: Mapping[str, Any],
        changed: Container[str],
        changed_max: int,
        kept_max: int,
        out: dict[bytes, bytes],
    ) -> dict[str, Ref]:
        """The refs of the values of channels, as `save` makes each: spelt out, as every step of a graph has a few."""
        refs: dict[str, Ref] = {}
        encode = self._serde.encode
        for channel, value in values.items():
            if value is None:
                refs[channel] = NONE
                continue
            data = encode(value, thread=thread, channel=channel)
            if len(data) > (changed_max if channel in changed else kept_max):
                refs[channel] = self._save_apart(thread, value, data, out)
            else:
                refs[channel] = data
        return refs

    def _save_apart(self, thread: str, value: Any, data: bytes, out: dict[bytes, bytes]) -> Ref:
        if type(value) is list and len(value) > 1:
            return self._save_list(thread, split_list(data), out)
        return [BLOB, self._named(thread, data, out)]

    def save_raw(self, thread: str, data: Raw, inline_max: int, out: dict[bytes, bytes]) -> Ref:
        """As `save`, of a value that is encoded already."""
        if isinstance(data, list):
            return self._save_list(thread, data, out)
        return data if len(data) <= inline_max else [BLOB, self._named(thread, data, out)]

    def missing(self, thread: str, out: dict[bytes, bytes]) -> list[tuple[str, bytes]]:
        """The entries to write for `out`: those that are not stored yet. To be asked in a section of the thread."""
        if not out:
            return []
        there, blobs = [], []
        for key, data in out.items():
            name = blob_name(thread, key)
            if self._kv.has(name):
                there.append(name)
            else:
                blobs.append((name, self._sealed(thread, key, data)))
        if there:
            self._kv.settle(there, sync=False)
        return blobs

    def _save_list(self, thread: str, elements: list[bytes], out: dict[bytes, bytes]) -> Ref:
        parts: dict[bytes, bytes] = {}
        unfolding = _Unfolding()

        def named(data: bytes) -> bytes:
            key = self._named(thread, data, parts)
            unfolding.add(key, data)
            return key

        keys = [named(self._pack(leaf)) for leaf in _cut(elements, self._leaves)]
        depth = 0
        while len(keys) > _ROOT_COUNT_MAX and depth < _DEPTH_MAX:
            keys = [named(b"".join(node)) for node in _nodes(keys)]
            depth += 1
        if unfolding.is_too_far:
            return [BLOB, self._named(thread, join_list(elements), out)]
        out |= parts
        return [LIST, depth, b"".join(keys)]

    def _named(self, thread: str, data: bytes, out: dict[bytes, bytes]) -> bytes:
        if self._sealer is None:
            key = sha256(data).digest()[:_KEY_BYTES]
        else:
            key = bytes.fromhex(self._sealer.content_key(data, thread))[:_KEY_BYTES]
        out[key] = data
        return key

    def _sealed(self, thread: str, key: bytes, data: bytes) -> bytes:
        return data if self._sealer is None else self._sealer.seal(data, _place(thread, key))

    # ------------------------------------------------------------------ loading

    def load(self, thread: str, channel: str, ref: Ref) -> Any:
        """The value of a ref.

        Raises:
            DamagedStoreError: an entry is missing or damaged.
        """
        return self._load(thread, channel, ref, self._serde.decode)

    def load_old(self, thread: str, channel: str, ref: Ref) -> Any:
        """As `load`, for a value that the schema is going to bring up to date."""
        return self._load(thread, channel, ref, self._serde.decode_old)

    def _load(self, thread: str, channel: str, ref: Ref, decode: Callable[..., Any]) -> Any:
        if type(ref) is bytes:
            return decode(ref, thread=thread, channel=channel)
        if ref[0] == BLOB:
            return decode(self._content(thread, ref[1]), thread=thread, channel=channel)
        return decode(join_list(list(self._elements(thread, ref))), thread=thread, channel=channel)

    def raw(self, thread: str, ref: Ref) -> Raw:
        """The bytes of a value, as `save_raw` takes them."""
        if type(ref) is bytes:
            return ref
        if ref[0] == BLOB:
            return self._proved(thread, ref[1])
        return list(self._elements(thread, ref))

    def _elements(self, thread: str, ref: Ref) -> Iterator[bytes]:
        for key, depth, content in self._walk(thread, ref):
            if depth == 0:
                yield from _leaf(thread, key, content)

    def _walk(self, thread: str, ref: Ref) -> Iterator[tuple[bytes, int, bytes]]:
        """Every key below a list's ref, with its depth and content; leaves have depth 0, and come in order."""
        _, top, roots = ref
        unfolding = _Unfolding()
        waiting = [(key, top) for key in reversed(_keys_in(roots))]
        while waiting:
            key, depth = waiting.pop()
            content = self._content(thread, key)
            unfolding.add(key, content)
            if unfolding.is_too_far:
                raise _damaged(thread, key, "a list that repeats itself more than any that is written")
            yield key, depth, content
            if depth:
                if len(content) % _KEY_BYTES:
                    raise _damaged(thread, key, "names that are none")
                waiting += [(below, depth - 1) for below in reversed(_keys_in(content))]

    def _content(self, thread: str, key: bytes) -> bytes:
        data = self._kv.get(blob_name(thread, key))
        if data is None:
            raise _damaged(thread, key, "it is missing")
        if self._sealer is None:
            return data
        return self._sealer.open(data, _place(thread, key), f"entry {key.hex()} of thread {thread!r}")

    def _proved(self, thread: str, key: bytes) -> bytes:
        """A content that nobody decodes, so that nothing else would tell that it is not the one it is named by."""
        content = self._content(thread, key)
        if self._sealer is None and sha256(content).digest()[:_KEY_BYTES] != key:
            raise _damaged(thread, key, "it is not what it is named by")
        return content

    # ------------------------------------------------------------------ keeping and copying

    def keys(self, thread: str, ref: Ref) -> Iterator[bytes]:
        """The keys of all entries that a ref needs."""
        if type(ref) is bytes:
            return
        if ref[0] == BLOB:
            yield ref[1]
        else:
            for key, _depth, _content in self._walk(thread, ref):
                yield key

    def copy(self, source: str, target: str, ref: Ref, out: dict[bytes, bytes]) -> Ref:
        """The ref of the same value in another thread, without decoding it. `out` is as in `save`."""
        if type(ref) is bytes:
            return ref
        if ref[0] == BLOB:
            return [BLOB, self._named(target, self._proved(source, ref[1]), out)]
        return self._save_list(target, list(self._elements(source, ref)), out)


class _Unfolding:
    """How much the parts of a list take, counting each as often as it occurs, and each once."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._once = 0
        self._all = 0

    def add(self, key: bytes, content: bytes) -> None:
        """One more part."""
        size = _KEY_BYTES + len(content)
        self._all += size
        if key not in self._seen:
            self._seen.add(key)
            self._once += size

    @property
    def is_too_far(self) -> bool:
        """Whether a list of these parts is not stored in parts."""
        return self._all > max(_UNFOLDED_MIN, _UNFOLDED_TIMES * self._once)


def is_ref(ref: Any) -> bool:
    """Whether unpacked bytes are a ref, as far as can be told from it alone."""
    if type(ref) is bytes:
        return True
    match ref:
        case [int(kind), bytes(key)] if kind == BLOB:
            return len(key) == _KEY_BYTES
        case [int(kind), int(depth), bytes(keys)] if kind == LIST:
            return 0 <= depth <= _DEPTH_MAX and len(keys) % _KEY_BYTES == 0
    return False


def _keys_in(joined: bytes) -> list[bytes]:
    return [joined[start : start + _KEY_BYTES] for start in range(0, len(joined), _KEY_BYTES)]


def _leaf(thread: str, key: bytes, content: bytes) -> list[bytes]:
    try:
        leaf = msgpack.unpackb(content)
    except (ValueError, msgpack.UnpackException) as error:
        raise _damaged(thread, key, str(error) or type(error).__name__) from error
    if not (type(leaf) is list and all(type(element) is bytes for element in leaf)):
        raise _damaged(thread, key, "a part of a list that is none")
    return leaf


def split_list(data: bytes) -> list[bytes]:
    """The encoded elements of an encoded list."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(data))
    unpacker.feed(data)
    count = unpacker.read_array_header()
    elements, start = [], unpacker.tell()
    for _ in range(count):
        unpacker.skip()
        end = unpacker.tell()
        elements.append(data[start:end])
        start = end
    return elements


def join_list(elements: list[bytes]) -> bytes:
    """The encoded list of encoded elements."""
    header: bytes = msgpack.Packer().pack_array_header(len(elements))
    return b"".join([header, *elements])


def blob_name(thread: str, key: bytes) -> str:
    """The name of a content in a thread."""
    return f"t/{part(thread)}/b/{key.hex()}"


def _place(thread: str, key: bytes) -> bytes:
    return b"\x00".join((b"blob", thread.encode("utf-8", "surrogatepass"), key))


def _cut(elements: list[bytes], rule: Leaves) -> Iterator[list[bytes]]:
    mask, alone, count_max = rule.elements - 1, rule.alone, rule.elements * _LEAF_COUNTS
    leaf: list[bytes] = []
    for element in elements:
        leaf.append(element)
        if crc32(element) & mask == 0 or len(element) >= alone or len(leaf) >= count_max:
            yield leaf
            leaf = []
    if leaf:
        yield leaf


def _nodes(keys: list[bytes]) -> Iterator[list[bytes]]:
    node: list[bytes] = []
    for key in keys:
        node.append(key)
        if key[-1] & _NODE_MASK == 0 or len(node) >= _NODE_COUNT_MAX:
            yield node
            node = []
    if node:
        yield node


def _damaged(thread: str, key: bytes, seen: str) -> DamagedStoreError:
    return DamagedStoreError(
        f"cannot read a value of thread {thread!r}: entry {key.hex()} is damaged ({seen}); restore the store"
    )
