"""All channels of one worker in one attempt, over one link per ordered pair of workers.

The worker that has outlets opens the link, greets with (attempt, worker), and sends batches and events on it; credit
comes back on the same link. Channels are declared first (`inbox`, `outlet`); `connect` then opens the doors, in both
directions. A link whose greeting names another attempt is closed and nothing it carries is looked at (rule 8).

Invariants:
- The order of a channel is the order of its link. Frames are handled as they come, whatever the tasks do: a blocked
  channel holds up no other (rule 13), and what it may hold is bounded by its credit.
- `on_lost` is called once at most: after the first lost link the attempt is over. After `close` it is not called.
- An element for a channel that was not declared is an error, never dropped: it would be a record lost.

Not here: who talks to whom (`runtime`), control messages, retries: a link that is lost ends the attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from flowpoint.errors import BadRecordError, InternalError, LinkLost
from flowpoint.host.base import Host, Link
from flowpoint.model.elements import Event
from flowpoint.transport import wire
from flowpoint.transport.batches import ColumnCodec, decode_batch, encode_batch
from flowpoint.transport.inbox import BrokenBatch, CreditedOutlet, Inbox, LocalChannel, Outlet

BATCH_BYTES_MAX = 512 * 1024
"""A batch that is bigger when encoded is cut, so that a window holds more than one."""

RECORD_BYTES_MAX = 255 * 1024 * 1024
"""A record must fit into one frame of a link."""

EARLY_LINKS_MAX = 1024


class RemoteOutlet(CreditedOutlet):
    """The sending end of a channel whose inbox is in another worker."""

    def __init__(self, codec: ColumnCodec, channel: bytes) -> None:
        super().__init__()
        self._codec = codec
        self._channel = channel
        self._batch_head = wire.head(wire.BATCH, channel)
        self._event_head = wire.head(wire.EVENT, channel)
        self._link: Link | None = None

    def attach(self, link: Link) -> None:
        """The link that carries this channel is open."""
        self._link = link

    def send_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `Outlet`. A batch that is cut spends the credit of each piece.

        Raises:
            BadRecordError: a record cannot be encoded, or is too big for any frame.
        """
        batch = encode_batch(self._codec, values, timestamps)
        size = len(batch)
        if size > BATCH_BYTES_MAX and len(values) > 1:
            self._send_in_pieces(values, timestamps, pieces=-(-size // BATCH_BYTES_MAX))
            return
        if size > RECORD_BYTES_MAX:
            raise BadRecordError(
                f"cannot send a record of {size} bytes: the limit is {RECORD_BYTES_MAX}; cut it, or send a reference to it"
            )
        self._open_link().send_nowait(self._batch_head, batch)
        self._credit.spend(size)

    def send_event(self, event: Event) -> None:
        """See `Outlet`."""
        self._open_link().send_nowait(self._event_head, wire.encode_event(event))

    def _send_in_pieces(self, values: list[Any], timestamps: list[int] | None, *, pieces: int) -> None:
        step = -(-len(values) // pieces)
        for start in range(0, len(values), step):
            part = slice(start, start + step)
            self.send_batch(values[part], None if timestamps is None else timestamps[part])

    def _open_link(self) -> Link:
        if self._link is None:
            raise InternalError(f"{wire.channel_name(self._channel)} was used before its exchange was connected")
        return self._link


class Exchange:
    """The channels of one worker in one attempt.

    Args:
        peers: worker -> the address of its data listener.
        on_lost: called with the reason when a link to another worker is lost.
    """

    def __init__(
        self,
        host: Host,
        attempt: int,
        worker: int,
        codec: ColumnCodec,
        peers: dict[int, str],
        on_lost: Callable[[str], None],
    ) -> None:
        self._host = host
        self._attempt = attempt
        self._worker = worker
        self._codec = codec
        self._peers = peers
        self._on_lost = on_lost
        self._local: dict[bytes, LocalChannel] = {}
        self._inboxes: dict[int, dict[bytes, Inbox]] = {}
        self._outlets: dict[int, dict[bytes, RemoteOutlet]] = {}
        self._links: list[Link] = []
        self._links_in: dict[int, Link] = {}
        self._early: list[Link] = []
        self._is_open = False
        self._is_over = False

    # ------------------------------------------------------------------ declaring channels

    def inbox(self, edge: int, source_index: int, target_index: int, from_worker: int) -> Inbox:
        """The receiving end of a channel; the same one when asked again."""
        channel = wire.channel_key(edge, source_index, target_index)
        if from_worker == self._worker:
            return self._local_channel(channel).inbox
        inboxes = self._inboxes.setdefault(from_worker, {})
        if channel not in inboxes:
            self._check_declarable(channel)
            inboxes[channel] = Inbox(partial(self._send_grant, from_worker, wire.head(wire.GRANT, channel)))
        return inboxes[channel]

    def outlet(self, edge: int, source_index: int, target_index: int, to_worker: int) -> Outlet:
        """The sending end of a channel; the same one when asked again."""
        channel = wire.channel_key(edge, source_index, target_index)
        if to_worker == self._worker:
            return self._local_channel(channel)
        outlets = self._outlets.setdefault(to_worker, {})
        if channel not in outlets:
            self._check_declarable(channel)
            outlets[channel] = RemoteOutlet(self._codec, channel)
        return outlets[channel]

    def _local_channel(self, channel: bytes) -> LocalChannel:
        if channel not in self._local:
            self._local[channel] = LocalChannel()
        return self._local[channel]

    def _check_declarable(self, channel: bytes) -> None:
        if self._is_open:
            raise InternalError(f"{wire.channel_name(channel)} was declared after its exchange was connected")

    # ------------------------------------------------------------------ links

    async def connect(self) -> None:
        """Let links in, and open those that the outlets need. Every channel must have been declared.

        Raises:
            LinkLost: a worker cannot be reached.
        """
        self._is_open = True
        for link in self._early:
            self._let_in(link)
        self._early.clear()
        for worker in sorted(self._outlets):
            link = await self._host.connect(self._address_of(worker))
            if self._is_over:
                link.close()
                raise LinkLost(f"attempt {self._attempt} ended while worker {self._worker} was connecting")
            self._greet(worker, link)

    def accept(self, link: Link) -> None:
        """Take a link that came in at this worker's data listener and was not started yet.

        Before `connect` it is kept as it is; after `close` it is closed.
        """
        if self._is_over:
            link.close()
        elif self._is_open:
            self._let_in(link)
        elif len(self._early) < EARLY_LINKS_MAX:
            self._early.append(link)
        else:
            link.close()

    async def close(self) -> None:
        """End all channels: close every link. What still comes in is dropped."""
        self._is_over = True
        for link in self._links + self._early:
            link.close()
        self._links.clear()
        self._early.clear()

    def _address_of(self, worker: int) -> str:
        if worker not in self._peers:
            raise InternalError(f"worker {self._worker} has a channel to worker {worker}, whose address is not known")
        return self._peers[worker]

    def _greet(self, worker: int, link: Link) -> None:
        """Begin on a link that this side opened."""
        outlets = self._outlets[worker]
        self._links.append(link)
        link.start(partial(_take_grant, outlets), partial(self._lost, worker))
        link.send_nowait(wire.encode_greeting(self._attempt, self._worker))
        for outlet in outlets.values():
            outlet.attach(link)

    def _let_in(self, link: Link) -> None:
        """Begin on a link that another worker opened."""
        self._links.append(link)
        arrival = _Arrival(link, self._codec, self._welcome, self._lost)
        link.start(arrival.on_frame, arrival.on_lost)

    def _welcome(self, link: Link, attempt: int, worker: int) -> dict[bytes, Inbox] | None:
        """The inboxes that a link feeds, by its greeting; None when it belongs to another attempt."""
        if attempt != self._attempt:
            return None
        if worker not in self._inboxes or worker in self._links_in:
            raise InternalError(
                f"worker {worker} opened a second or unexpected data link to worker {self._worker} in attempt {attempt}"
            )
        self._links_in[worker] = link
        return self._inboxes[worker]

    def _send_grant(self, worker: int, head: bytes, batches: int, nbytes: int) -> None:
        self._links_in[worker].send_nowait(head, wire.encode_grant(batches, nbytes))

    def _lost(self, worker: int, reason: str) -> None:
        if not self._is_over:
            self._is_over = True
            self._on_lost(f"the data link between worker {self._worker} and worker {worker} is lost: {reason}")


class _Arrival:
    """A link that another worker opened: its greeting, then its batches and events."""

    def __init__(
        self,
        link: Link,
        codec: ColumnCodec,
        welcome: Callable[[Link, int, int], dict[bytes, Inbox] | None],
        on_lost: Callable[[int, str], None],
    ) -> None:
        self._link = link
        self._codec = codec
        self._welcome = welcome
        self._on_lost = on_lost
        self._worker: int | None = None
        self._inboxes: dict[bytes, Inbox] = {}

    def on_frame(self, frame: bytes) -> None:
        if self._worker is None:
            self._read_greeting(frame)
            return
        inbox = self._inboxes.get(frame[1 : wire.CHANNEL_END])
        if inbox is None:
            raise InternalError(f"worker {self._worker} sent {frame[:40]!r} for a channel that does not lead here")
        if frame[0] == wire.BATCH:
            self._read_batch(inbox, frame)
        elif frame[0] == wire.EVENT:
            inbox.put_event(wire.decode_event(frame[wire.CHANNEL_END :]))
        else:
            raise InternalError(f"worker {self._worker} sent a frame of an unknown kind: {frame[:40]!r}")

    def on_lost(self, reason: str) -> None:
        # A link that never greeted belonged to nobody.
        if self._worker is not None:
            self._on_lost(self._worker, reason)

    def _read_greeting(self, frame: bytes) -> None:
        attempt, worker = wire.decode_greeting(frame)
        inboxes = self._welcome(self._link, attempt, worker)
        if inboxes is None:
            self._link.close()
        else:
            self._worker, self._inboxes = worker, inboxes

    def _read_batch(self, inbox: Inbox, frame: bytes) -> None:
        size = len(frame) - wire.CHANNEL_END
        try:
            batch = decode_batch(self._codec, frame, wire.CHANNEL_END)
        except Exception as error:  # noqa: BLE001  raised again where the batch is taken, so that it names the operator
            batch = BrokenBatch(error)
        inbox.put_batch(batch, size)


def _take_grant(outlets: dict[bytes, RemoteOutlet], frame: bytes) -> None:
    outlet = outlets.get(frame[1 : wire.CHANNEL_END])
    if outlet is None or frame[0] != wire.GRANT:
        raise InternalError(f"a grant was expected on a data link, but {frame[:40]!r} came")
    outlet.granted(*wire.decode_grant(frame))


class Reception:
    """Where a worker's data listener hands its links: to the exchange of the attempt that is deployed.

    It outlives the attempts. Links that come while no attempt is deployed are kept, not started, until the next one is:
    another worker may have been deployed a little earlier. `on_link` is what `Host.listen` takes.
    """

    def __init__(self) -> None:
        self._exchange: Exchange | None = None
        self._early: list[Link] = []

    def on_link(self, link: Link) -> None:
        """A link came in."""
        if self._exchange is not None:
            self._exchange.accept(link)
        elif len(self._early) < EARLY_LINKS_MAX:
            self._early.append(link)
        else:
            link.close()

    def begin(self, exchange: Exchange) -> None:
        """An attempt is being deployed: its exchange gets the links that wait and those that come."""
        self._exchange = exchange
        for link in self._early:
            exchange.accept(link)
        self._early.clear()

    def end(self) -> None:
        """The attempt is over: links that come from now on are for the next one."""
        self._exchange = None

    def close(self) -> None:
        """There will be no other attempt: close what waits for one."""
        self._exchange = None
        for link in self._early:
            link.close()
        self._early.clear()
