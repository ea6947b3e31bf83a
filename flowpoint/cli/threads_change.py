"""The commands of `flowpoint threads` that change something: fork, prune, copy, delete, import.

They need the store closed, and say who has it open.

Not here: commands that only look (`threads_look`).
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from flowpoint.cli import completion, output
from flowpoint.cli.threads_store import (
    checkpoints_of,
    first_space,
    keys_of,
    ns_option,
    opened,
    require_agents,
    some_threads,
    store_argument,
    thread_argument,
    types_option,
)
from flowpoint.errors import DamagedStoreError, SealError, UsageError
from flowpoint.launch import quantities

if TYPE_CHECKING:
    from flowpoint.agents.saver import CoreSaver


@click.command(short_help="Go back to a checkpoint.")
@store_argument
@thread_argument
@click.option(
    "--at", default=None, metavar="ID", help="After which checkpoint; the beginning or end of its id will do."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="CHANNEL=JSON",
    help="A value of the new checkpoint: in place of the old one, or with --graph through the channel's reducer.",
)
@click.option(
    "--as-node",
    default=None,
    metavar="NODE",
    help="As if this node had written the values: what runs next is what follows it. Needs --graph.",
)
@click.option(
    "--graph",
    default=None,
    metavar="MODULE:NAME",
    help="The uncompiled graph: only the code knows reducers, and what follows a node.",
)
@click.option("--schema", default=None, metavar="MODULE:NAME", help="What `Schema.of` made, when the thread has one.")
@types_option
@ns_option
@output.json_option
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
    as_json: bool,
) -> None:
    """Go back to a checkpoint, with other values; the fork becomes the head, and nothing is lost.

    Without --graph, what runs next is what was to run next at that checkpoint.
    """
    if as_node and not graph:
        raise UsageError(
            f"cannot fork as node {as_node!r}: a store knows what is to run next, but what follows a node is in the code "
            "of the graph (an edge, or a function of the values); give it with --graph module:name, or leave --as-node "
            "out to go on with what was to run next at that checkpoint"
        )
    if graph is None and (schema or types):
        raise UsageError(
            "cannot use --schema or --types without --graph: without its code, values are left as they are"
        )
    require_agents(store)
    from flowpoint.agents import shell, shell_code, shell_fork

    builder = None if graph is None else shell_code.graph_of(graph)
    code: dict[str, Any] = {}
    if graph is not None:
        code = {"types": shell_code.declared((graph, *types))[1], "schema": schema and shell_code.schema_of(schema)}
    with opened(store, keys, change=True, **code) as saver:
        saved = shell.found(saver.core, thread, ns, at)
        values = shell_fork.parsed(settings)
        if builder is None:
            made = shell_fork.fork(saver, saved, values)
        else:
            made = shell_fork.fork_with_graph(saver, saved, values, builder, as_node)
    if as_json:
        output.print_json({"thread": thread, "ns": ns, "id": made, "parent": saved.id})
    else:
        click.echo(made)


@click.command()
@store_argument
@some_threads
@click.option("--keep-last", type=int, default=None, help="How many checkpoints of each line stay.")
@click.option("--older-than", default=None, metavar="TIME", help="Only what is older goes, such as 7d.")
@output.json_option
def prune(
    store: str, keys: tuple[str, ...], thread: str | None, keep_last: int | None, older_than: str | None, as_json: bool
) -> None:
    """Remove history, of all threads or of one. What a thread needs to go on stays."""
    if keep_last is None and older_than is None:
        raise UsageError(
            "cannot prune: nothing says what may go; give --keep-last N (with 1 nothing but the heads stays), "
            "--older-than TIME, or both"
        )
    ttl = None if older_than is None else _age(older_than)
    with opened(store, keys, change=True) as saver:
        if thread is not None:
            first_space(saver, thread)
        gone = saver.expire(None if thread is None else [thread], keep_last=keep_last, ttl=ttl)
        swept = saver.sweep()
    if as_json:
        output.print_json({"removed": gone, "swept": swept})
    else:
        click.echo(f"{gone} checkpoints removed, {swept} leftovers swept")


def _age(text: str) -> timedelta:
    try:
        return timedelta(seconds=quantities.parse_duration(text))
    except (ValueError, OverflowError) as error:
        raise UsageError(f"cannot use --older-than {text!r}: it must be {quantities.DURATION_WANTED}") from error


@click.command()
@store_argument
@thread_argument
@click.argument("target")
@output.json_option
def copy(store: str, keys: tuple[str, ...], thread: str, target: str, as_json: bool) -> None:
    """Copy a thread with its history."""
    with opened(store, keys, change=True) as saver:
        first_space(saver, thread)
        saver.copy_thread(thread, target)
        count = checkpoints_of(saver, target)
    if as_json:
        output.print_json({"thread": thread, "copy": target, "checkpoints": count})
    else:
        click.echo(f"thread {thread!r} copied to {target!r}, with {count} checkpoints")


@click.command()
@store_argument
@thread_argument
@output.json_option
def delete(store: str, keys: tuple[str, ...], thread: str, as_json: bool) -> None:
    """Delete a thread, also one that cannot be read."""
    with opened(store, keys, change=True) as saver:
        count = _count(saver, thread)
        saver.delete_thread(thread)
    if as_json:
        output.print_json({"deleted": thread, "checkpoints": count})
    elif count is None:
        click.echo(f"thread {thread!r} deleted; it could not be read")
    else:
        click.echo(f"thread {thread!r} deleted, with {count} checkpoints")


def _count(saver: CoreSaver, thread: str) -> int | None:
    """How many checkpoints a thread has, which must be there; None when that cannot be told, as it is damaged."""
    try:
        first_space(saver, thread)
        return checkpoints_of(saver, thread)
    except (DamagedStoreError, SealError):
        return None


@click.command(name="import", short_help="Read exported threads, or another saver's.")
@store_argument
@click.argument("source", default="-", shell_complete=completion.files)
@click.option(
    "--types", "types", multiple=True, metavar="MODULE:NAME", help="A class, or a graph, of values in a database."
)
@output.json_option
def import_(store: str, keys: tuple[str, ...], source: str, types: tuple[str, ...], as_json: bool) -> None:
    """Read threads from a file of `export`, from standard input, or from the database of a SqliteSaver.

    STORE is made if it does not exist, and is not there if the import fails. Threads that it has already are refused.
    """
    require_agents(store)
    from flowpoint.agents import exchange, shell, shell_code

    with shell.open_or_make(store, keys=keys_of(keys)) as saver:
        if source == "-":
            count = exchange.imported(saver.core, sys.stdin)
        elif _is_sqlite(source):
            lines = exchange.sqlite_lines(source, *shell_code.declared(types))
            count = exchange.imported(saver.core, lines)
        else:
            with open(source, encoding="utf-8", errors="surrogateescape") as file:
                count = exchange.imported(saver.core, file)
    if as_json:
        output.print_json({"imported": count})
    else:
        click.echo(f"{count} checkpoints imported")


def _is_sqlite(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(16) == b"SQLite format 3\x00"
    except OSError as error:
        raise UsageError(f"cannot import {path}: {error.strerror}; check the path") from error
