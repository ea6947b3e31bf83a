"""The commands of `flowpoint threads` that only look: list, history, show, diff, migrate --check, export.

They do not need the store to themselves.

Not here: commands that change something (`threads_change`).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from flowpoint.cli import output
from flowpoint.cli.threads_store import (
    checkpoints_of,
    chosen,
    first_space,
    ns_option,
    opened,
    require_agents,
    some_threads,
    store_argument,
    thread_argument,
    types_option,
)
from flowpoint.errors import DamagedStoreError

if TYPE_CHECKING:
    from flowpoint.agents.entry_names import Place
    from flowpoint.agents.remembered import Head
    from flowpoint.agents.saver import CoreSaver


@click.command(name="list")
@store_argument
@output.json_option
def list_(store: str, keys: tuple[str, ...], as_json: bool) -> None:
    """Show the threads of a store.

    Those that cannot be read are named last, as an error.
    """
    with opened(store, keys) as saver:
        from flowpoint.agents.every_thread import EveryThread

        every = EveryThread("list")
        found: list[dict[str, Any]] = []
        for thread in saver.core.reader.threads(every):
            with every.passing_over(thread):
                if (row := _row(saver, thread)) is not None:
                    found.append(row)
    _print_threads(found, as_json)
    every.tell()


def _row(saver: CoreSaver, thread: str) -> dict[str, Any] | None:
    """What is shown of a thread; None when it has just been deleted."""
    spaces = saver.core.index.namespaces(thread)
    head = saver.core.reader.head_record(thread, "" if "" in spaces else spaces[0]) if spaces else None
    if head is None:
        return None
    return {
        "thread": thread,
        "checkpoints": checkpoints_of(saver, thread),
        "namespaces": len(spaces),
        "head": head.header.id,
        "step": head.metadata.get("step"),
        "written": head.header.at_ms,
    }


def _print_threads(found: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        output.print_json(found)
        return
    rows = [
        (
            t["thread"],
            str(t["checkpoints"]),
            str(t["namespaces"]),
            str(t["step"]),
            output.moment(t["written"]),
            t["head"],
        )
        for t in found
    ]
    header = ("THREAD", "CHECKPOINTS", "NAMESPACES", "STEP", "WRITTEN", "HEAD")
    output.print_table(header, rows, right=frozenset({"CHECKPOINTS", "NAMESPACES", "STEP"}))


@click.command(short_help="Show the tree of a thread's checkpoints.")
@store_argument
@thread_argument
@click.option("--limit", type=click.IntRange(1), default=None, help="Only the newest so many.")
@output.json_option
def history(store: str, keys: tuple[str, ...], thread: str, limit: int | None, as_json: bool) -> None:
    """Show the tree of a thread's checkpoints, newest first: what branches off stands indented above where it does.

    Those that cannot be read are marked as damaged, and told at the end, as an error.

    Other commands take a part of an id. Ids of one moment begin alike, so its last characters tell more.
    """
    with opened(store, keys) as saver:
        first_space(saver, thread)
        lines: list[dict[str, Any]] = []
        # Newest first, so that what was made from a checkpoint comes before it.
        parents: set[tuple[str, str | None]] = set()
        for place, head in islice(saver.core.reader.newest(thread), limit):
            line = _read_line(saver, place, head, is_taken_in=(place.ns, head.id) in parents)
            if line is not None:
                lines.append(line)
                parents.add((place.ns, line["parent"]))
    _print_history(lines, as_json)
    _tell_damaged(thread, lines)


def _print_history(lines: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        output.print_json(lines)
        return
    # Oldest first, a tree stands below its root; newest first it is the same picture upside down.
    rows = [
        (
            f"{indent}{line['id']}",
            line["parent"] or "-",
            line["ns"] or "-",
            str(line["step"]),
            str(line["source"]),
            str(line["pending"]),
            output.moment(line["written"]),
            " ".join(word for word in ("head", "branch", "damaged") if line[word]),
        )
        for indent, line in reversed(output.as_tree(list(reversed(lines)), _in_space, _parent_in_space))
    ]
    header = ("CHECKPOINT", "PARENT", "NAMESPACE", "STEP", "SOURCE", "PENDING", "WRITTEN", "")
    output.print_table(header, rows, right=frozenset({"STEP", "PENDING"}))


def _in_space(line: dict[str, Any]) -> tuple[str, str]:
    return line["ns"], line["id"]


def _parent_in_space(line: dict[str, Any]) -> tuple[str, str | None]:
    return line["ns"], line["parent"]


def _line(
    saver: CoreSaver,
    place: Place,
    id: str,
    *,
    parent: str | None = None,
    moved: bool = True,
    at_ms: int | None = None,
    metadata: Mapping[str, Any] = MappingProxyType({}),
    pending: int = 0,
    damaged: str | None = None,
) -> dict[str, Any]:
    head = saver.core.index.head(*place)
    return {
        "id": id,
        "parent": parent,
        "ns": place.ns,
        "step": metadata.get("step"),
        "source": metadata.get("source"),
        "head": head is not None and head.id == id,
        "branch": not moved,
        "pending": pending,
        "written": at_ms,
        "damaged": damaged,
    }


def _read_line(saver: CoreSaver, place: Place, head: Head, *, is_taken_in: bool) -> dict[str, Any] | None:
    """A line of a history, for which no value is read; None when the checkpoint has just been removed."""
    from flowpoint.agents.every_thread import UNREADABLE
    from flowpoint.agents.kv import Section, part

    reader = saver.core.reader
    with saver.core.kv.section(part(place.thread), Section.READ):
        try:
            record = reader.indexed(place, head)
            if record is None:
                return None
            pending = 0 if is_taken_in else len(reader.pending(place, head.id))
        except UNREADABLE as error:
            return _line(saver, place, head.id, damaged=str(error))
        header = record.header
        return _line(
            saver,
            place,
            head.id,
            parent=header.parent,
            moved=header.moves,
            at_ms=header.at_ms,
            metadata=record.metadata,
            pending=pending,
        )


def _tell_damaged(thread: str, lines: list[dict[str, Any]]) -> None:
    damaged = [line for line in lines if line["damaged"]]
    if damaged:
        raise DamagedStoreError(
            f"cannot read {len(damaged)} of the {len(lines)} checkpoints of thread {thread!r}: {damaged[0]['damaged']}"
        )


@click.command(short_help="Show what a thread holds.")
@store_argument
@thread_argument
@click.option(
    "--at",
    default=None,
    metavar="ID",
    help="Which checkpoint; the beginning or end of its id will do. The head otherwise.",
)
@ns_option
@output.json_option
def show(store: str, keys: tuple[str, ...], thread: str, at: str | None, ns: str, as_json: bool) -> None:
    """Show the values and the metadata of a checkpoint, and what its tasks have written."""
    with opened(store, keys) as saver:
        from flowpoint.agents.shell import found, is_taken_in, plain

        saved = found(saver.core, thread, ns, at)
        data = _line(
            saver,
            saved.place,
            saved.id,
            parent=saved.parent,
            moved=saved.moved,
            at_ms=saved.at_ms,
            metadata=saved.metadata,
            pending=0 if is_taken_in(saver.core, saved) else len(saved.writes),
        ) | {
            "values": plain(saved.values),
            "metadata": plain(saved.metadata),
            "writes": [[w.task_id, w.channel, plain(w.value)] for w in saved.writes],
        }
    if as_json:
        output.print_json(data)
        return
    click.echo(f"checkpoint {data['id']}, step {data['step']}, {data['source']}, after {data['parent'] or 'nothing'}")
    for channel, value in data["values"].items():
        click.echo(f"  {channel} = {_short(value)}")
    word = "pending" if data["pending"] else "written"
    for task, channel, value in data["writes"]:
        click.echo(f"  {word}: {channel} = {_short(value)}  (task {task})")


@click.command(short_help="Show what changed between two checkpoints.")
@store_argument
@thread_argument
@click.argument("before")
@click.argument("after")
@ns_option
@output.json_option
def diff(store: str, keys: tuple[str, ...], thread: str, before: str, after: str, ns: str, as_json: bool) -> None:
    """Show what changed between two checkpoints; the beginning or end of an id will do."""
    with opened(store, keys) as saver:
        from flowpoint.agents.shell import changes, found, plain

        told = changes(found(saver.core, thread, ns, before).values, found(saver.core, thread, ns, after).values)
        data = plain(told)
    if as_json:
        output.print_json(data)
        return
    for channel, change in data.items():
        click.echo(f"{channel}: " + ", ".join(f"{name} {_short(value)}" for name, value in change.items()))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:190]}... ({len(text)} characters)"


@click.command()
@store_argument
@some_threads
@click.option(
    "--schema", required=True, metavar="MODULE:NAME", help="What `Schema.of` made, or a function that returns it."
)
@types_option
@click.option("--check", is_flag=True, help="Try every head; write nothing.")
@output.json_option
@click.pass_context
def migrate(
    ctx: click.Context,
    /,
    *,
    store: str,
    keys: tuple[str, ...],
    thread: str | None,
    schema: str,
    types: tuple[str, ...],
    check: bool,
    as_json: bool,
) -> None:
    """Tell what a schema makes of the heads of threads. Exit code 1 if a run could not go on.

    Threads are migrated when they are read, so nothing has to be rewritten. Those that cannot be read are named last, as
    an error.
    """
    if not check:
        raise click.UsageError("threads are migrated when they are read; pass --check to try it out before", ctx)
    require_agents(store)
    from flowpoint.agents import shell, shell_code
    from flowpoint.agents.every_thread import EveryThread

    every = EveryThread("check")
    wanted = shell_code.schema_of(schema)
    classes = [*wanted.types, *shell_code.declared(types)[1]]
    with opened(store, keys, types=classes, schema=wanted) as saver:
        report = shell.checked(saver.core, wanted, chosen(saver, thread, every))
    if as_json:
        output.print_json({name: getattr(report, name) for name in ("threads", "migrated", "refused", "notes")})
    else:
        for line in [*report.notes, *report.refused]:
            click.echo(line)
        click.echo(
            f"{report.threads} heads: {report.migrated} to be migrated on reading, {len(report.refused)} refused"
        )
    every.tell()
    if report.refused:
        raise click.exceptions.Exit(1)


@click.command(short_help="Write threads to standard output.")
@store_argument
@some_threads
@click.option("--json", is_flag=True, expose_value=False, help="As it is done in any case: a line is JSON.")
def export(store: str, keys: tuple[str, ...], thread: str | None) -> None:
    """Write threads to standard output, a checkpoint a line. The lines are not encrypted.

    A thread that cannot be read as a whole is left out, and named at the end, as an error.
    """
    with opened(store, keys) as saver:
        from flowpoint.agents.every_thread import EveryThread
        from flowpoint.agents.exchange import exported

        every = EveryThread("export")
        for line in exported(saver.core, chosen(saver, thread, every), every):
            click.echo(line)
    every.tell()
