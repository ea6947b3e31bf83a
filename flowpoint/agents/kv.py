"""The ordered keys and values that everything of an agent's memory is kept in, as an interface.

A key is text, parts divided by "/": `t/<thread>/c/<number>`. Parts come from `part`, so that a key is a path on every
file system and a name in every object store. Order is by the bytes of the key.

Invariants of every implementation:
- `create` never replaces: of several that create one key, exactly one is told True. What goes `beside` it is there
  before it is.
- When `create` or `write` with `sync` returns, its entries survive a loss of power.
- Nothing is removed from a thread while somebody is in a `section` of it that is not `CUT`.
- `indexed` tells that `create` and `write` are all or nothing, so that an index beside the log is always true to it.

Not here: what the entries mean (`envelope`, `log`), files and databases (`folder_kv`, `rocks_kv`).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from functools import lru_cache
from hashlib import sha256
from typing import Final, NewType, Protocol
from urllib.parse import unquote_to_bytes

from flowpoint.agents.holders import Holders
from flowpoint.agents.remembered import Remembered

Entry = tuple[str, bytes]

Part = NewType("Part", str)
"""A text as `part` writes it into keys: never to be taken for the text itself."""

_PLAIN: Final = re.compile(r"[a-z0-9_-][a-z0-9._-]{0,119}")
_LENGTH_MAX: Final = 120  # a file name may have 255 bytes, and temporary files need some


class Section(Enum):
    """What somebody is about to do in a thread."""

    READ = "read"
    APPEND = "append"
    CUT = "cut"
    """Remove something: alone in the thread."""


class Kv(Protocol):
    """Sorted text to bytes. See the module's invariants."""

    indexed: bool
    remembered: Remembered
    holders: Holders

    def get(self, key: str) -> bytes | None:
        """The value of a key."""

    def has(self, key: str) -> bool:
        """Whether there is such a key."""

    def scan(self, prefix: str, *, start: str = "", reverse: bool = False) -> Iterator[Entry]:
        """Entries whose keys start with `prefix`, in order: from `start` on, or in reverse those below `start`."""

    def keys(self, prefix: str, *, start: str = "", reverse: bool = False) -> Iterator[str]:
        """Like `scan`, without the values."""

    def changed(self, prefix: str) -> Hashable:
        """Something that is another whenever keys right below `prefix` have come or gone. `indexed` stores need not tell."""

    def create(
        self,
        key: str,
        value: bytes,
        *,
        beside: Sequence[Entry] = (),
        gone: Sequence[str] = (),
        sync: bool = True,
        looked: bool = False,
    ) -> bool:
        """Put an entry and those beside it, delete what is `gone`; False, and nothing of it, when the key is taken.

        `looked`: the caller knows in this section that the key is free. Where a section keeps everybody else out, that
        is not looked up again.
        """

    def write(self, puts: Iterable[Entry], deletes: Iterable[str] = (), *, sync: bool = True) -> None:
        """Put, replacing, and delete, in this order."""

    def settle(self, keys: Iterable[str], *, sync: bool) -> None:
        """See to it that these entries, which are there, survive a loss of power before any that is put from now on does.

        Who has put them may not have come so far. With `sync` they do so when this returns.
        """

    def section(self, thread: Part, kind: Section) -> AbstractContextManager[None]:
        """A stretch of work on one thread."""

    def close(self) -> None:
        """Let go of everything. Idempotent."""


@lru_cache(maxsize=8192)
def part(text: str) -> Part:
    """Text as one part of a key. Equal parts come from equal text only; a long text is cut and gets its hash.

    Example:
        >>> part("user-7"), part("a/B"), part("")
        ('user-7', 'a%2f%42', '%')
    """
    if _PLAIN.fullmatch(text):
        return Part(text)
    escaped = "".join(char if _PLAIN.fullmatch(char) else _escaped(char) for char in text) or "%"
    if len(escaped) <= _LENGTH_MAX:
        return Part(escaped)
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Part(f"{escaped[:60]}~{digest[:40]}")


def _escaped(char: str) -> str:
    return "".join(f"%{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))


def text_of(part: Part) -> str:
    """The text of a part, or the part itself where the text was cut, to name what cannot be read.

    Example:
        >>> text_of(part("a/B"))
        'a/B'
    """
    if part == "%":
        return ""
    return part if "~" in part else unquote_to_bytes(part).decode("utf-8", "surrogatepass")


def after(prefix: str) -> str:
    """The first text that is greater than everything which starts with `prefix`, which ends with "/".

    Example:
        >>> after("t/a/")
        't/a0'
    """
    assert prefix.endswith("/")
    return prefix[:-1] + "0"


def children(kv: Kv, prefix: str) -> Iterator[Part]:
    """The different parts that follow `prefix`, in order, without reading all that is below each."""
    start = prefix
    while True:
        key = next(kv.keys(prefix, start=start), None)
        if key is None:
            return
        name = key[len(prefix) :].partition("/")[0]
        yield Part(name)
        start = f"{prefix}{name}0"
