"""`flowpoint threads`: the memory of agents, looked at and changed from the shell.

Commands that change something need the store closed, and say who has it open.

Not here: what is done to a store (`flowpoint.agents`, imported when it is needed: it is an extra).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from flowpoint.cli import output
from flowpoint.errors import UsageError
from flowpoint.launch import quantities

if TYPE_CHECKING:
    from flowpoint.agents.reading import Saved
    from flowpoint.agents.saver import CoreSaver

F = TypeVar("F", bound=Callable[..., Any])


@click.group(name="threads", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Look at and change the threads that agents remember."""


def _store(fn: F) -> F:
    fn = click.option("--key", "keys", multiple=True, metavar="ID=HEX", help="A key of an encrypted store.")(fn)
    return click.argument("store", type=click.Path())(fn)


_thread = click.argument("thread")
_some_threads = click.argument("thread", required=False)
_ns = click.option("--ns", default="", help="The namespace of a sub-graph.")


@contextmanager
def _opened(
    store: str, keys: tuple[str, ...], *, change: bool = False, create: bool = False, **code: Any
) -> Iterator[CoreSaver]:
    """A store, opened for looking at or to `change`; `code` is `types` and `schema`, when the graph is going to run."""
    shell = _shell(store)
    try:
        given = {name: bytes.fromhex(text) for name, _, text in (key.partition("=") for key in keys)}
    except ValueError as error:
        raise UsageError(f"cannot use --key: {error}; write it as id=hexadecimal") from error
    with shell.open_store(store, change=change, create=create, keys=given or None, **code) as saver:
        yield saver


def _shell(store: str) -> ModuleType:
    try:
        from flowpoint.agents import shell
    except ImportError as error:
        raise UsageError(
            f"cannot open {store}: {error.name} is not installed; in a checkout of FlowPoint: pip install '.[agents]'"
        ) from error
    return shell


def _chosen(saver: CoreSaver, thread: str | None) -> list[str]:
    return saver.core.reader.threads() if thread is None else [thread]


@command.command(name="list")
@_store
@output.json_option
def list_(store: str, keys: tuple[str, ...], as_json: bool) -> None:
    """Show the threads of a store."""
    with _opened(store, keys) as saver:
        index = saver.core.index
        found: list[dict[str, Any]] = []
        for thread in saver.core.reader.threads():
            spaces = index.namespaces(thread)
            head = saver.core.reader.head_record(thread, "" if "" in spaces else spaces[0])
            assert head is not None
            found.append(
                {
                    "thread": thread,
                    "checkpoints": sum(1 for ns in spaces for _ in index.newest(thread, ns)),
                    "namespaces": len(spaces),
                    "head": head.header.id,
                    "step": head.metadata.get("step"),
                    "written": head.header.at_ms,
                }
            )
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


@command.command(short_help="Show the tree of a thread's checkpoints.")
@_store
@_thread
@click.option("--limit", type=click.IntRange(1), default=None, help="Only the newest so many.")
@output.json_option
def history(store: str, keys: tuple[str, ...], thread: str, limit: int | None, as_json: bool) -> None:
    """Show the tree of a thread's checkpoints, newest first: what branches off stands indented above where it does.

    Other commands take a part of an id. Ids of one moment begin alike, so its last characters tell more.
    """
    with _opened(store, keys) as saver:
        from flowpoint.agents.shell import found

        found(saver.core, thread, _first_space(saver, thread), None)
        lines = [_line(saver, saved) for saved in saver.core.reader.listed(thread=thread, limit=limit)]
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
            " ".join(["head"] * line["head"] + ["branch"] * line["branch"]),
        )
        for indent, line in reversed(output.as_tree(list(reversed(lines)), _in_space, _parent_in_space))
    ]
    header = ("CHECKPOINT", "PARENT", "NAMESPACE", "STEP", "SOURCE", "PENDING", "WRITTEN", "")
    output.print_table(header, rows, right=frozenset({"STEP", "PENDING"}))


def _in_space(line: dict[str, Any]) -> tuple[str, str]:
    return line["ns"], line["id"]


def _parent_in_space(line: dict[str, Any]) -> tuple[str, str | None]:
    return line["ns"], line["parent"]


def _first_space(saver: CoreSaver, thread: str) -> str:
    spaces = saver.core.index.namespaces(thread)
    return spaces[0] if spaces else ""


def _line(saver: CoreSaver, saved: Saved) -> dict[str, Any]:
    head = saver.core.index.head(*saved.place)
    return {
        "id": saved.id,
        "parent": saved.parent,
        "ns": saved.place.ns,
        "step": saved.metadata.get("step"),
        "source": saved.metadata.get("source"),
        "head": head is not None and head.id == saved.id,
        "branch": not saved.moved,
        "pending": len(saved.writes),
        "written": saved.at_ms,
    }


@command.command(short_help="Show what a thread holds.")
@_store
@_thread
@click.option(
    "--at",
    default=None,
    metavar="ID",
    help="Which checkpoint; the beginning or end of its id will do. The head otherwise.",
)
@_ns
@output.json_option
def show(store: str, keys: tuple[str, ...], thread: str, at: str | None, ns: str, as_json: bool) -> None:
    """Show the values, the metadata and the pending writes of a checkpoint."""
    with _opened(store, keys) as saver:
        from flowpoint.agents.shell import found, plain

        saved = found(saver.core, thread, ns, at)
        data = _line(saver, saved) | {
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
    for task, channel, value in data["writes"]:
        click.echo(f"  pending: {channel} = {_short(value)}  (task {task})")


@command.command(short_help="Show what changed between two checkpoints.")
@_store
@_thread
@click.argument("before")
@click.argument("after")
@_ns
@output.json_option
def diff(store: str, keys: tuple[str, ...], thread: str, before: str, after: str, ns: str, as_json: bool) -> None:
    """Show what changed between two checkpoints; the beginning or end of an id will do."""
    with _opened(store, keys) as saver:
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


@command.command(short_help="Go back to a checkpoint.")
@_store
@_thread
@click.option(
    "--at", default=None, metavar="ID", help="After which checkpoint; the beginning or end of its id will do."
)
@click.option("--set", "settings", multiple=True, metavar="CHANNEL=JSON", help="A value of the new checkpoint.")
@click.option("--as-node", default=None, help="Update as if this node had written the values; needs --graph.")
@click.option("--graph", default=None, metavar="MODULE:NAME", help="The uncompiled graph.")
@click.option("--schema", default=None, metavar="MODULE:NAME", help="What `Schema.of` made, when the thread has one.")
@click.option(
    "--types", multiple=True, metavar="MODULE:NAME", help="A class that stands in no annotation of the graph."
)
@_ns
def fork(
    store: str,
    keys: tuple[str, ...],
    thread: str,
    at: str | None,
    settings: tuple[str, ...],
    as_node: str | None,
    graph: str | None,
    schema: str | None,
    types: tuple[str, ...],
    ns: str,
) -> None:
    """Go back to a checkpoint, with other values; the fork becomes the head, and nothing is lost."""
    if as_node and not graph:
        raise UsageError(
            "cannot fork --as-node: what follows a node is in the code; give the graph with --graph module:name"
        )
    if graph is None and (schema or types):
        raise UsageError(
            "cannot use --schema or --types without --graph: without its code, values are left as they are"
        )
    shell = _shell(store)
    builder = None if graph is None else shell.graph_of(graph)
    code: dict[str, Any] = {}
    if graph is not None:
        code = {"types": shell.declared((graph, *types))[1], "schema": schema and shell.schema_of(schema)}
    with _opened(store, keys, change=True, **code) as saver:
        saved = shell.found(saver.core, thread, ns, at)
        values = shell.parsed(settings)
        if builder is None:
            made = shell.fork(saver, saved, values)
        else:
            made = shell.fork_with_graph(saver, saved, values, builder, as_node)
    click.echo(made)


@command.command()
@_store
@_some_threads
@click.option("--keep-last", type=int, default=None, help="How many checkpoints of each line stay.")
@click.option("--older-than", default=None, metavar="TIME", help="Only what is older goes, such as 7d.")
def prune(store: str, keys: tuple[str, ...], thread: str | None, keep_last: int | None, older_than: str | None) -> None:
    """Remove history; without options all but the heads. What a thread needs to go on stays."""
    ttl = None if older_than is None else _age(older_than)
    with _opened(store, keys, change=True) as saver:
        if keep_last is None and ttl is None:
            keep_last = 1
        gone = saver.expire(_chosen(saver, thread), keep_last=keep_last, ttl=ttl)
        swept = saver.sweep()
    click.echo(f"{gone} checkpoints removed, {swept} leftovers swept")


def _age(text: str) -> timedelta:
    try:
        return timedelta(seconds=quantities.parse_duration(text))
    except (ValueError, OverflowError) as error:
        raise UsageError(f"cannot use --older-than {text!r}: it must be {quantities.DURATION_WANTED}") from error


@command.command()
@_store
@_thread
@click.argument("target")
def copy(store: str, keys: tuple[str, ...], thread: str, target: str) -> None:
    """Copy a thread with its history."""
    with _opened(store, keys, change=True) as saver:
        from flowpoint.agents.shell import found

        found(saver.core, thread, _first_space(saver, thread), None)
        saver.copy_thread(thread, target)


@command.command()
@_store
@_thread
def delete(store: str, keys: tuple[str, ...], thread: str) -> None:
    """Delete a thread."""
    with _opened(store, keys, change=True) as saver:
        from flowpoint.agents.shell import found

        found(saver.core, thread, _first_space(saver, thread), None)
        saver.delete_thread(thread)


@command.command()
@_store
@_some_threads
@click.option(
    "--schema", required=True, metavar="MODULE:NAME", help="What `Schema.of` made, or a function that returns it."
)
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
    check: bool,
    as_json: bool,
) -> None:
    """Tell what a schema makes of the heads of threads. Exit code 1 if a run could not go on.

    Threads are migrated when they are read, so nothing has to be rewritten.
    """
    if not check:
        raise click.UsageError("threads are migrated when they are read; pass --check to try it out before", ctx)
    wanted = _shell(store).schema_of(schema)
    with _opened(store, keys) as saver:
        from flowpoint.agents import shell

        report = wanted.check(shell.stored_heads(saver.core, _chosen(saver, thread)))
    if as_json:
        output.print_json({name: getattr(report, name) for name in ("threads", "migrated", "refused", "notes")})
    else:
        for line in [*report.notes, *report.refused]:
            click.echo(line)
        click.echo(
            f"{report.threads} heads: {report.migrated} to be migrated on reading, {len(report.refused)} refused"
        )
    if report.refused:
        raise click.exceptions.Exit(1)


@command.command(short_help="Write threads to standard output.")
@_store
@_some_threads
def export(store: str, keys: tuple[str, ...], thread: str | None) -> None:
    """Write threads to standard output, a checkpoint a line. The lines are not encrypted."""
    with _opened(store, keys) as saver:
        from flowpoint.agents.exchange import exported

        for line in exported(saver.core, _chosen(saver, thread)):
            click.echo(line)


@command.command(name="import", short_help="Read exported threads, or another saver's.")
@_store
@click.argument("source", default="-")
@click.option(
    "--types", "types", multiple=True, metavar="MODULE:NAME", help="A class, or a graph, of values in a database."
)
def import_(store: str, keys: tuple[str, ...], source: str, types: tuple[str, ...]) -> None:
    """Read threads from a file of `export`, from standard input, or from the database of a SqliteSaver.

    STORE is made if it does not exist. Threads that it has already are refused.
    """
    with _opened(store, keys, change=True, create=True) as saver:
        from flowpoint.agents import exchange, shell

        if source == "-":
            count = exchange.imported(saver.core, sys.stdin)
        elif _is_sqlite(source):
            lines = exchange.sqlite_lines(source, *shell.declared(types))
            count = exchange.imported(saver.core, lines)
        else:
            with open(source, encoding="utf-8", errors="surrogateescape") as file:
                count = exchange.imported(saver.core, file)
    click.echo(f"{count} checkpoints imported")


def _is_sqlite(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(16) == b"SQLite format 3\x00"
    except OSError as error:
        raise UsageError(f"cannot import {path}: {error.strerror}; check the path") from error
