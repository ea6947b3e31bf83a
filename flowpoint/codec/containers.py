"""The containers of `collections`, taken apart into what msgpack carries, and rebuilt.

    deque         [its maxlen, its elements]
    defaultdict   [its default factory, its items]
    Counter       its items
    OrderedDict   its items, in order

A default factory is a class: a built-in one by its name, one that the job declares as [name]. Functions are refused,
since nothing in bytes may say which function is to be called.

Not here: list, tuple, dict, set and frozenset (`values.py`).
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, Final

from flowpoint.errors import BadRecordError
from flowpoint.model.texts import with_article

__all__ = ["CONTAINERS", "make_counter", "make_defaultdict", "make_deque", "make_ordered", "take_factory"]

CONTAINERS: Final = frozenset({deque, defaultdict, Counter, OrderedDict})

_FACTORIES: Final[dict[str, type]] = {
    cls.__name__: cls
    for cls in (bool, int, float, str, bytes, list, tuple, dict, set, frozenset, deque, Counter, OrderedDict)
}


def take_factory(value: defaultdict[Any, Any], name_of: Callable[[type], str]) -> str | list[str] | None:
    """What stands for the default factory of a defaultdict.

    Raises:
        BadRecordError: it is neither a class that needs no declaration nor a declared one.
    """
    factory = value.default_factory
    if factory is None:
        return None
    if not isinstance(factory, type):
        raise BadRecordError(
            f"cannot serialise a value of type defaultdict: its default factory {factory!r} is not a class; use a "
            "class such as list, or turn it into a dict"
        )
    return factory.__name__ if _FACTORIES.get(factory.__name__) is factory else [name_of(factory)]


def make_defaultdict(resolve: Callable[[str], type], factory: Any, items: Any) -> defaultdict[Any, Any]:
    """The reverse of taking a defaultdict apart."""
    if factory is None:
        return defaultdict(None, _checked(items, dict))
    if isinstance(factory, list):
        (name,) = factory
        return defaultdict(resolve(name), _checked(items, dict))
    return defaultdict(_FACTORIES[factory], _checked(items, dict))


def make_deque(maxlen: int | None, elements: Any) -> deque[Any]:
    """The reverse of taking a deque apart."""
    return deque(_checked(elements, list), maxlen)


def make_counter(items: Any) -> Counter[Any]:
    """The reverse of taking a Counter apart."""
    return Counter(_checked(items, dict))


def make_ordered(items: Any) -> OrderedDict[Any, Any]:
    """The reverse of taking an OrderedDict apart."""
    return OrderedDict(_checked(items, dict))


def _checked(value: Any, cls: type) -> Any:
    if type(value) is not cls:
        raise ValueError(f"{with_article(cls.__name__)} was expected")
    return value
