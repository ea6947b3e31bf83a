"""Going over many threads, of which one that is damaged must not keep from the others.

What goes over threads looks at each in `passing_over`, and calls `tell` at the end: by then all that can be done is
done, and the error names every thread that was passed over. The reason of each is a line of the log at once.

Invariants: only what is damaged is passed over; a disk that refuses, or a bug, ends the command where it is. Nothing is
passed over without an error at the end.
Not here: what is done with each thread (`reading`, `retention`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from flowpoint.errors import BadRecordError, DamagedStoreError, SealError, UnknownTypeError

logger = logging.getLogger("flowpoint.agents")

UNREADABLE: Final = (DamagedStoreError, SealError)
"""What says that a commit cannot be read."""

_PASSED_OVER: Final = (*UNREADABLE, BadRecordError)


class EveryThread:
    """One command over many threads. `what` says what it does, as in "cannot ...".

    Example:
        every = EveryThread("expire")
        for thread in threads:
            with every.passing_over(thread):
                expire(thread)
        every.tell()
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._refused: dict[str, Exception] = {}

    @contextmanager
    def passing_over(self, thread: str) -> Iterator[None]:
        """Remember what is damaged here instead of raising it."""
        try:
            yield
        except UnknownTypeError:
            # That one is not damaged: the code has to declare a class.
            raise
        except _PASSED_OVER as error:
            if thread not in self._refused:
                logger.warning("cannot %s thread %r, going on with the others: %s", self._what, thread, error)
                self._refused[thread] = error

    def tell(self) -> None:
        """Say which threads were passed over.

        Raises:
            SealError: what is sealed in them could not be opened, and nothing else was wrong.
            DamagedStoreError: any was, for another reason.
        """
        if not self._refused:
            return
        first, error = next(iter(self._refused.items()))
        names = ", ".join(map(repr, self._refused))
        sealed = all(isinstance(one, SealError) for one in self._refused.values())
        what_to_do = "Restore the store from a good copy, or delete these threads"
        if sealed:
            what_to_do = (
                "Open the store with all its keys; what was changed or moved has to be restored from a good copy"
            )
        raise (SealError if sealed else DamagedStoreError)(
            f"cannot {self._what} all threads: {names} cannot be read (of {first!r}: {error}); the others are done. "
            + what_to_do
        ) from error
