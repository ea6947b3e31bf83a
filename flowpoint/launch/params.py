"""The values of `--param`, which a job file's `build(params)` gets.

How it works: a dict that notes which names it was asked for. Looking at all of them, as `dict(params)`, `**params` and
loops do, reads them all.
Not here: parsing the command line (`cli.run`), calling `build` (`launch.jobfile`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flowpoint.errors import UsageError
from flowpoint.model.texts import alike

if TYPE_CHECKING:
    from _collections_abc import dict_items, dict_keys, dict_values


class Params(dict[str, str]):
    """The `--param` values; asking for one that was not given tells the person at the shell, not the author.

    It knows what was asked for, so that a name that nobody knows is not passed over in silence.
    """

    def __init__(self, path: str, values: Mapping[str, str]) -> None:
        super().__init__(values)
        self._path = path
        self._asked: set[str] = set()

    def __missing__(self, name: str) -> str:
        raise UsageError(
            f"job file {self._path} needs a value for {name!r}: add --param {name}=VALUE{_given(name, self.unread())}"
        )

    def __getitem__(self, name: str) -> str:
        self._asked.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self._asked.add(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """As of any dict."""
        self._asked.add(name)
        return super().get(name, default)

    def pop(self, name: str, *default: Any) -> Any:
        """As of any dict."""
        self._asked.add(name)
        return super().pop(name, *default)

    def setdefault(self, name: str, default: Any = None) -> Any:
        """As of any dict."""
        self._asked.add(name)
        return super().setdefault(name, default)

    def __iter__(self) -> Iterator[str]:
        self._asked.update(super().keys())
        return super().__iter__()

    def keys(self) -> dict_keys[str, str]:
        """As of any dict. Who looks at all of them has read them."""
        self._asked.update(super().keys())
        return super().keys()

    def values(self) -> dict_values[str, str]:
        """As of any dict."""
        self._asked.update(super().keys())
        return super().values()

    def items(self) -> dict_items[str, str]:
        """As of any dict."""
        self._asked.update(super().keys())
        return super().items()

    def unread(self) -> list[str]:
        """The names that were given and never asked for, sorted."""
        return sorted(set(super().keys()) - self._asked)

    def warnings(self) -> Iterator[str]:
        """A sentence about each name that was given and never asked for."""
        asked = sorted(self._asked - super().keys())
        for name in self.unread():
            yield f"--param {name} is not used: build() in {self._path} never asks for it{_nearest(name, asked)}"


def _given(name: str, unread: Sequence[str]) -> str:
    """The rest of a sentence about a missing name, when one that is spelled alike was given in vain."""
    nearest = alike(name, unread)
    return f"; you gave {nearest[0]}, which it does not ask for" if nearest else ""


def _nearest(name: str, names: Sequence[str]) -> str:
    """The rest of a sentence about a wrong name, when a right one is spelled alike."""
    nearest = alike(name, names)
    return f"; did you mean {nearest[0]}?" if nearest else ""
