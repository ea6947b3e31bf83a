"""What an unaligned checkpoint overtakes in the input of one subtask: recorded as it passes, written when it is whole.

A batch is encoded at once, since whoever takes it afterwards may change its values. Output needs no recording: a barrier
is sent behind everything that was put into the outputs, without credit, so what it overtakes is in the receiver's queue.

Invariants: `done` is set once, when every channel has delivered its barrier (`finish`) or nobody needs it (`discard`);
what could not be encoded is raised to whoever writes, not into the link that brought the batch.

Not here: when recording begins and ends (`protocol.overtaking`), the file (`snapshot.channel_files`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flowpoint.codec.placement import GroupCache
from flowpoint.codec.values import Codec
from flowpoint.model.elements import Batch
from flowpoint.runtime.failures import naming
from flowpoint.snapshot.channel_files import RecordedBatch, pack_groups
from flowpoint.transport.batches import encode_batch
from flowpoint.transport.inbox import BrokenBatch


@dataclass(frozen=True, slots=True)
class KeyGroups:
    """The key groups of the records of a hash edge, by the key function of the operator that receives them."""

    uid: str
    key: Callable[[object], object]
    cache: GroupCache

    def of(self, values: Sequence[object]) -> list[int]:
        """One group per record. Raises FlowPointError when the key function fails."""
        key, groups, miss = self.key, self.cache.groups, self.cache.miss
        found: list[int] = []
        with naming(self.uid, "the key function", is_awaited=False):
            for value in values:
                of_record = key(value)
                group = groups.get(of_record)
                found.append(miss(of_record) if group is None else group)
        return found


class Recording:
    """The channel state of one checkpoint in one subtask while it is put together."""

    def __init__(self, checkpoint: int, codec: Codec) -> None:
        self.checkpoint = checkpoint
        self.done = asyncio.Event()
        self.is_discarded = False
        self._codec = codec
        self._batches: list[RecordedBatch] = []
        self._failure: Exception | None = None

    def add(self, batch: Batch, port: int, key_groups: KeyGroups | None) -> None:
        """Record a batch. Neither keeps nor changes it."""
        if self._failure is not None or (not batch.values and type(batch) is not BrokenBatch):
            return
        try:
            self._batches.append(self._encoded(batch, port, key_groups))
        except Exception as error:  # noqa: BLE001  whoever writes raises it: the caller may be a link
            self._failure = error

    def _encoded(self, batch: Batch, port: int, key_groups: KeyGroups | None) -> RecordedBatch:
        if isinstance(batch, BrokenBatch):
            raise batch.error
        groups = None if key_groups is None else pack_groups(key_groups.of(batch.values))
        return RecordedBatch(port, groups, len(batch), encode_batch(self._codec, batch.values, batch.timestamps))

    def finish(self) -> None:
        """Everything before the barriers has been recorded."""
        self.done.set()

    def discard(self) -> None:
        """The checkpoint has failed."""
        self.is_discarded = True
        self._batches = []
        self.done.set()

    def batches(self) -> list[RecordedBatch]:
        """What was recorded. Raises what recording it has raised."""
        if self._failure is not None:
            raise self._failure
        return self._batches


@dataclass(frozen=True, slots=True)
class RestoredBatch:
    """A batch that was under way in the restored checkpoint, and the operator in this subtask's chain it goes to."""

    uid: str
    port: int
    batch: Batch
