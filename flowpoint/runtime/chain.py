"""A chain of operators as one generated loop: the record path.

Per-record work is what costs in Python, so the operators between two exchanges are compiled, once at deployment, into
one function with one loop; user functions stay a call per record, everything else is local variables and dict
accesses. A process function runs over whole batches between two such loops. When the chain ends in a single hash
exchange, dealing records out by key is part of the loop too.

A stream without event time must not pay for it, so there are two functions per loop: one over the values, and one over
values and timestamps side by side, made when the first batch with timestamps comes. Whatever comes of a record keeps
its timestamp.

Errors cost nothing until they happen: there is no try per record. When a run raises, the line number in the generated
code says which operator and which step it was, and the loop's own variables hold the record (`locate`).

Invariants: a mutable value in state is nobody else's: a first record is copied into it, and what is emitted is a copy,
since a reducer may change its accumulator in place. "No state yet" is a mark of our own: None is a value like others.

Not here: awaiting anything. Sinks and exchanges take over after `run`.
"""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from flowpoint.codec.values import IMMUTABLE
from flowpoint.errors import FlowPointError
from flowpoint.model.elements import Batch
from flowpoint.model.plan import OperatorKind
from flowpoint.runtime.failures import CHAIN_FILES, Doing, Place, explain, on_record

Run = Callable[[list[Any]], list[Any] | None]
RunTimed = Callable[[list[Any], list[int]], tuple[list[Any], list[int]] | None]

FLAT_MAPS_MAX: Final = 16
"""Each flat_map is a nested `for`, and Python nests no more than 20 blocks."""

_NOTHING: Final = object()
_CHANGES_COUNT: Final = frozenset({OperatorKind.FILTER, OperatorKind.FLAT_MAP})


class Table(Protocol):
    """The part of `state.backend.Table` that a generated loop touches."""

    dirty: dict[Any, Any]

    def load(self, key: Any, default: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class LoopOperator:
    """One operator of a generated loop. `check` refuses keys of no good type (called once per new key)."""

    uid: str
    kind: OperatorKind
    function: Any = None
    key: Callable[[Any], Any] | None = None
    key_name: str = ""
    table: Table | None = None
    check: Callable[[Any], Any] | None = None
    copy: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True)
class HashEmit:
    """Deal records out by key, inside the loop.

    `targets` caches key -> index, `miss` computes it, `buffers` take the records, and `stamps` their timestamps when
    they have some. Whoever sends a buffer puts an empty one in its place, and never lets records with timestamps and
    without wait together.
    """

    uid: str
    key: Callable[[Any], Any]
    key_name: str
    targets: dict[Any, int]
    miss: Callable[[Any], int]
    buffers: list[list[Any]]
    stamps: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stamps.extend([] for _ in self.buffers[len(self.stamps) :])


@dataclass(frozen=True, slots=True)
class _Step:
    """What a line of generated code does, and which variables hold its record and its result."""

    place: Place
    record: str
    result: str = ""


class _Source:
    """The generated function under construction: constants, what is bound once per batch, and the loop's body."""

    def __init__(self, timed: bool) -> None:
        self.timed = timed
        self.names: dict[str, Any] = {}
        self.head: list[str] = []
        self.body: list[str] = []
        self.steps: list[_Step | None] = []
        self.depth = 2
        self.variable = "v0"

    def constant(self, name: str, value: Any) -> None:
        """Make `value` a local variable of the loop."""
        if f"_{name}" not in self.names:
            self.names[f"_{name}"] = value
            self.head.append(f"{name} = _{name}")

    def put(self, text: str, step: _Step | None = None, deeper: int = 0) -> None:
        """One line of the loop's body."""
        self.body.append("    " * (self.depth + deeper) + text)
        self.steps.append(step)

    def text(self, returns: str) -> tuple[str, dict[int, _Step]]:
        """The whole source, and the meaning of its lines by number."""
        lines = [f"def make({', '.join(self.names)}):"]
        lines.append("  def run(values, stamps):" if self.timed else "  def run(values):")
        lines += ["    " + line for line in self.head]
        lines.append("    for v0, at in zip(values, stamps):" if self.timed else "    for v0 in values:")
        first = len(lines) + 1
        lines += self.body
        lines += [f"    return {returns}", "  return run"]
        return "\n".join(lines), {first + i: step for i, step in enumerate(self.steps) if step is not None}


class Loop:
    """A compiled loop: `run(values)`, or `run_timed(values, timestamps)`; `apply` looks which.

    They return what is to go on, or None when the records went into hash buffers.
    """

    def __init__(self, operators: Sequence[LoopOperator], emit: HashEmit | None = None) -> None:
        self._operators = tuple(operators)
        self._emit = emit
        self._steps: dict[str, dict[int, _Step]] = {}
        # As many records out as in: their timestamps stay what they are.
        self._is_one_to_one = emit is None and not any(op.kind in _CHANGES_COUNT for op in operators)
        self.run: Run = self._compile(timed=False)
        self._timed: RunTimed | None = None

    def run_timed(self, values: list[Any], stamps: list[int]) -> tuple[list[Any], list[int]] | None:
        """The same over values with timestamps; returns values and timestamps."""
        if self._is_one_to_one:
            return self.run(values) or [], stamps
        if self._timed is None:
            self._timed = self._compile(timed=True)
        return self._timed(values, stamps)

    def apply(self, batch: Batch) -> Batch | None:
        """Run over a batch."""
        if batch.timestamps is None:
            values = self.run(batch.values)
            return None if values is None else Batch(values)
        emitted = self.run_timed(batch.values, batch.timestamps)
        return None if emitted is None else Batch(*emitted)

    def _compile(self, *, timed: bool) -> Any:
        source = _Source(timed)
        if self._emit is None:
            source.head += ["out = []", "append = out.append"]
            if timed:
                source.head += ["out_stamps = []", "append_stamp = out_stamps.append"]
        for position, op in enumerate(self._operators):
            _put_operator(source, position, op)
        _put_emit(source, self._emit)
        returns = "None" if self._emit is not None else "out, out_stamps" if timed else "out"
        text, steps = source.text(returns)
        # A name that is unique per loop, so that `linecache` shows the right source in a traceback.
        uids = "+".join(op.uid for op in self._operators)
        filename = f"{CHAIN_FILES} {uids} {id(self):x}{' timed' if timed else ''}>"
        self._steps[filename] = steps
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        scope: dict[str, Any] = {}
        exec(compile(text, filename, "exec"), scope)
        return scope["make"](**source.names)

    def close(self) -> None:
        """Forget the source text kept for tracebacks."""
        for filename in self._steps:
            linecache.cache.pop(filename, None)

    def locate(self, error: BaseException) -> FlowPointError | None:
        """What went wrong, in the user's words; None when the error did not come out of this loop."""
        for frame, number in traceback.walk_tb(error.__traceback__):
            step = self._steps.get(frame.f_code.co_filename, {}).get(number)
            if step is not None:
                variables = frame.f_locals
                return explain(step.place, error, on_record(variables.get(step.record)), variables.get(step.result))
        return None


def _put_operator(source: _Source, position: int, op: LoopOperator) -> None:
    """Append the code of one operator; its output is `source.variable` afterwards."""
    before, after = source.variable, f"v{position + 1}"
    step = _Step(Place(op.uid, op.kind.value, Doing.FUNCTION), before)
    if op.function is not None and op.kind is not OperatorKind.AGGREGATE:
        source.constant(f"f{position}", op.function)
    if op.kind is OperatorKind.MAP:
        source.put(f"{after} = f{position}({before})", step)
    elif op.kind is OperatorKind.FILTER:
        source.put(f"if not f{position}({before}):", step)
        source.put("continue", deeper=1)
        return
    elif op.kind is OperatorKind.FLAT_MAP:
        result = f"r{position}"
        source.put(f"{result} = f{position}({before})", step)
        walk = _Step(Place(op.uid, op.kind.value, Doing.RESULT), before, result)
        source.put(f"for {after} in {result}:", walk)
        source.depth += 1
    else:
        _put_keyed(source, position, op)
    source.variable = after


def _put_keyed(source: _Source, i: int, op: LoopOperator) -> None:
    """count, sum, reduce and their like: one dict access to read, one to write; a miss goes to the state backend."""
    assert op.key is not None, op
    assert op.table is not None, op
    record = source.variable
    source.constant("nothing", _NOTHING)
    source.constant(f"key{i}", op.key)
    source.constant(f"check{i}", op.check)
    source.names[f"table{i}"] = op.table
    # A freeze replaces the dict, so it is looked up once per batch.
    source.head += [f"dirty{i} = table{i}.dirty", f"get{i} = dirty{i}.get", f"load{i} = table{i}.load"]
    key, state, function = (
        _Step(Place(op.uid, op.kind.value, doing, op.key_name), record, result)
        for doing, result in ((Doing.KEY, ""), (Doing.STATE, f"k{i}"), (Doing.FUNCTION, ""))
    )
    first, more = _accumulation(source, i, op)
    source.put(f"k{i} = key{i}({record})", key)
    source.put(f"s{i} = get{i}(k{i}, nothing)", state)
    source.put(f"if s{i} is nothing:")
    source.put(f"s{i} = load{i}(k{i}, nothing)", state, deeper=1)
    source.put(f"if s{i} is nothing:", deeper=1)
    source.put(f"check{i}(k{i})", state, deeper=2)
    source.put(f"s{i} = {first}", function, deeper=2)
    source.put("else:", deeper=1)
    source.put(f"s{i} = {more}", function, deeper=2)
    source.put("else:")
    source.put(f"s{i} = {more}", function, deeper=1)
    source.put(f"dirty{i}[k{i}] = s{i}", state)
    if op.kind is OperatorKind.AGGREGATE:
        source.put(f"s{i} = result{i}(s{i})", function)
    if op.kind is not OperatorKind.COUNT:
        source.put(f"if type(s{i}) not in immutable:")
        source.put(f"s{i} = copy{i}(s{i})", state, deeper=1)
    source.put(f"v{i + 1} = (k{i}, s{i})")


def _accumulation(source: _Source, i: int, op: LoopOperator) -> tuple[str, str]:
    """Expressions for the first accumulator of a key and for the following ones."""
    record = source.variable
    if op.kind is OperatorKind.COUNT:
        return "1", f"s{i} + 1"
    assert op.copy is not None, op
    source.constant("immutable", IMMUTABLE)
    source.constant(f"copy{i}", op.copy)
    own = f"{record} if type({record}) in immutable else copy{i}({record})"
    match op.kind:
        case OperatorKind.SUM:
            added = record if op.function is None else f"f{i}({record})"
            return added, f"s{i} + {added}"
        case OperatorKind.MIN | OperatorKind.MAX:
            sign = "<" if op.kind is OperatorKind.MIN else ">"
            seen = own if op.function is None else f"f{i}({record})"
            return seen, f"x{i} if (x{i} := {seen}) {sign} s{i} else s{i}"
        case OperatorKind.AGGREGATE:
            for name in ("create", "add", "result"):
                source.constant(f"{name}{i}", getattr(op.function, name))
            return f"add{i}(create{i}(), {record})", f"add{i}(s{i}, {record})"
        case _:
            assert op.kind is OperatorKind.REDUCE, op
            return own, f"f{i}(s{i}, {record})"


def _put_emit(source: _Source, emit: HashEmit | None) -> None:
    """The end of the loop body: into the output list, or into the buffer of the key's owner."""
    record = source.variable
    if emit is None:
        source.put(f"append({record})")
        if source.timed:
            source.put("append_stamp(at)")
        return
    key, state = (
        _Step(Place(emit.uid, "key_by", doing, emit.key_name), record, result)
        for doing, result in ((Doing.KEY, ""), (Doing.STATE, "k"))
    )
    source.constant("key_of", emit.key)
    source.constant("miss", emit.miss)
    source.names |= {"targets": emit.targets, "buffers": emit.buffers}
    source.head += ["target_of = targets.get", "appends = [buffer.append for buffer in buffers]"]
    source.put(f"k = key_of({record})", key)
    source.put("t = target_of(k)", state)
    source.put("if t is None:")
    source.put("t = miss(k)", state, deeper=1)
    source.put(f"appends[t]({record})")
    if source.timed:
        source.names["stamps_of"] = emit.stamps
        source.head.append("append_stamps = [buffer.append for buffer in stamps_of]")
        source.put("append_stamps[t](at)")
