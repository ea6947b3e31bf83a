"""Whether a stored value can be what an annotation says.

Looks for what is certainly different: a text where a number is annotated, a dict where a class is. Of a container the
first elements are looked at. None always fits, an int is a float, and what cannot be judged (Any, a type variable, a
protocol) fits. For states that are pydantic models, pydantic is asked, since it converts on reading.

Not here: what to do about a value that does not fit (`schema.py`).
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final, Literal, get_args, get_origin

from flowpoint.codec.shortened import shortened
from flowpoint.model.texts import with_article

__all__ = ["checker", "mismatch"]

_ELEMENTS_MAX: Final = 32
_DEPTH_MAX: Final = 8
_ALSO: Final[dict[type, tuple[type, ...]]] = {float: (int,), complex: (int, float)}
_WRAPPERS: Final = ("Annotated", "Required", "NotRequired", "ReadOnly", "Final", "ClassVar")


def mismatch(value: Any, annotation: Any, depth: int = 0) -> str | None:
    """What about the value does not fit the annotation; None if it fits.

    Example:
        >>> mismatch(["1"], list[int])
        "an element is a str ('1'), not int"
    """
    annotation = _bare(annotation)
    if value is None or annotation in (Any, object) or depth > _DEPTH_MAX:
        return None
    origin = get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        found = [mismatch(value, option, depth + 1) for option in get_args(annotation)]
        return None if None in found else _not_a(value, annotation)
    if origin is Literal:
        return None if any(_is_a(value, type(option)) for option in get_args(annotation)) else _not_a(value, annotation)
    if typing.is_typeddict(annotation):
        return None if isinstance(value, Mapping) else _not_a(value, annotation)
    cls = origin or annotation
    if not isinstance(cls, type):
        return None
    if not _is_a(value, cls):
        return _not_a(value, annotation)
    return _element_mismatch(value, get_args(annotation), depth) if origin else None


def checker(annotation: Any, *, is_lax: bool) -> Callable[[Any], str | None]:
    """A function that says what about a value does not fit; `is_lax` allows the conversions of pydantic."""
    if not is_lax:
        return lambda value: mismatch(value, annotation)
    import pydantic

    try:
        adapter: Any = pydantic.TypeAdapter(annotation, config={"arbitrary_types_allowed": True})
    except pydantic.PydanticUserError:  # a model or dataclass, which has its own configuration
        adapter = pydantic.TypeAdapter(annotation)

    def lax_mismatch(value: Any) -> str | None:
        try:
            adapter.validate_python(value)
        except pydantic.ValidationError as error:
            if value is None:
                return None
            first = error.errors(include_url=False, include_context=False)[0]
            return f"{first['msg']} at {'.'.join(map(str, first['loc'])) or 'the value'}"
        return None

    return lax_mismatch


def _bare(annotation: Any) -> Any:
    """An annotation without Annotated, Required, NewType and aliases."""
    while True:
        inner = getattr(annotation, "__supertype__", None) or getattr(annotation, "__value__", None)
        if inner is not None and not isinstance(annotation, type):
            annotation = inner
        elif getattr(get_origin(annotation), "_name", getattr(get_origin(annotation), "__name__", "")) in _WRAPPERS:
            annotation = get_args(annotation)[0]
        else:
            return annotation


def _is_a(value: Any, cls: type) -> bool:
    if type(value).__module__ == "numpy" and cls in (bool, int, float, complex) and hasattr(value, "item"):
        value = value.item()
    try:
        return isinstance(value, (cls, *_ALSO.get(cls, ())))
    except TypeError:
        return True  # a protocol or the like, which cannot be asked


def _element_mismatch(value: Any, args: tuple[Any, ...], depth: int) -> str | None:
    if isinstance(value, Mapping) and len(args) == 2:
        pairs: Iterable[tuple[Any, Any]] = [
            pair
            for key, element in islice(value.items(), _ELEMENTS_MAX)
            for pair in ((key, args[0]), (element, args[1]))
        ]
    elif isinstance(value, tuple) and args and args[-1] is not Ellipsis:
        if len(args) != len(value):
            return f"it has {len(value)} elements, not {len(args)}"
        pairs = zip(value, args, strict=True)
    elif isinstance(value, (list, tuple, set, frozenset)) or type(value).__module__ == "collections":
        pairs = ((element, args[0]) for element in islice(value, _ELEMENTS_MAX)) if args else ()
    else:
        return None
    for element, annotation in pairs:
        if (found := mismatch(element, annotation, depth + 1)) is not None:
            return found if found.startswith("an element") else f"an element{found.removeprefix('it')}"
    return None


def _not_a(value: Any, annotation: Any) -> str:
    name = annotation.__qualname__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)
    return f"it is {with_article(type(value).__qualname__)} ({shortened(value)}), not {name}"
