"""Values of an agent's channels to bytes and back: what goes in comes back, and nothing else comes back.

The bytes are those of FlowPoint's codec, with a few more types that agents use: paths, addresses, patterns, time zones,
secrets of pydantic, and what LangGraph itself stores (Send, Interrupt, Command, Overwrite, messages of LangChain).

A class is found by its name among the declared ones only: `types=` of the saver and the annotations of the graph. Bytes
that name another class are refused, by `decode` with an error that names thread and channel; `decode_old`, for what an
older version of the code stored, puts a `StoredObject` in its place, which a migration may convert.

Invariants: nothing is imported or called because some bytes name it; what `encode` accepts, `decode` gives back; safe
to use from many threads. Not here: encryption (`encryption.py`), where bytes are kept (the savers).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from datetime import timedelta, timezone
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgpack
from langgraph.checkpoint.serde.types import ERROR, _DeltaSnapshot
from langgraph.types import Command, Interrupt, Overwrite, PregelTask, Send, StateSnapshot, TimeoutPolicy

from flowpoint.agents.encryption import SEALED
from flowpoint.agents.stored import StoredObject
from flowpoint.agents.types import classes_in, with_named_classes
from flowpoint.agents.values import ValueSerde
from flowpoint.codec.registry import PYDANTIC_REST, Shape, TypeRegistry
from flowpoint.codec.values import Codec, refuse_mistaken
from flowpoint.errors import BadRecordError, SealError, UnknownTypeError

__all__ = ["StrictSerde", "TypedSerde", "framework_types"]


class StrictSerde:
    """The serde of every saver here.

    The bytes of a list are msgpack's header of an array and then the bytes of its elements: savers cut and join them.

    Example:
        >>> serde = StrictSerde()
        >>> serde.decode(serde.encode((1, {2}), thread="t", channel="c"), thread="t", channel="c")
        (1, {2})
    """

    def __init__(self, types: Iterable[Any] = ()) -> None:
        """`types`: classes, annotations, or (module, name) as LangGraph's allow lists have them."""
        self._types = tuple(with_named_classes(types))
        self._registry = TypeRegistry(classes_in((*framework_types(), *self._types)), with_modules=True)
        # LangGraph begins several threads in every run: codecs of their own would be made anew each time.
        self._idle: dict[bool, list[AgentCodec]] = {False: [], True: []}

    def with_types(self, types: Iterable[Any]) -> StrictSerde:
        """A serde that knows these classes too; this one does not change."""
        added = [tp for tp in with_named_classes(types) if not any(tp is known for known in self._types)]
        return StrictSerde((*self._types, *added)) if added else self

    def encode(self, value: Any, *, thread: str, channel: str) -> bytes:
        """The bytes of a value.

        The error of a failed task is kept as its text, as LangGraph's own savers keep it.

        Raises:
            UnknownTypeError: it holds an instance of a class that is not declared.
            BadRecordError: it holds something that cannot be saved.
        """
        if channel == ERROR and isinstance(value, BaseException):
            value = repr(value)
        try:
            codec = self._idle[False].pop()  # as `_codec` does it, which is one call more for every value
        except IndexError:
            codec = self._codec(lenient=False)
        try:
            return codec.encode(value)
        except UnknownTypeError as error:
            raise UnknownTypeError(
                f"cannot save channel {channel!r} of thread {thread!r}: its value holds an instance of "
                f"{error.type_name}, which is not declared; give the saver types=types_of(builder) and use the class in an "
                f"annotation of the graph's state, or list it in `types`",
                error.type_name,
            ) from None
        except BadRecordError as error:
            raise BadRecordError(f"cannot save channel {channel!r} of thread {thread!r}: {error}") from None
        except Exception as error:  # a class whose fields cannot be read
            raise BadRecordError(
                f"cannot save channel {channel!r} of thread {thread!r}: reading its value of type "
                f"{type(value).__qualname__} failed with {type(error).__name__}: {error}"
            ) from error
        finally:
            self._idle[False].append(codec)

    def decode(self, data: bytes, *, thread: str, channel: str) -> Any:
        """The value that `encode` was given. The bytes stay where they are, whatever happens.

        Raises:
            UnknownTypeError: they name a class that is not declared.
            SealError: they are encrypted.
            BadRecordError: they are damaged, or of a class that has lost or gained fields.
        """
        return self._decode(data, thread, channel, lenient=False)

    def decode_old(self, data: bytes, *, thread: str, channel: str) -> Any:
        """As `decode`, but an instance of a class that is gone or has changed becomes a `StoredObject`."""
        return self._decode(data, thread, channel, lenient=True)

    def _decode(self, data: bytes, thread: str, channel: str, *, lenient: bool) -> Any:
        if data[:1] == SEALED:
            raise SealError(
                f"cannot read channel {channel!r} of thread {thread!r}: it is encrypted; open the saver with its `keys`"
            )
        codec = self._codec(lenient=lenient)
        try:
            return codec.decode(data)
        except UnknownTypeError as error:
            raise UnknownTypeError(
                f"cannot read channel {channel!r} of thread {thread!r}: its value holds an instance of "
                f"{error.type_name}, which is not declared; declare the class again (in an annotation of the graph's state "
                "or in `types` of the saver), or convert the channel in a migration; what is stored stays as it is",
                error.type_name,
            ) from None
        except BadRecordError as error:
            raise BadRecordError(
                f"cannot read channel {channel!r} of thread {thread!r}: {error}; what is stored stays as it is"
            ) from error
        finally:
            self._idle[lenient].append(codec)

    def _codec(self, *, lenient: bool) -> AgentCodec:
        """One that nobody else has; to be put back when it is done."""
        try:
            return self._idle[lenient].pop()
        except IndexError:
            return AgentCodec(self._registry, lenient=lenient)


class TypedSerde:
    """A serde as LangGraph's protocol has it, for who asks a saver for its `serde`. Values stand in no thread there."""

    KIND: Final = "flowpoint"

    def __init__(self, serde: ValueSerde) -> None:
        self._serde = serde

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """The kind of the bytes, and the bytes. See `StrictSerde.encode`."""
        return self.KIND, self._serde.encode(obj, thread="", channel="")

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """See `StrictSerde.decode`.

        Raises:
            BadRecordError: the bytes are of another kind.
        """
        kind, encoded = data
        if kind != self.KIND:
            raise BadRecordError(
                f"cannot read a value of kind {kind!r}: it is another saver's; this one has {self.KIND!r}"
            )
        return self._serde.decode(encoded, thread="", channel="")


def framework_types() -> list[Any]:
    """What LangGraph stores by itself, and the messages and documents of LangChain."""
    types: list[Any] = [Command, Interrupt, Overwrite, PregelTask, StateSnapshot, TimeoutPolicy, _DeltaSnapshot]
    try:
        from langchain_core import documents, messages
    except ImportError:
        return types
    types.append(documents.Document)
    for name in messages.__all__:
        cls = getattr(messages, name)
        if isinstance(cls, type) and issubclass(cls, messages.BaseMessage):
            types.append(cls)
    return types


_PATHS: Final[dict[str, type]] = {"here": type(Path()), "posix": PurePosixPath, "windows": PureWindowsPath}
_PATH_NAMES: Final = {cls: name for name, cls in _PATHS.items()}
_ADDRESSES: Final[dict[str, type]] = {
    cls.__name__: cls
    for cls in (
        ipaddress.IPv4Address, ipaddress.IPv4Interface, ipaddress.IPv4Network,
        ipaddress.IPv6Address, ipaddress.IPv6Interface, ipaddress.IPv6Network,
    )
}  # fmt: skip
_SECRETS: Final = ("SecretStr", "SecretBytes")


class AgentCodec(Codec):
    """FlowPoint's codec with the types that only agents use. Not to be shared between threads."""

    # Extension codes. Never to change: they stand in stored threads.
    _PATH, _ADDRESS, _PATTERN, _ZONE, _OFFSET, _SEND, _SECRET = range(64, 71)

    def __init__(self, registry: TypeRegistry, *, lenient: bool) -> None:
        super().__init__(registry)
        self._lenient = lenient
        for cls in _PATHS.values():
            self._extenders[cls] = self._extender(self._PATH, lambda v: [_PATH_NAMES[type(v)], str(v)])
        for cls in _ADDRESSES.values():
            self._extenders[cls] = self._extender(self._ADDRESS, lambda v: [type(v).__name__, str(v)])
        self._extenders[re.Pattern] = self._extender(self._PATTERN, lambda v: [v.pattern, v.flags])
        self._extenders[ZoneInfo] = self._extender(self._ZONE, lambda v: [_zone_key(v)])
        self._extenders[timezone] = self._extender(self._OFFSET, _take_offset)
        self._extenders[Send] = self._extender(self._SEND, lambda v: [v.node, v.arg, v.timeout])
        self._makers |= {
            self._PATH: lambda data: _named(_PATHS, *self._unpack(data)),
            self._ADDRESS: lambda data: _named(_ADDRESSES, *self._unpack(data)),
            self._PATTERN: lambda data: re.compile(*self._unpack(data)),
            self._ZONE: lambda data: ZoneInfo(*self._unpack(data)),
            self._OFFSET: lambda data: _make_offset(*self._unpack(data)),
            self._SEND: lambda data: _make_send(*self._unpack(data)),
            self._SECRET: lambda data: _make_secret(*self._unpack(data)),
        }

    def _extender(self, code: int, take: Callable[[Any], Any]) -> Callable[[Any], msgpack.ExtType]:
        return lambda value: self._checked(code, take(value))

    def _checked(self, code: int, taken: list[Any]) -> msgpack.ExtType:
        refuse_mistaken(taken)
        return self._nested(code, taken)

    def _extend(self, value: Any) -> msgpack.ExtType:
        cls = type(value)
        if cls.__name__ in _SECRETS and cls.__module__.partition(".")[0] == "pydantic":
            return self._checked(self._SECRET, [cls.__name__, value.get_secret_value()])
        return super()._extend(value)

    def _make_enum(self, name: str, stored: str | int) -> Any:
        try:
            return super()._make_enum(name, stored)
        except BadRecordError as error:
            if not self._lenient:
                raise
            return StoredObject(name, {"name": stored}, str(error))

    def _make_object(self, name: str, fields: list[str], values: list[Any]) -> Any:
        try:
            named = dict(zip(fields, values, strict=True))
            shape = self.shape_named(name)
            _move_to_extras(shape, named)
            return shape.rebuild(tuple(named), tuple(named.values()))
        except BadRecordError as error:
            if not self._lenient:
                raise
            shown = {field: value for field, value in zip(fields, values, strict=True) if field != PYDANTIC_REST}
            return StoredObject(name, shown, str(error))


def _move_to_extras(shape: Shape, named: dict[str, Any]) -> None:
    """Keep fields that a pydantic model with `extra="allow"` no longer has, as pydantic itself would on reading them.

    Messages of LangChain are such models, and their fields come and go with its releases.
    """
    gone = [field for field in named if field not in shape.fields]
    if gone and PYDANTIC_REST in named and getattr(shape.cls, "model_config", {}).get("extra") == "allow":
        extra, fields_set, private = named[PYDANTIC_REST]
        moved = {field: named.pop(field) for field in gone}
        named[PYDANTIC_REST] = ({**moved, **(extra or {})}, fields_set, private)


def _named(classes: dict[str, type], name: str, text: str) -> Any:
    return classes[name](text)


def _zone_key(zone: ZoneInfo) -> str:
    if zone.key is None:
        raise BadRecordError("cannot serialise a ZoneInfo without a key; make it with ZoneInfo(key)")
    return zone.key


def _take_offset(zone: timezone) -> list[Any]:
    offset = zone.utcoffset(None)
    name = zone.tzname(None)
    return [offset, None if name == timezone(offset).tzname(None) else name]


def _make_offset(offset: timedelta, name: str | None) -> timezone:
    return timezone(offset) if name is None else timezone(offset, name)


def _make_send(node: str, arg: Any, timeout: Any) -> Send:
    if type(node) is not str:
        raise ValueError("the node of a Send is not a text")
    return Send(node, arg, timeout=timeout)


def _make_secret(name: str, secret: str | bytes) -> Any:
    import pydantic

    if name not in _SECRETS:
        raise ValueError("not a secret")
    return getattr(pydantic, name)(secret)
