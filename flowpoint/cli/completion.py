"""What the tab key offers: names of jobs, files, folders, settings with their values, operators and states of a snapshot.

How it works: click asks these functions for what can stand at the cursor. A file or a folder is left to the shell, which
knows how to walk through them. A setting is offered whole, as `key=value`: a shell that takes "=" for the end of a word
would not ask again behind it.

Invariants: nothing here fails or writes, whatever is on the disk: then nothing is offered. What only some commands need is
imported when they ask for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import click
from click.shell_completion import CompletionItem

from flowpoint.errors import FlowPointError
from flowpoint.launch.home import Home


def job_names(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Completes the name of a job."""
    names: list[str] = []
    with suppress(FlowPointError, OSError):
        names = Home.from_environment().known_jobs()
    return _beginning(begun, names)


def files(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Lets the shell complete a path."""
    return [CompletionItem(begun, type="file")]


def folders(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Lets the shell complete the path of a folder."""
    return [CompletionItem(begun, type="dir")]


def settings(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Completes KEY=VALUE: with each value where there are few, else with the default."""
    from flowpoint.launch.settings_keys import CHOICES, PARSERS

    return _beginning(begun, (f"{key}={value}" for key in PARSERS for value in CHOICES.get(key) or (_default(key),)))


def _default(key: str) -> object:
    from flowpoint.model.settings import Settings

    group, _, name = key.rpartition(".")
    data = Settings().to_data()
    return (data[group] if group else data)[name]


def operators(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Completes the uid of an operator of the snapshot that is named before."""
    return _beginning(begun, (uid for uid, _ in _states(ctx)))


def states(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Completes the name of a state of the snapshot that is named before, of one operator if there is one, too."""
    wanted = ctx.params.get("uid")
    return _beginning(begun, (name for uid, names in _states(ctx) for name in names if wanted in (None, uid)))


def _states(ctx: click.Context) -> Iterator[tuple[str, list[str]]]:
    """(uid, names of its states) of the operators of a snapshot; nothing where it cannot be opened."""
    from flowpoint import snapshot as snapshots

    # While the option at the cursor has no value yet, click leaves what stands before it unassigned.
    path = ctx.params.get("snapshot") or next(iter(ctx.args), None)
    if path:
        with suppress(FlowPointError):
            for operator in snapshots.open(path).operators.values():
                yield operator.uid, [*operator.states, *operator.broadcast_states]


def _beginning(begun: str, words: Iterable[str]) -> list[CompletionItem]:
    """Each word that goes on with what is there, once."""
    return [CompletionItem(word) for word in dict.fromkeys(words) if word.startswith(begun)]
