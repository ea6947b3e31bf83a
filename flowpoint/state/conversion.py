"""From values of one schema to values of another: what may become what by itself, and the function that does it.

Two schemas are walked through together once; that yields a function for the values, notes for the person on what it
does, and problems where it cannot be done. The function takes values as `StoredCodec` reads them and gives instances.

    done by itself     a field added that has a default, removed, in another place; int to float; a union with more members
    refused            everything else: a field of another type, another class, a field that may have been renamed

A field that is gone beside a new one that could hold its values may be one field under a new name: nobody guesses.

Invariants: what did not change is not looked at, so a value that never was of its declared type stays as it is unless
that very type changes. None at the top of a value stays None. Nothing is left behind without a note.

Not here: versions and migrations (`evolution.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from flowpoint.codec.raw import RawEnum, RawObject, bare_name
from flowpoint.codec.registry import PYDANTIC_REST, shape_of
from flowpoint.codec.shortened import shortened
from flowpoint.state.heads import MADE_OF, has_classes, head_of, head_of_value, looks_above, members
from flowpoint.state.schema import CLASSES, RECORDS, FieldSchema, Form, TypeSchema
from flowpoint.state.stored_values import Convert


class Misfit(Exception):
    """A value that is not what it must be; `where` names the field ("" for the value itself)."""

    def __init__(self, where: str, seen: str, wanted: str) -> None:
        super().__init__(f"{where or 'the value'} is {seen}, and {wanted} is wanted")


@dataclass(frozen=True, slots=True)
class Problem:
    """What cannot become what. `where` names the field, "" for the value itself."""

    where: str
    stored: str
    wanted: str
    reason: str = ""

    def __str__(self) -> str:
        if self.reason:
            return self.reason
        what = f"the field {self.where!r}" if self.where else "it"
        return f"{what} is stored as {self.stored}, and the job wants {self.wanted}"


@dataclass(slots=True)
class Conversions:
    """Makes conversions; collects what there is to say about them.

    revive: stored values to instances of the classes that the job declares (`EvolvingCodec.revived`).
    is_migrated: values come out of a migration, so that dicts may stand for records, and nothing may be left over.
    """

    revive: Convert
    is_migrated: bool = False
    notes: dict[str, None] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    _records: dict[str, Convert] = field(default_factory=dict)

    def note(self, text: str) -> None:
        """Say something once; nothing of what a migration does: its author knows."""
        if not self.is_migrated:
            self.notes[text] = None

    # ------------------------------------------------------------------ from one schema to another

    def pair(self, stored: TypeSchema, wanted: TypeSchema, where: str = "") -> Convert:
        """The function from values of `stored` to values of `wanted`."""
        if wanted.is_any:
            return self.revive
        if stored == wanted and not looks_above(stored):
            return self.revive if has_classes(stored) else _unchanged
        if stored.is_any:
            return self.fit(wanted, where)
        if (stored.name, wanted.name) == ("int", "float"):
            self.note(f"{_named(where)} was widened from int to float")
            return _widened
        if Form.UNION in (stored.form, wanted.form):
            return self._pair_unions(stored, wanted, where)
        if stored.form is not wanted.form or stored.name != wanted.name:
            return self._refuse(stored, wanted, where)
        match wanted.form:
            case Form.ABOVE:
                return self._above(wanted.name)
            case Form.ENUM:
                return self._pair_enums(stored, wanted, where)
            case form if form in RECORDS:
                return self._pair_records(stored, wanted, where)
            case Form.SET | Form.FROZENSET:
                return self._refuse(stored, wanted, where)
            case Form.PLAIN:
                return self._refuse(stored, wanted, where)
            case _:
                return self._pair_containers(stored, wanted, where)

    def _refuse(self, stored: TypeSchema, wanted: TypeSchema, where: str) -> Convert:
        self.problems.append(Problem(where, str(stored), str(wanted)))
        return self.revive

    def _pair_containers(self, stored: TypeSchema, wanted: TypeSchema, where: str) -> Convert:
        if len(stored.args) != len(wanted.args) or (wanted.form is Form.DICT and stored.args[0] != wanted.args[0]):
            return self._refuse(stored, wanted, where)
        inner = [
            self.pair(a, b, _inside(where, position, wanted))
            for position, (a, b) in enumerate(zip(stored.args, wanted.args, strict=True))
        ]
        return _container(wanted, inner, where)

    def _pair_enums(self, stored: TypeSchema, wanted: TypeSchema, where: str) -> Convert:
        gone = [member for member in stored.members if member not in wanted.members]
        if gone:
            self.note(f"{wanted.name} no longer has the members {', '.join(gone)}; a value that is one is refused")
        return self.revive

    def _pair_unions(self, stored: TypeSchema, wanted: TypeSchema, where: str) -> Convert:
        arms: dict[str, Convert] = {}
        wanted_by_head = {head_of(arm): arm for arm in members(wanted)}
        for arm in members(stored):
            head = head_of(arm)
            target = wanted_by_head.get(head) or (wanted_by_head.get("float") if head == "int" else None)
            if target is None:
                return self._refuse(stored, wanted, where)
            arms[head] = self.pair(arm, target, where)
        if set(arms) != set(wanted_by_head):
            self.note(f"{_named(where)} was widened from {stored} to {wanted}")

        def convert(value: Any) -> Any:
            arm = arms.get(head_of_value(value))
            if arm is None:
                raise Misfit(where, shortened(value), str(stored))
            return arm(value)

        return convert

    def _pair_records(self, stored: TypeSchema, wanted: TypeSchema, where: str) -> Convert:
        before = {each.name: each for each in stored.fields}
        removed = [each for each in stored.fields if wanted.field_named(each.name) is None]
        added = [each for each in wanted.fields if each.name not in before]
        self._compare_names(stored, wanted, removed, added, where)
        converters = {
            each.name: self.pair(before[each.name].type, each.type, _at(where, each.name))
            for each in wanted.fields
            if each.name in before
        }
        if wanted.form is Form.MODEL:
            # What was an extra value may be a field now.
            converters |= {each.name: self.fit(each.type, _at(where, each.name)) for each in added}
        make = self._maker(wanted)
        fields = [(each, converters.get(each.name)) for each in wanted.fields]

        def convert(value: Any) -> Any:
            named = _fields_of(value, wanted, where)
            values: dict[str, Any] = {}
            for each, inner in fields:
                if inner is not None and each.name in named:
                    value = named[each.name]
                    values[each.name] = value if inner is _unchanged else inner(value)
                elif each.default is not None:
                    values[each.name] = each.default()
                elif not each.has_default:
                    raise Misfit(_at(where, each.name), "not there", str(each.type))
            return make(values, named)

        self._records[wanted.name] = convert
        return convert

    def _compare_names(
        self,
        stored: TypeSchema,
        wanted: TypeSchema,
        removed: list[FieldSchema],
        added: list[FieldSchema],
        where: str,
    ) -> None:
        may_be_renamed: list[FieldSchema] = []
        for new in added:
            path = _at(where, new.name)
            renamed = next((old for old in removed if self._may_hold(old.type, new.type)), None)
            if renamed is not None:
                old_path = _at(where, renamed.name)
                reason = (
                    f"the field {old_path!r} (stored as {renamed.type}) is gone and the field {path!r} (wanted as "
                    f"{new.type}) is new, which may be one field with another name"
                )
                self.problems.append(Problem(path, str(renamed.type), str(new.type), reason))
                may_be_renamed.append(renamed)
            elif not new.has_default:
                reason = f"the field {path!r} is not stored, and the job wants {new.type} and gives it no default"
                self.problems.append(Problem(path, "nothing", str(new.type), reason))
            else:
                self.note(f"the field {path!r} was added and has its default")
        for old in removed:
            if old not in may_be_renamed:
                self.note(
                    f"the field {_at(where, old.name)!r} was removed, and what it held ({old.type}) is left behind"
                )
        kept = [each.name for each in stored.fields if each not in removed]
        if kept != [each.name for each in wanted.fields if each.name in set(kept)]:
            self.note(f"the fields of {wanted} are in another order")

    def _may_hold(self, stored: TypeSchema, wanted: TypeSchema) -> bool:
        """Whether values of one could go on as values of the other."""
        trial = Conversions(self.revive)
        trial._records = dict(self._records)
        trial.pair(stored, wanted)
        return not trial.problems

    def _above(self, name: str) -> Convert:
        """The function of a record for a value inside of it; looked up when it is needed, as it is still being made."""
        records = self._records

        def convert(value: Any) -> Any:
            return records[name](value)

        return convert

    # ------------------------------------------------------------------ from anything to a schema

    def fit(self, wanted: TypeSchema, where: str = "") -> Convert:
        """The function from values of which nothing is known to values of `wanted`; it looks at all of each."""
        match wanted.form:
            case Form.ANY:
                return self.revive
            case Form.PLAIN:
                return self._fit_plain(wanted, where)
            case Form.ENUM:
                return self._fit_enum(wanted, where)
            case Form.UNION:
                return self._fit_union(wanted, where)
            case Form.ABOVE:
                return self._above(wanted.name)
            case form if form in RECORDS:
                return self._fit_record(wanted, where)
            case _:
                inner = [self.fit(arg, _inside(where, at, wanted)) for at, arg in enumerate(wanted.args)]
                return _container(wanted, inner, where)

    def _fit_plain(self, wanted: TypeSchema, where: str) -> Convert:
        name = wanted.name

        def convert(value: Any) -> Any:
            if head_of_value(value) == name:
                return value
            if name == "float" and type(value) is int:
                self.note(f"{_named(where)} was widened from int to float")
                return float(value)
            raise Misfit(where, f"{head_of_value(value)} {shortened(value)}", name)

        return convert

    def _fit_enum(self, wanted: TypeSchema, where: str) -> Convert:
        cls = wanted.cls
        assert cls is not None and issubclass(cls, Enum), wanted

        def convert(value: Any) -> Any:
            if isinstance(value, cls):
                return value
            if type(value) is RawEnum and bare_name(value.name) == wanted.name:
                return self.revive(value)
            if self.is_migrated and isinstance(value, str) and value in cls.__members__:
                return cls[value]
            raise Misfit(where, shortened(value), f"a member of {wanted.name}")

        return convert

    def _fit_union(self, wanted: TypeSchema, where: str) -> Convert:
        arms = {head_of(arm): self.fit(arm, where) for arm in wanted.args}
        # A migration gives dicts for records.
        for_dicts = [arms[head_of(arm)] for arm in wanted.args if arm.form in CLASSES]

        def convert(value: Any) -> Any:
            head = head_of_value(value)
            arm = arms.get(head) or (arms.get("float") if head == "int" else None)
            if arm is None and head == "dict" and len(for_dicts) == 1:
                arm = for_dicts[0]
            if arm is None:
                raise Misfit(where, f"{head} {shortened(value)}", str(wanted))
            return arm(value)

        return convert

    def _fit_record(self, wanted: TypeSchema, where: str) -> Convert:
        make = self._maker(wanted)
        fields = [(each, self.fit(each.type, _at(where, each.name))) for each in wanted.fields]
        known = {each.name for each in wanted.fields} | {PYDANTIC_REST}

        def convert(value: Any) -> Any:
            if wanted.cls is not None and isinstance(value, wanted.cls):
                return value
            named = _fields_of(value, wanted, where, or_dict=self.is_migrated)
            unknown = [name for name in named if name not in known]
            missing = [each.name for each, _ in fields if each.name not in named]
            if unknown and (missing or self.is_migrated):
                raise Misfit(_at(where, unknown[0]), "a field", f"{wanted}, which has none of this name,")
            for name in unknown:
                self.note(f"the field {_at(where, name)!r} was removed, and what it held is left behind")
            values: dict[str, Any] = {}
            for each, inner in fields:
                if each.name in named:
                    values[each.name] = inner(named[each.name])
                elif each.default is not None:
                    values[each.name] = each.default()
                    self.note(f"the field {_at(where, each.name)!r} was added and has its default")
                elif not each.has_default:
                    raise Misfit(_at(where, each.name), "not there", str(each.type))
            return make(values, named)

        self._records[wanted.name] = convert
        return convert

    def _maker(self, wanted: TypeSchema) -> Callable[[Mapping[str, Any], Mapping[str, Any]], Any]:
        """The function from converted fields, and from all that were stored, to a record."""
        if wanted.cls is None:
            return lambda values, _: dict(values)
        shape = shape_of(wanted.cls)
        assert shape is not None, wanted
        settle = shape.settle
        if settle is None:
            return lambda values, _: shape.make(tuple([values[name] for name in shape.fields]))

        def make(values: Mapping[str, Any], stored: Mapping[str, Any]) -> Any:
            extra, were_set, private = self.revive(stored.get(PYDANTIC_REST)) or (None, sorted(stored), None)
            kept = {name: value for name, value in (extra or {}).items() if name not in values}
            own = (values[name] for name in shape.fields if name != PYDANTIC_REST)
            return shape.make(settle((*own, (kept, were_set, private)), self.note))

        return make


def _unchanged(value: Any) -> Any:
    return value


def _widened(value: Any) -> Any:
    return float(value) if type(value) is int else value


def _container(wanted: TypeSchema, inner: list[Convert], where: str) -> Convert:
    """The function for the elements of a container."""
    cls = MADE_OF[wanted.form]

    def check(value: Any) -> None:
        if type(value) is not cls or (wanted.form is Form.TUPLE and len(value) != len(inner)):  # type: ignore[arg-type]
            raise Misfit(where, f"{head_of_value(value)} {shortened(value)}", str(wanted))

    def of_dict(value: Any) -> Any:
        check(value)
        key, held = inner
        return {key(k): held(v) for k, v in value.items()}

    def of_tuple(value: Any) -> Any:
        check(value)
        return tuple([convert(each) for convert, each in zip(inner, value, strict=True)])

    def of_elements(value: Any) -> Any:
        check(value)
        return cls(map(inner[0], value))

    return {Form.DICT: of_dict, Form.TUPLE: of_tuple}.get(wanted.form, of_elements)


def _fields_of(value: Any, wanted: TypeSchema, where: str, *, or_dict: bool = False) -> dict[str, Any]:
    """The named fields of a stored record."""
    if wanted.form is Form.FIELDS or (or_dict and type(value) is dict):
        if type(value) is dict:
            return value
    elif type(value) is RawObject and bare_name(value.name) == wanted.name:
        named = dict(value.items())
        extra = (named.get(PYDANTIC_REST) or (None,))[0] or {}
        return named | {name: each for name, each in extra.items() if wanted.field_named(name) is not None}
    raise Misfit(where, f"{head_of_value(value)} {shortened(value)}", str(wanted))


def _at(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _inside(where: str, position: int, container: TypeSchema) -> str:
    return f"{where}[{position}]" if container.form is Form.TUPLE else f"{where}[]"


def _named(where: str) -> str:
    return f"the field {where!r}" if where else "it"
