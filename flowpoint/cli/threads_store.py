"""What the commands of `flowpoint threads` have in common: their arguments, and opening the store.

Not here: the commands (`threads_look`, `threads_change`); what is done to a store (`flowpoint.agents`, imported when it is
needed: it is an extra).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from flowpoint.cli import completion
from flowpoint.errors import UsageError

if TYPE_CHECKING:
    from flowpoint.agents.every_thread import EveryThread
    from flowpoint.agents.saver import CoreSaver

F = TypeVar("F", bound=Callable[..., Any])


def store_argument(fn: F) -> F:
    """STORE and --key."""
    fn = click.option("--key", "keys", multiple=True, metavar="ID=HEX", help="A key of an encrypted store.")(fn)
    return click.argument("store", shell_complete=completion.files)(fn)


thread_argument = click.argument("thread")
some_threads = click.argument("thread", required=False)
ns_option = click.option("--ns", default="", help="The namespace of a sub-graph.")


types_option = click.option(
    "--types", multiple=True, metavar="MODULE:NAME", help="A class that stands in no annotation of the graph."
)


@contextmanager
def opened(store: str, keys: tuple[str, ...], *, change: bool = False, **code: Any) -> Iterator[CoreSaver]:
    """A store, opened for looking at or to `change`; `code` is `types` and `schema`, to read as the graph does."""
    require_agents(store)
    from flowpoint.agents import shell

    with shell.open_store(store, change=change, keys=keys_of(keys), **code) as saver:
        yield saver


def keys_of(keys: tuple[str, ...]) -> dict[str, bytes] | None:
    """The keys of an encrypted store.

    Raises:
        UsageError: one is not written as it should be.
    """
    try:
        given = {name: bytes.fromhex(text) for name, _, text in (key.partition("=") for key in keys)}
    except ValueError as error:
        raise UsageError(f"cannot use --key: {error}; write it as id=hexadecimal") from error
    return given or None


def require_agents(store: str) -> None:
    """To be called before anything of `flowpoint.agents` is imported.

    Raises:
        UsageError: what agents need is not installed.
    """
    try:
        import flowpoint.agents.shell  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"cannot open {store}: {error.name} is not installed; in a checkout of FlowPoint: pip install '.[agents]'"
        ) from error


def chosen(saver: CoreSaver, thread: str | None, every: EveryThread) -> list[str]:
    """The thread that was named, or all; those that are damaged are passed over by `every`.

    Raises:
        NotFoundError: the one that was named is not there.
    """
    if thread is None:
        return saver.core.reader.threads(every)
    first_space(saver, thread)
    return [thread]


def first_space(saver: CoreSaver, thread: str) -> str:
    """A namespace that the thread has: its own, if it has checkpoints of its own.

    Raises:
        NotFoundError: there is no such thread.
    """
    from flowpoint.agents.shell import spaces_of

    return spaces_of(saver.core, thread)[0]


def checkpoints_of(saver: CoreSaver, thread: str) -> int:
    """How many checkpoints a thread has, in all namespaces."""
    index = saver.core.index
    return sum(1 for ns in index.namespaces(thread) for _ in index.newest(thread, ns))
