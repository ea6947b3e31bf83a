"""JSON with a checksum: the one form of every small file of a snapshot (commit entries and manifests).

A document is a JSON object, readable with `cat`, whose "format" is a number and whose "checksum" is the xxh3-64 of the
canonical form (sorted keys, no spaces, ASCII) of everything else in it.

Invariants:
- `decode` returns only what `encode` was given, up to JSON's own mapping (tuples come back as lists).
- Spaces, line breaks and the order of keys do not matter; everything else does.

Not here: what the fields mean.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from xxhash import xxh3_64_hexdigest

from flowpoint.errors import SnapshotError

CHECKSUM = "checksum"


def encode(body: Mapping[str, Any]) -> bytes:
    """A document, one line per field and per entry of a field that is an object of objects. Keys keep their order.

    Raises:
        TypeError, ValueError: the body is not JSON-able.
    """
    plain: dict[str, Any] = json.loads(json.dumps(body, allow_nan=False))
    lines = [f"{json.dumps(field)}: {_pretty(value)}" for field, value in plain.items()]
    lines.append(f"{json.dumps(CHECKSUM)}: {json.dumps(_checksum(plain))}")
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode("ascii")


def has_only_text_keys(value: Any) -> bool:
    """Whether every key in JSON-able data is a str: JSON would silently make one of any other."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and has_only_text_keys(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(has_only_text_keys(inner) for inner in value)
    return True


def decode(data: bytes, path: str, *, newest_format: int, what: str) -> dict[str, Any]:
    """The body of a document, checked.

    Args:
        path: how messages call the file.
        newest_format: the newest "format" that this FlowPoint reads.
        what: what the file is, for messages.

    Raises:
        SnapshotError: it is torn, changed, not a document, or of a newer format.
    """
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise damaged(path, what, f"{len(data)} bytes that are not JSON ({error})") from error
    if not isinstance(body, dict):
        raise damaged(path, what, f"JSON of type {type(body).__name__}, not an object")
    found = body.get("format")
    if type(found) is not int or found < 1:
        raise damaged(path, what, f"format {found!r}, which is not a number of a format")
    if found > newest_format:
        raise SnapshotError(
            f"cannot read the {what} {path}: it has format {found}, and this FlowPoint reads formats up to "
            f"{newest_format}; use the FlowPoint that wrote it, or a newer one"
        )
    stated = body.pop(CHECKSUM, None)
    try:
        actual = _checksum(body)
    except (ValueError, RecursionError) as error:
        raise damaged(path, what, f"values that JSON does not have ({error})") from error
    if stated != actual:
        raise damaged(path, what, f"checksum {stated!r} in the file, {actual!r} computed from it")
    return body


def damaged(path: str, what: str, seen: str) -> SnapshotError:
    """The error for a file that cannot be trusted."""
    return SnapshotError(f"the {what} {path} is damaged: {seen}; put back an intact copy of this file")


def _checksum(body: Mapping[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return xxh3_64_hexdigest(canonical.encode("ascii"))


def _pretty(value: Any) -> str:
    if isinstance(value, dict) and value and all(isinstance(entry, dict) for entry in value.values()):
        return "{\n" + ",\n".join(f" {json.dumps(key)}: {json.dumps(entry)}" for key, entry in value.items()) + "\n}"
    return json.dumps(value)
