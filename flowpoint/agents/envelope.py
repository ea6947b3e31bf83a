"""What is written: commits and pending writes, as bytes and back.

An envelope is a header and a body. The header tells what the log needs, and can be read by itself; the body holds the
checkpoint. With keys the body is sealed, and the header is bound to it as associated data: neither can be changed, nor
moved to another thread, namespace, checkpoint or number. Without keys the bytes are plain msgpack.

    commit = [header, body]   header = [format, kind, number, nonce, at, thread, ns, id, parent, moves, version, extra]
                              body   = [checkpoint without values, metadata, {channel: ref}]
    writes = [header, body]   header = [format, at, thread, ns, id, task path, task id, number, version]
                              body   = [[index, channel, ref], ...]

Invariants: decoding imports nothing and calls nothing that the bytes name; what has another form than what is written
here raises DamagedStoreError, so that everybody else may rely on it.
Not here: what a ref leads to (`values`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any, Final, NamedTuple, Protocol

import msgpack

from flowpoint.agents.encryption import SEALED
from flowpoint.agents.packing import Packers
from flowpoint.agents.values import Ref, is_ref
from flowpoint.errors import BadRecordError, DamagedStoreError, SealError

FORMAT: Final = 1
PUT: Final = "put"
CUT: Final = "cut"
QUIET: Final = ["quiet"]
"""Of a put that is a part of something: it is not seen, until a cut at the end says so."""

_Fields = tuple[tuple[type, ...], ...]
_INT, _STR, _OPTIONAL, _ANY = (int,), (str,), (str, NoneType), (list, NoneType)
# Format, kind, number, nonce, at, thread, ns, id, parent, moves, version, extra.
_COMMIT_FIELDS: Final = (_INT, _STR, _INT, (bytes,), _INT, _STR, _STR, _STR, _OPTIONAL, (bool,), _INT, _ANY)
# Format, at, thread, ns, id, task path, task id, number, version.
_WRITES_FIELDS: Final = (_INT, _INT, _STR, _STR, _STR, _STR, _STR, _INT, _INT)


class Sealer(Protocol):
    """Encrypts and authenticates. `place` is bound to the bytes: they open nowhere else."""

    def seal(self, data: bytes, place: bytes) -> bytes:
        """The sealed bytes."""

    def open(self, data: bytes, place: bytes, where: str) -> bytes:
        """What was sealed, or an error that names where it is kept."""

    def content_key(self, data: bytes, thread: str) -> str:
        """The hexadecimal name of some content."""


class Header(NamedTuple):
    """What the log needs to know about a commit. Its fields are written in this order."""

    kind: str
    number: int
    nonce: bytes
    at_ms: int
    thread: str
    ns: str = ""
    id: str = ""
    parent: str | None = None
    moves: bool = True
    """Whether the head of the namespace moves here; otherwise it is a branch."""
    version: int = 0
    extra: Any = None
    """Of a cut: [numbers kept, {ns: [number, id] of the new head}, why]. Of a put: None, or QUIET."""

    @property
    def is_quiet(self) -> bool:
        """Whether this is a put that does not count until a cut names it."""
        return self.kind == PUT and self.extra is not None

    def numbered(self, number: int, moves: bool) -> Header:
        """The same for another place in the log."""
        # Spelt out: `_replace` takes ten times as long, and this is done for every commit.
        return Header(
            self.kind, number, self.nonce, self.at_ms, self.thread, self.ns, self.id, self.parent, moves, self.version,
            self.extra,
        )  # fmt: skip


class Body(NamedTuple):
    """A checkpoint as stored."""

    checkpoint: dict[str, Any]
    metadata: Any
    channels: dict[str, Ref]


class Writes(NamedTuple):
    """What one `put_writes` stored. Its fields are written in this order."""

    at_ms: int
    thread: str
    ns: str
    id: str
    task_path: str
    task_id: str
    number: int
    version: int
    items: list[tuple[int, str, Ref]]

    def moved(self, thread: str, items: list[tuple[int, str, Ref]]) -> Writes:
        """The same in another thread."""
        return self._replace(thread=thread, items=items)


class Envelopes:
    """Packs and unpacks envelopes, sealed where there is a sealer."""

    def __init__(self, sealer: Sealer | None) -> None:
        self._sealer = sealer
        self._packers = Packers()
        self._pack = self._packers.pack

    def body(self, checkpoint: Mapping[str, Any], metadata: Any, channels: Mapping[str, Ref], thread: str) -> bytes:
        """The bytes of a checkpoint.

        Raises:
            BadRecordError: the metadata holds what cannot be stored.
        """
        try:
            return self._pack([checkpoint, metadata, channels])
        except (TypeError, ValueError, OverflowError) as error:
            raise BadRecordError(
                f"cannot save checkpoint {checkpoint.get('id')} of thread {thread!r}: its metadata holds what is neither "
                f"text, number, bool, list nor dict ({error}); keep such values in the state"
            ) from error

    def commit(self, header: Header, body: bytes) -> bytes:
        """The bytes of a commit. `body` is from `body`, or empty."""
        return self._joined([FORMAT, *header], body)

    def read_commit(self, data: bytes, thread: str, number: int) -> tuple[Header, bytes]:
        """The header of a commit that was found under `number` of `thread`, and the bytes of its body.

        Raises:
            DamagedStoreError: the bytes are damaged, or belong somewhere else.
        """
        where = f"commit {number} of thread {thread!r}"
        fields, body = self._split(data, _COMMIT_FIELDS, where)
        header = Header(*fields[1:])
        if header.kind != PUT and not (header.kind == CUT and _is_cut(header.extra)):
            raise _damaged(where, f"a commit of the kind {header.kind!r}")
        if (header.number, header.thread) != (number, thread):
            raise DamagedStoreError(
                f"cannot read {where}: it is commit {header.number} of thread {header.thread!r}, moved; "
                "restore the store from a good copy"
            )
        return header, body

    def thread_of(self, data: bytes, key: str) -> str:
        """The thread that a commit under `key` says it belongs to.

        Raises:
            DamagedStoreError: the bytes are damaged.
        """
        return str(self._split(data, _COMMIT_FIELDS, key)[0][5])

    def thread_of_writes(self, data: bytes, key: str) -> str:
        """The thread that pending writes under `key` say they belong to.

        Raises:
            DamagedStoreError: the bytes are damaged.
        """
        return str(self._split(data, _WRITES_FIELDS, key)[0][2])

    def writes(self, writes: Writes) -> bytes:
        """The bytes of pending writes."""
        *head, items = writes
        return self._joined([FORMAT, *head], self._pack(items))

    def read_writes(self, data: bytes, thread: str) -> Writes:
        """Pending writes from their bytes.

        Raises:
            DamagedStoreError: the bytes are damaged, or belong to another thread.
        """
        where = f"pending writes of thread {thread!r}"
        fields, body = self._split(data, _WRITES_FIELDS, where)
        found = _unpack(body, where)
        if not (type(found) is list and all(map(_is_item, found))):
            raise _damaged(where, "no pending writes")
        items = [(index, channel, ref) for index, channel, ref in found]
        at_ms, of, ns, id_, path, task, number, version = fields[1:]
        writes = Writes(at_ms, of, ns, id_, path, task, number, version, items)
        if writes.thread != thread:
            raise DamagedStoreError(f"cannot read {where}: they are of thread {writes.thread!r}; restore the store")
        return writes

    def _joined(self, fields: list[Any], body: bytes) -> bytes:
        if self._sealer is None:
            return self._packers.pack_pair(fields, body)
        head = self._pack(fields)
        return self._pack([head, self._sealer.seal(body, head)])

    def _split(self, data: bytes, kinds: _Fields, where: str) -> tuple[list[Any], bytes]:
        both = _unpack(data, where)
        if not (isinstance(both, list) and len(both) == 2 and all(type(one) is bytes for one in both)):
            raise _damaged(where, "not an envelope")
        head, body = both
        fields = _unpack(head, where)
        if not isinstance(fields, list) or not fields:
            raise _damaged(where, "no header")
        if fields[0] != FORMAT:
            raise DamagedStoreError(
                f"cannot read {where}: it has format {fields[0]!r}, this version reads {FORMAT}; upgrade FlowPoint"
            )
        if len(fields) != len(kinds) or not all(type(one) in kind for one, kind in zip(fields, kinds, strict=True)):
            raise _damaged(where, f"a header of {len(fields)} fields that are none")
        return fields, body if self._sealer is None else self._sealer.open(body, head, where)


def read_body(data: bytes, where: str) -> Body:
    """A checkpoint from its bytes.

    Raises:
        DamagedStoreError: they are damaged.
    """
    fields = _unpack(data, where)
    if not (type(fields) is list and len(fields) == 3 and all(type(one) is dict for one in fields)):
        raise _damaged(where, "not a checkpoint")
    body = Body(*fields)
    if not _is_checkpoint(body.checkpoint):
        raise _damaged(where, "a checkpoint that is none")
    for channel, ref in body.channels.items():
        if type(channel) is not str or not is_ref(ref):
            raise _damaged(where, f"a value of channel {channel!r} that is none")
    return body


def _is_checkpoint(checkpoint: dict[Any, Any]) -> bool:
    """Whether it has what is relied upon here; the rest is LangGraph's."""
    seen, updated = checkpoint.get("versions_seen", {}), checkpoint.get("updated_channels")
    return (
        type(checkpoint.get("v", 0)) is int
        and type(checkpoint.get("channel_versions")) is dict
        and type(seen) is dict
        and all(type(table) is dict for table in seen.values())
        and (updated is None or type(updated) is list)
    )


def _is_cut(extra: Any) -> bool:
    if not (type(extra) is list and list(map(type, extra)) == [list, dict, str]):
        return False
    kept, heads, _why = extra
    return all(type(number) is int for number in kept) and all(
        type(ns) is str and type(head) is list and list(map(type, head)) == [int, str] for ns, head in heads.items()
    )


def _is_item(item: Any) -> bool:
    return type(item) is list and list(map(type, item))[:2] == [int, str] and len(item) == 3 and is_ref(item[2])


def _unpack(data: bytes, where: str) -> Any:
    if data[:1] == SEALED:
        raise SealError(f"cannot read {where}: it is encrypted; open the saver with its `keys`")
    try:
        return msgpack.unpackb(data, strict_map_key=False, unicode_errors="surrogatepass")
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise _damaged(where, str(error) or type(error).__name__) from error


def _damaged(where: str, seen: str) -> DamagedStoreError:
    return DamagedStoreError(f"cannot read {where}: its bytes are damaged ({seen}); restore the store from a good copy")
