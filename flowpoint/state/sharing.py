"""Keeps what an operator emits apart from its state.

A record that is emitted waits until its batch is done, and so does what else holds it: the operators behind it, buffers,
channels. If a list in it lay in state as well, the next record of the key would change it there. So from the moment at
which state holds a value that can be changed, everything the operator emits is copied as it is emitted (`Isolator`). An
operator whose state is numbers and text never gets there, and pays for nothing but the question.

How it works: whatever gives a value to state, or out of it, says so (`note`): the handles. Whatever collects what is
emitted asks `is_on` for each value. The first note also copies what the call at hand has emitted before it.

Invariant: while `is_on` is False, no value in state can be changed in place.

Not here: how values are copied (`codec.isolating`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flowpoint.codec.isolating import Isolator
from flowpoint.codec.values import IMMUTABLE, is_immutable


class Sharing:
    """Whether the state of one operator may hold values that somebody could change in place.

    emitted, aside: where the main output and the side outputs of the calls under way are collected.
    """

    __slots__ = ("aside", "emitted", "is_on", "isolated")

    def __init__(self) -> None:
        self.is_on = False
        self.isolated: Callable[[Any], Any] = Isolator()
        self.emitted: list[Any] = []
        self.aside: Mapping[str, list[Any]] = {}

    def note(self, value: Any) -> None:
        """A value goes into state, or comes out of it."""
        if not self.is_on and not is_immutable(value):
            self.begin()

    def note_all(self, values: Iterable[Any]) -> None:
        """The same for many."""
        if not self.is_on and not IMMUTABLE.issuperset(map(type, values)):
            for value in values:
                self.note(value)

    def begin(self) -> None:
        """Something that can be changed is in state, and in the hands of the function."""
        if not self.is_on:
            self.is_on = True
            for values in (self.emitted, *self.aside.values()):
                values[:] = map(self.isolated, values)
