"""A chain of operators as one generated loop: the record path.

Per-record work is what costs in Python, so the operators between two exchanges are compiled, once at deployment, into
one function with one loop: user functions stay a call per record, everything else is local variables and dict
accesses. A `KeyedProcessFunction` runs over whole batches between two such loops. When the chain ends in a single hash
exchange, dealing records out by key is part of the loop too.

Errors cost nothing until they happen: there is no try per record. When a run raises, the line number in the generated
code says which operator and which step it was, and the loop's own variables hold the record (`locate`).

Not here: awaiting anything. Sinks and exchanges take over after `run`.
"""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from flowpoint.codec.values import IMMUTABLE
from flowpoint.errors import BadRecordError, FlowPointError, UserCodeError
from flowpoint.model.plan import OperatorKind

Run = Callable[[list[Any]], list[Any] | None]


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
    """Deal records out by key, inside the loop: `targets` caches key -> index, `miss` computes it, `buffers` take them."""

    uid: str
    key: Callable[[Any], Any]
    key_name: str
    targets: dict[Any, int]
    miss: Callable[[Any], int]
    buffers: Sequence[list[Any]]


@dataclass(frozen=True, slots=True)
class _Step:
    """What a line of generated code does, for error messages: `part` is "function", "key" or "state"."""

    uid: str
    kind: str
    part: str
    variable: str


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
        self._filename = f"<flowpoint chain {'+'.join(op.uid for op in operators)} {id(self):x}>"
        linecache.cache[self._filename] = (len(text), None, text.splitlines(keepends=True), self._filename)
        scope: dict[str, Any] = {}
        exec(compile(text, self._filename, "exec"), scope)
        self.run: Run = scope["make"](**source.names)

    def close(self) -> None:
        """Forget the source text kept for tracebacks."""
        linecache.cache.pop(self._filename, None)

    def locate(self, error: Exception) -> FlowPointError | None:
        """What went wrong, in the user's words; None when the error did not come out of this loop."""
        frames = list(traceback.walk_tb(error.__traceback__))
        for frame, number in frames:
            if frame.f_code.co_filename == self._filename and number in self._steps:
                step = self._steps[number]
                in_user_code = frames[-1][0].f_code.co_filename != self._filename
                return explain(step.uid, step.kind, error, frame.f_locals.get(step.variable), step.part, in_user_code)
        return None


def _put_operator(source: _Source, position: int, op: LoopOperator) -> None:
    """Append the code of one operator; its output is `source.variable` afterwards."""
    before, after = source.variable, f"v{position + 1}"
    step = _Step(op.uid, op.kind.value, "function", before)
    if op.function is not None:
        source.constant(f"f{position}", op.function)
    if op.kind is OperatorKind.MAP:
        source.put(f"{after} = f{position}({before})", step)
    elif op.kind is OperatorKind.FILTER:
        source.put(f"if not f{position}({before}):", step)
        source.put("continue", deeper=1)
        return
    elif op.kind is OperatorKind.FLAT_MAP:
        source.put(f"for {after} in f{position}({before}):", step)
        source.depth += 1
    else:
        _put_keyed(source, position, op)
    source.variable = after


def _put_keyed(source: _Source, i: int, op: LoopOperator) -> None:
    """count, sum and reduce: one dict access to read, one to write; a miss goes to the state backend."""
    assert op.key is not None and op.table is not None and op.check is not None
    record = source.variable
    source.constant(f"key{i}", op.key)
    source.constant(f"check{i}", op.check)
    source.names[f"table{i}"] = op.table
    # A freeze replaces the dict, so it is looked up once per batch.
    source.head += [f"dirty{i} = table{i}.dirty", f"get{i} = dirty{i}.get", f"load{i} = table{i}.load"]
    state = _Step(op.uid, op.kind.value, "state", record)
    function = _Step(op.uid, op.kind.value, "function", record)
    added = record if op.function is None else f"f{i}({record})"
    first, more = {
        OperatorKind.COUNT: ("1", f"s{i} + 1"),
        OperatorKind.SUM: (added, f"s{i} + {added}"),
        OperatorKind.REDUCE: (record, f"f{i}(s{i}, {record})"),
    }[op.kind]
    source.put(f"k{i} = key{i}({record})", _Step(op.key_name or op.uid, "key_by", "key", record))
    source.put(f"s{i} = get{i}(k{i})", state)
    source.put(f"if s{i} is None:", None)
    source.put(f"s{i} = load{i}(k{i}, None)", state, deeper=1)
    source.put(f"if s{i} is None:", None)
    source.put(f"check{i}(k{i})", state, deeper=1)
    source.put(f"s{i} = {first}", function, deeper=1)
    source.put("else:", None)
    source.put(f"s{i} = {more}", function, deeper=1)
    source.put(f"dirty{i}[k{i}] = s{i}", state)
    if op.kind is OperatorKind.REDUCE:
        # A reducer may change its accumulator in place later: what was emitted must not change with it.
        source.constant("immutable", IMMUTABLE)
        source.constant(f"copy{i}", op.copy)
        source.put(f"if type(s{i}) not in immutable:")
        source.put(f"s{i} = copy{i}(s{i})", state, deeper=1)
    source.put(f"v{i + 1} = (k{i}, s{i})")


def _put_emit(source: _Source, emit: HashEmit | None) -> None:
    """The end of the loop body: into the output list, or into the buffer of the key's owner."""
    record = source.variable
    if emit is None:
        source.put(f"append({record})")
        return
    name = emit.key_name or emit.uid
    state = _Step(name, "key_by", "state", record)
    source.constant("key_of", emit.key)
    source.constant("miss", emit.miss)
    source.names |= {"targets": emit.targets, "buffers": emit.buffers}
    source.head += ["target_of = targets.get", "appends = [buffer.append for buffer in buffers]"]
    source.put(f"k = key_of({record})", _Step(name, "key_by", "key", record))
    source.put("t = target_of(k)", state)
    source.put("if t is None:")
    source.put("t = miss(k)", state, deeper=1)
    source.put(f"appends[t]({record})")


def shorten(value: Any, limit: int = 120) -> str:
    """A value as text for a message, never longer than `limit` characters, never raising."""
    try:
        text = repr(value)
    except Exception as error:  # a user's __repr__ may do anything
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def explain(
    uid: str, kind: str, error: Exception, record: Any, part: str = "function", in_user_code: bool = True
) -> FlowPointError:
    """Turn an exception into one that names the operator, the record and what to do; the cause stays chained."""
    text = f"operator '{uid}' ({kind}) failed on record {shorten(record)}: "
    explained: FlowPointError
    if part == "state" and isinstance(error, TypeError) and "unhashable" in str(error):
        advice = "return a str, an int or a tuple of such from the key function"
        explained = BadRecordError(f"{text}the key is not hashable ({error}); {advice}")
    elif isinstance(error, FlowPointError):
        explained = type(error)(f"{text}{error}")
    elif part == "function" and not in_user_code and isinstance(error, TypeError) and "iterable" in str(error):
        explained = UserCodeError(f"{text}its function must return an iterable ({error})")
    else:
        explained = UserCodeError(f"{text}{type(error).__name__}: {error}")
    explained.__cause__ = error
    explained.operator = uid
    return explained
