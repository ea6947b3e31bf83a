"""`flowpoint inspect`: what is in a checkpoint or savepoint, down to the value of one key.

How it works: without options all operators with their states and source positions; `--operator` one of them whole;
`--state` a state with its first entries; `--key` what is stored for one key, in one state or in all.

Not here: reading state (`flowpoint.snapshot`), checking every byte (`cli.verify`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import click

from flowpoint import snapshot as snapshots
from flowpoint.cli import completion, output
from flowpoint.errors import NotFoundError, UsageError
from flowpoint.model.elements import WATERMARK_MAX
from flowpoint.snapshot.key_text import find_by_text
from flowpoint.snapshot.keyed_state import Found, KeyedState
from flowpoint.snapshot.opened import Operator, Snapshot, SourceSplit, nearest
from flowpoint.snapshot.value_text import json_of, printable, text_of, type_of, types_of

_ROWS_SHOWN: Final = 20
_WIDTH: Final = 100
_COUNTED_MAX: Final = 50_000
_MOMENT_MAX: Final = 32_503_680_000_000
"""The year 3000, in epoch ms: what is later is no moment but a number."""


@click.command(name="inspect", short_help="Show what is in a checkpoint or savepoint.")
@output.snapshot_argument
@click.option("--operator", "uid", metavar="UID", shell_complete=completion.operators, help="Only this operator.")
@click.option(
    "--state",
    "name",
    metavar="NAME",
    shell_complete=completion.states,
    help="Only this state, with its first entries.",
)
@click.option("--key", metavar="KEY", help="What is stored for this key: text, a number, or JSON for a tuple.")
@output.json_option
def command(snapshot: str, uid: str | None, name: str | None, key: str | None, as_json: bool) -> None:
    """Show what is in a checkpoint or savepoint, without running anything of its job."""
    opened = snapshots.open(snapshot)
    operators = [opened.operator(uid)] if uid is not None else list(opened.operators.values())
    if key is not None:
        _show_key(_states(operators, name, uid), key, as_json=as_json, is_one=uid is not None and name is not None)
    elif name is not None:
        _show_state(*_only(_states(operators, name, uid), name), as_json=as_json)
    elif as_json:
        output.print_json(_snapshot_data(opened, operators))
    else:
        _show_snapshot(opened, operators, is_one=uid is not None)


# ---------------------------------------------------------------------- the whole


def _snapshot_data(opened: Snapshot, operators: Iterable[Operator]) -> dict[str, Any]:
    manifest = opened.manifest
    return {
        "path": opened.path,
        "kind": opened.kind,
        "job": opened.job,
        "id": opened.id,
        "parent": opened.parent,
        "attempt": manifest.attempt,
        "lineage": manifest.lineage,
        "created": opened.created,
        "finished": manifest.finished,
        "drained": manifest.drained,
        "max_parallelism": opened.max_parallelism,
        "bytes": opened.bytes,
        "origin": manifest.origin,
        "operators": [_operator_data(operator) for operator in operators],
    }


def _operator_data(operator: Operator) -> dict[str, Any]:
    return {
        "uid": operator.uid,
        "name": operator.name,
        "kind": operator.kind,
        "parallelism": operator.parallelism,
        "bytes": operator.bytes,
        "states": [_state_data(state) for state in _all_states(operator)],
        "watermarks": operator.watermarks,
        "splits": [
            {
                "id": split.id,
                "subtask": split.subtask,
                "position": split.position,
                "ended": split.ended,
                "data": split.data,
            }
            for split in operator.splits
        ],
        "committables": operator.committables,
    }


def _state_data(state: KeyedState) -> dict[str, Any]:
    return {
        "name": state.name,
        "kind": state.kind,
        "schema": state.schema,
        "entries": state.stored_entries,
        "exact": state.is_exact,
        "bytes": state.bytes,
    }


def _show_snapshot(opened: Snapshot, operators: list[Operator], *, is_one: bool) -> None:
    manifest = opened.manifest
    finished = ", all input read" if manifest.finished else ", drained" if manifest.drained else ""
    click.echo(f"{opened.kind} {opened.id} of job {printable(opened.job)}, attempt {manifest.attempt}{finished}")
    click.echo(f"  taken   {output.moment(opened.created)}, after {opened.parent or 'none before it'}")
    click.echo(f"  size    {output.size(opened.bytes)}; {opened.max_parallelism} key groups")
    click.echo(f"  path    {opened.path}")
    if manifest.origin:
        click.echo(
            f"  made of {manifest.origin.get('kind')} {manifest.origin.get('id')}: {manifest.origin.get('path')}"
        )
        for change in manifest.origin.get("changes", ()):
            click.echo(f"          {printable(str(change))}")
    click.echo()
    output.print_table(
        ("OPERATOR", "WHAT", "SUBTASKS", "STATE", "KIND", "ENTRIES", "SIZE"),
        [row for operator in operators for row in _operator_rows(operator)],
        right=frozenset({"SUBTASKS", "ENTRIES", "SIZE"}),
    )
    _show_watermarks(operators)
    _show_splits(operators, limit=None if is_one else _ROWS_SHOWN)
    _show_committables(operators)


def _operator_rows(operator: Operator) -> Iterator[tuple[str, ...]]:
    """A row per state, the operator itself only in the first."""
    head = (printable(operator.uid), printable(operator.name), str(operator.parallelism))
    # Every keyed operator could have timers; few do.
    states = [state for state in _all_states(operator) if state.stored_entries or state.name != "__timers__"]
    if not states:
        yield (*head, "-", "-", "-", "-")
    for state in states:
        yield (*head, printable(state.name), state.kind, _entries(state), output.size(state.bytes))
        head = ("", "", "")


def _entries(state: KeyedState) -> str:
    """How many entries a state has; of a big one whose files say more, the most that it can be."""
    if state.is_exact or state.stored_entries <= _COUNTED_MAX:
        return output.count(state.count())
    return f"<= {output.count(state.stored_entries)}"


def _all_states(operator: Operator) -> list[KeyedState]:
    return [*operator.states.values(), *operator.broadcast_states.values()]


def _show_watermarks(operators: Iterable[Operator]) -> None:
    """Where event time stood: at each operator the lowest of its subtasks', which is what a rescale starts from."""
    rows = [(op.uid, seen) for op in operators if (seen := [mark for mark in op.watermarks if mark is not None])]
    if rows:
        click.echo()
        output.print_table(
            ("OPERATOR", "WATERMARK", "HIGHEST"),
            [(printable(uid), _event_time(min(seen)), _event_time(max(seen))) for uid, seen in rows],
        )


def _event_time(watermark: int) -> str:
    if watermark >= WATERMARK_MAX:
        return "the end of time"
    return f"{watermark} ({output.moment(watermark)})" if 0 <= watermark <= _MOMENT_MAX else str(watermark)


def _show_splits(operators: Iterable[Operator], *, limit: int | None) -> None:
    rows: list[tuple[str, SourceSplit]] = [(op.uid, split) for op in operators for split in op.splits]
    if not rows:
        return
    click.echo()
    output.print_table(
        ("SOURCE", "SPLIT", "POSITION", "READ"),
        [
            (printable(uid), printable(split.id), _position(split.position), "to its end" if split.ended else "in part")
            for uid, split in rows[:limit]
        ],
    )
    if limit is not None and len(rows) > limit:
        click.echo(f"... {len(rows) - limit} more; --operator UID shows all of one source")


def _position(position: Any) -> str:
    return "at its beginning" if position is None else json.dumps(position)


def _show_committables(operators: Iterable[Operator]) -> None:
    rows = [(op.uid, committable) for op in operators for committable in op.committables]
    if rows:
        click.echo()
        output.print_table(
            ("SINK", "CHECKPOINT", "PREPARED"),
            [(printable(uid), str(c.get("checkpoint")), _prepared(c.get("data"))) for uid, c in rows[:_ROWS_SHOWN]],
        )
        if len(rows) > _ROWS_SHOWN:
            click.echo(f"... {len(rows) - _ROWS_SHOWN} more; --json shows all")


def _prepared(data: Any) -> str:
    """What a sink has noted of output that waits for its commit, whatever that is: one thing after the other."""
    if isinstance(data, dict):
        return ", ".join(f"{printable(str(name))} {_prepared(value)}" for name, value in data.items())
    if isinstance(data, list):
        return "; ".join(map(_prepared, data)) or "nothing"
    return printable(data) if isinstance(data, str) else json.dumps(data)


# ---------------------------------------------------------------------- a state, a key


def _states(operators: list[Operator], name: str | None, uid: str | None) -> list[tuple[str, KeyedState]]:
    """(uid, state) of the states that are meant."""
    if uid is not None and name is not None:
        broadcast = operators[0].broadcast_states.get(name)
        return [(uid, operators[0].state(name) if broadcast is None else broadcast)]
    states = [(op.uid, state) for op in operators for state in _all_states(op) if name in (None, state.name)]
    if not states:
        known = [state.name for op in operators for state in _all_states(op)]
        raise NotFoundError(f"no operator has a state {name or ''!r}{nearest(name or '', known)}")
    return states


def _only(states: list[tuple[str, KeyedState]], name: str) -> tuple[str, KeyedState]:
    if len(states) > 1:
        raise UsageError(
            f"state {name!r} is ambiguous: the operators {', '.join(uid for uid, _ in states)} have one; "
            "name one of them with --operator"
        )
    return states[0]


def _show_state(uid: str, state: KeyedState, *, as_json: bool) -> None:
    count = state.count()
    first = list(islice(state.items(), _ROWS_SHOWN))
    if as_json:
        entries = [_entry_data(key, value) for key, value in first]
        output.print_json({"operator": uid, **_state_data(state), "entries": count, "exact": True, "first": entries})
        return
    click.echo(
        f"{printable(state.name)}: {state.kind} state of operator {printable(uid)}, {output.count(count)} entries, "
        f"{output.size(state.bytes)}"
    )
    if first:
        keys, values = (types_of(entry[at] for entry in first) for at in (0, 1))
        click.echo(f"keys: {keys}, values: {values}\n")
    for key, value in first:
        click.echo(f"{text_of(key, limit=_WIDTH)}  ->  {text_of(value, limit=_WIDTH)}")
    if len(first) == _ROWS_SHOWN:
        click.echo("...; --key KEY shows one of them")


def _entry_data(key: Any, value: Any) -> dict[str, Any]:
    return {"key": json_of(key), "key_type": type_of(key), "value": json_of(value), "type": type_of(value)}


def _show_key(states: list[tuple[str, KeyedState]], key: str, *, as_json: bool, is_one: bool) -> None:
    if len(states) == 1:
        uid, state = states[0]
        hits = [(uid, state, find_by_text(state, key, _where(uid, state)))]
    else:
        hits = list(_look_everywhere(states, key))
    if as_json:
        data = [{"operator": uid, "state": s.name, "kind": s.kind, **_entry_data(f.key, f.value)} for uid, s, f in hits]
        output.print_json(data[0] if is_one else data)
        return
    if is_one:
        click.echo(text_of(hits[0][2].value))
        return
    for uid, state, found in hits:
        click.echo(f"{printable(uid)}/{printable(state.name)}: {text_of(found.value)}")


def _look_everywhere(states: list[tuple[str, KeyedState]], key: str) -> Iterator[tuple[str, KeyedState, Found]]:
    """The states that have a key; NotFoundError when none has."""
    missing: NotFoundError | None = None
    is_anywhere = False
    for uid, state in states:
        try:
            found = find_by_text(state, key, _where(uid, state))
        except NotFoundError as error:
            missing = missing or error
            continue
        is_anywhere = True
        yield uid, state, found
    if missing is not None and not is_anywhere:
        raise NotFoundError(f"no state has the key {key!r} ({missing})")


def _where(uid: str, state: KeyedState) -> str:
    return f"state {state.name!r} of operator {uid!r}"
