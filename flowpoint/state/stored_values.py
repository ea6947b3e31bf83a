"""Values as they are stored, apart from the classes that the job has now; and the ways back to instances.

    StoredCodec     what names a class is read as `RawObject` or `RawEnum`: nothing is lost that the class no longer has
    EvolvingCodec   instances at once, also of a class whose fields have changed since; notes what it met
    KeyCodec        keys: a class among them must be as it was, since equal keys must stay equal bytes
    revived         stored values to instances of the classes that the job declares
    plain           stored values to what a migration is given: dicts of fields, names of members

Invariant: a field that a class no longer has is left out only with a note; one that may have been renamed is refused.

Not here: values whose type the job declares (`conversion.py`).
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, Final

from flowpoint.codec.arrays import make_array
from flowpoint.codec.raw import RawCodec, RawEnum, RawObject, bare_name
from flowpoint.codec.registry import PYDANTIC_REST, Shape, TypeRegistry, decode_enum
from flowpoint.codec.values import IMMUTABLE, Codec, ExtensionCode
from flowpoint.errors import BadRecordError

Convert = Callable[[Any], Any]

_SEQUENCES: Final = frozenset({list, tuple, set, frozenset})


class StoredCodec(RawCodec):
    """Reads instances as what their bytes say; numpy values, which need no class of the job, as themselves."""

    def __init__(self) -> None:
        super().__init__(None)
        self._makers[ExtensionCode.ARRAY] = lambda data: make_array(*self._unpack(data))


class KeyCodec(Codec):
    """A codec for stored keys."""

    def _make_object(self, name: str, fields: list[str], values: list[Any]) -> Any:
        return self.object_maker(name, tuple(fields))(tuple(values))

    def object_maker(self, name: str, fields: tuple[str, ...]) -> Callable[[tuple[Any, ...]], Any]:
        """See `Codec`."""
        shape = self.shape_named(name)
        if fields != shape.fields:
            raise BadRecordError(
                f"the key type has changed: {bare_name(name)} is stored with the fields {', '.join(fields)}, and the "
                f"job's has {', '.join(shape.fields)}; keys cannot change: give this class its fields back"
            )
        return shape.make


class EvolvingCodec(Codec):
    """A codec for values of states whose type the job does not declare. Fields are known by their names alone.

    Attributes:
        notes: what was done to fields, each once, in the order in which it was met.
    """

    def __init__(self, registry: TypeRegistry) -> None:
        super().__init__(registry)
        self.notes: dict[str, None] = {}
        self._arrangers: dict[tuple[type, tuple[str, ...]], Convert] = {}

    def _make_object(self, name: str, fields: list[str], values: list[Any]) -> Any:
        return self.object_maker(name, tuple(fields))(tuple(values))

    def object_maker(self, name: str, fields: tuple[str, ...]) -> Callable[[tuple[Any, ...]], Any]:
        """See `Codec`."""
        shape = self.shape_named(name)
        if fields == shape.fields and shape.settle is None:
            return shape.make
        maker = self._arrangers.get((shape.cls, fields))
        if maker is None:
            maker = self._arrangers[shape.cls, fields] = self._maker(shape, fields)
        return maker

    def _maker(self, shape: Shape, fields: tuple[str, ...]) -> Convert:
        arrange = _arranged(shape, fields, self.notes)
        settle = shape.settle
        if settle is None:
            return lambda values: shape.make(arrange(values))
        return lambda values: shape.make(settle(arrange(values), self.note))

    def note(self, text: str) -> None:
        """Say something once."""
        self.notes[text] = None

    def revived(self, value: Any) -> Any:
        """A value as `StoredCodec` reads it, with instances in place of what stands for them."""
        tp = type(value)
        if tp in IMMUTABLE:
            return value
        if tp is RawObject:
            return self.object_maker(value.name, value.fields)(tuple(map(self.revived, value.values)))
        if tp is RawEnum:
            return decode_enum(self.registry.resolve(value.name), value.member)
        return _rebuilt(value, self.revived, self.revived)


def plain(value: Any) -> Any:
    """What a migration is given: an instance becomes a dict of its fields, a member of an Enum its name.

    Instances that are keys of a dict or in a set stay as they are stored, since a dict cannot stand there.
    """
    tp = type(value)
    if tp in IMMUTABLE:
        return value
    if tp is RawObject:
        return {name: plain(each) for name, each in value.items() if name != PYDANTIC_REST}
    if tp is RawEnum:
        return value.member
    return _rebuilt(value, plain, _plain_key)


def _plain_key(value: Any) -> Any:
    return value.member if type(value) is RawEnum else value


def _rebuilt(value: Any, inner: Convert, key: Convert) -> Any:
    """A container with its elements converted: by `key` where they must have a hash, else by `inner`."""
    tp: Any = type(value)
    if tp in _SEQUENCES:
        return tp(map(key if tp in (set, frozenset) else inner, value))
    if tp is deque:
        return deque(map(inner, value), value.maxlen)
    if tp in (dict, OrderedDict, Counter, defaultdict):
        items = {key(k): inner(v) for k, v in value.items()}
        return tp(value.default_factory, items) if tp is defaultdict else tp(items)
    return value


def _arranged(shape: Shape, fields: tuple[str, ...], notes: dict[str, None]) -> Callable[[tuple[Any, ...]], Any]:
    """How values of `fields` become those of the class now; says in `notes` what that changes."""
    removed = [name for name in fields if name not in shape.fields]
    added = [name for name in shape.fields if name not in fields]
    name = shape.cls.__qualname__
    if removed and added:
        raise BadRecordError(
            f"cannot read a stored {name}: its field {removed[0]!r} is gone and its field {added[0]!r} is new, which may "
            f"be one field with another name; declare the type of the state, give it a version=2, and say what becomes "
            f"of the old value with migrate={{1: function}}"
        )
    arrange = shape.arrange(fields, may_drop=True)
    notes.update((f"the field {each!r} of {name} was added and has its default", None) for each in added)
    notes.update(
        (f"the field {each!r} of {name} was removed, and what it held is left behind", None) for each in removed
    )
    if not removed and not added and fields != shape.fields:
        notes[f"the fields of {name} are in another order"] = None
    return arrange
