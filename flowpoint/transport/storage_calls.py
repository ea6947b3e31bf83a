"""What a worker and the coordinator say to each other about storage in the coordinator's memory.

On a link of its own, so that state never queues before control (rule 13). A worker asks, the coordinator answers each
question but `GiveUp` once; `call` is the worker's number for what it is doing. An object is written by several
questions of the same number:

    Begin -> Append, Append, ... -> Publish          or, at any time, GiveUp

The answer to each piece is the right to send the next: nobody has more than one piece under way for an object.

Invariant: no piece and no `Got` is longer than `PIECE_BYTES`.
Not here: what is kept (`snapshot.memory`), the two ends (`snapshot.memory_server`, `snapshot.memory_client`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, get_args

from flowpoint.transport.fields import FieldsCodec

PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin to write an object. `Done` says whether its name is free."""

    call: int
    name: str


@dataclass(frozen=True, slots=True)
class Append:
    """Add a piece to what was begun."""

    call: int
    piece: bytes


@dataclass(frozen=True, slots=True)
class Publish:
    """Give the object its name. `Done` says whether that was still free."""

    call: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Forget what was begun. Has no answer."""

    call: int


@dataclass(frozen=True, slots=True)
class Get:
    """Ask for at most `size` bytes of an object, from `offset`: `Got` or `Missing`."""

    call: int
    name: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class ListNames:
    """Ask for the names that begin with `prefix`: `Listed`."""

    call: int
    prefix: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove objects, or all below a name that ends with "/". `Done` says whether there was any."""

    call: int
    names: list[str]


@dataclass(frozen=True, slots=True)
class Done:
    """It was done; what `yes` means depends on what."""

    call: int
    yes: bool


@dataclass(frozen=True, slots=True)
class Got:
    """Bytes of an object; none behind its end."""

    call: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Listed:
    """Names, sorted."""

    call: int
    names: list[str]


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no such object."""

    call: int


@dataclass(frozen=True, slots=True)
class Refused:
    """It was not done. `reason` is a whole sentence; `is_limit`: only another setting helps."""

    call: int
    reason: str
    is_limit: bool = False


Question = Begin | Append | Publish | GiveUp | Get | ListNames | Delete
Answer = Done | Got | Listed | Missing | Refused

_QUESTIONS: Final[FieldsCodec[Question]] = FieldsCodec(get_args(Question))
_ANSWERS: Final[FieldsCodec[Answer]] = FieldsCodec(get_args(Answer))
encode_question, decode_question = _QUESTIONS.encode, _QUESTIONS.decode
encode_answer, decode_answer = _ANSWERS.encode, _ANSWERS.decode
