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


ALIKE: Final = 0.7
"""From 0 to 1. What is less alike than this is another name, and no misspelled one."""


def alike(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Which known names a person may have meant who wrote this one: the most alike first.

    Example:
        >>> alike("wordcuont", ["wordcount", "topn"]), alike("nope", ["topn"])
        (['wordcount'], [])
    """
    return get_close_matches(name, list(known), n=most, cutoff=ALIKE)


def a(noun: str) -> str:
    """The name of a type with its article.

    Example:
        >>> a("int"), a("str"), a("UUID")
        ('an int', 'a str', 'a UUID')
    """
    return f"{'an' if noun[:1].lower() in 'aeio' else 'a'} {noun}"


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
