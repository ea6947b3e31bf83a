"""A chain of operators as one generated loop: the record path.

Per-record work is what costs in Python, so the operators between two exchanges are compiled, once at deployment, into
one function with one loop; user functions stay a call per record, everything else is local variables and dict
accesses. A `KeyedProcessFunction` runs over whole batches between two such loops. When the chain ends in a single hash
exchange, dealing records out by key is part of the loop too.

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
from dataclasses import dataclass
from typing import Any, Final, Protocol

from flowpoint.codec.values import IMMUTABLE
from flowpoint.errors import FlowPointError
from flowpoint.model.plan import OperatorKind
from flowpoint.runtime.failures import CHAIN_FILES, Doing, Place, explain, on_record

Run = Callable[[list[Any]], list[Any] | None]

FLAT_MAPS_MAX: Final = 16
"""Each flat_map is a nested `for`, and Python nests no more than 20 blocks."""

_NOTHING: Final = object()


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

    `targets` caches key -> index, `miss` computes it, `buffers` take the records. Whoever sends a buffer puts an empty
    one in its place.
    """

    uid: str
    key: Callable[[Any], Any]
    key_name: str
    targets: dict[Any, int]
    miss: Callable[[Any], int]
    buffers: list[list[Any]]


@dataclass(frozen=True, slots=True)
class _Step:
    """What a line of generated code does, and which variables hold its record and its result."""

    place: Place
    record: str
    result: str = ""


class _Source:
    """The generated function under construction: constants, what is bound once per batch, and the loop's body."""

    def __init__(self) -> None:
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
        lines = [f"def make({', '.join(self.names)}):", "  def run(values):"]
        lines += ["    " + line for line in self.head]
        lines.append("    for v0 in values:")
        first = len(lines) + 1
        lines += self.body
        lines += [f"    return {returns}", "  return run"]
        return "\n".join(lines), {first + i: step for i, step in enumerate(self.steps) if step is not None}


class Loop:
    """A compiled loop; call `run(values)`. Returns the output list, or None when the records went into hash buffers."""

    def __init__(self, operators: Sequence[LoopOperator], emit: HashEmit | None = None) -> None:
        source = _Source()
        if emit is None:
            source.head += ["out = []", "append = out.append"]
        for position, op in enumerate(operators):
            _put_operator(source, position, op)
        _put_emit(source, emit)
        text, self._steps = source.text(returns="out" if emit is None else "None")
        # A name that is unique per loop, so that `linecache` shows the right source in a traceback.
        self._filename = f"{CHAIN_FILES} {'+'.join(op.uid for op in operators)} {id(self):x}>"
        linecache.cache[self._filename] = (len(text), None, text.splitlines(keepends=True), self._filename)
        scope: dict[str, Any] = {}
        exec(compile(text, self._filename, "exec"), scope)
        self.run: Run = scope["make"](**source.names)

    def close(self) -> None:
        """Forget the source text kept for tracebacks."""
        linecache.cache.pop(self._filename, None)

    def locate(self, error: BaseException) -> FlowPointError | None:
        """What went wrong, in the user's words; None when the error did not come out of this loop."""
        for frame, number in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename == self._filename and number in self._steps:
                step, variables = self._steps[number], frame.f_locals
                return explain(step.place, error, on_record(variables.get(step.record)), variables.get(step.result))
        return None


def _put_operator(source: _Source, position: int, op: LoopOperator) -> None:
    """Append the code of one operator; its output is `source.variable` afterwards."""
    before, after = source.variable, f"v{position + 1}"
    step = _Step(Place(op.uid, op.kind.value, Doing.FUNCTION), before)
    if op.function is not None:
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
    """count, sum and reduce: one dict access to read, one to write; a miss goes to the state backend."""
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
        _Step(Place(op.uid, op.kind.value, doing, op.key_name), record)
        for doing in (Doing.KEY, Doing.STATE, Doing.FUNCTION)
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
    if op.kind is OperatorKind.SUM:
        added = record if op.function is None else f"f{i}({record})"
        return added, f"s{i} + {added}"
    assert op.kind is OperatorKind.REDUCE, op
    return f"{record} if type({record}) in immutable else copy{i}({record})", f"f{i}(s{i}, {record})"


def _put_emit(source: _Source, emit: HashEmit | None) -> None:
    """The end of the loop body: into the output list, or into the buffer of the key's owner."""
    record = source.variable
    if emit is None:
        source.put(f"append({record})")
        return
    key, state = (_Step(Place(emit.uid, "key_by", doing, emit.key_name), record) for doing in (Doing.KEY, Doing.STATE))
    source.constant("key_of", emit.key)
    source.constant("miss", emit.miss)
    source.names |= {"targets": emit.targets, "buffers": emit.buffers}
    source.head += ["target_of = targets.get", "appends = [buffer.append for buffer in buffers]"]
    source.put(f"k = key_of({record})", key)
    source.put("t = target_of(k)", state)
    source.put("if t is None:")
    source.put("t = miss(k)", state, deeper=1)
    source.put(f"appends[t]({record})")
