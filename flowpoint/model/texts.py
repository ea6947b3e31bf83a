"""Texts that somebody else made, such as the message of an exception or a name, and what a person reads of them.

A user's exception may carry a whole file. It would stand in the log, in the record of the run, in each event and on the
terminal, so it is cut where it becomes a message.

Not here: values as text (`runtime.failures.shorten`).
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

SENTENCE_CHARACTERS_MAX: Final = 500
"""Of a message within a sentence of ours."""

MESSAGE_CHARACTERS_MAX: Final = 4_000
"""Of a whole message of an error, with the sentences around what somebody else said."""

TRACE_CHARACTERS_MAX: Final = 64_000
"""Of a traceback, which only the log and the terminal show."""


_AN: Final = frozenset("aeiouAEIO")

ALIKE: Final = 0.7
"""From 0 to 1. What is less alike than this is another name, and no misspelled one."""


def alike(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Which known names a person may have meant who wrote this one: the most alike first.

    Example:
        >>> alike("wordcuont", ["wordcount", "topn"]), alike("nope", ["topn"])
        (['wordcount'], [])
    """
    return get_close_matches(name, list(known), n=most, cutoff=ALIKE)


def with_article(name: str) -> str:
    """The name of a type, or of what else there is one of, in a sentence. A capital U is taken for "you", as in UUID.

    Example:
        >>> with_article("int"), with_article("list"), with_article("UUID")
        ('an int', 'a list', 'a UUID')
    """
    return f"{'an' if name[:1] in _AN else 'a'} {name}"


def cut(text: str, limit: int = SENTENCE_CHARACTERS_MAX) -> str:
    """A text of at most about `limit` characters: what is too much is left out of the middle, and it is said how much.

    Example:
        >>> cut("abcdefghij", 4)
        'ab... (6 characters left out) ...ij'
    """
    if len(text) <= limit:
        return text
    head, tail = limit - limit // 2, limit // 2
    return f"{text[:head]}... ({len(text) - head - tail:,} characters left out) ...{text[len(text) - tail :]}"
