"""Links between simulated processes: ordered frames with drawn latency, stalls, breaks and resets.

A connection is two lanes, one per direction. A lane is a queue of frames with the time at which each is due; one timer
at most is set per lane and delivers, in order, what is due. Order is kept by the lane, not by the loop, so a loop that
draws its next step at random cannot reorder a link.

A frame is delivered in the context in which the receiver called `Link.start`, so a paused receiver gets its frames when
it goes on and a dead one never. When the sender dies, or the link breaks, a drawn prefix of what is under way still
arrives, then the link is lost.

Invariants: `on_lost` comes once, after the last frame; no callback comes after `close`; no frame is changed, doubled or
passed by a later one. Frames are bytes that nobody shares.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from flowpoint.errors import LinkLost
from flowpoint.host.base import Link, Listener

if TYPE_CHECKING:
    from flowpoint.sim.world import SimProcess

KERNEL_BUFFER_BYTES = 128 * 1024
STALL_SECONDS = (0.05, 1.5)


@dataclass(frozen=True, slots=True)
class Lost:
    """The last thing on a lane: why no more frames come."""

    reason: str


class _Lane:
    """One direction of a connection."""

    def __init__(self, network: Network) -> None:
        self.receiver: SimLink
        self.bytes_queued = 0
        self._network = network
        self._queue: deque[tuple[float, bytes | Lost]] = deque()
        self._base_latency = network.draw_latency()
        self._last_due = 0.0
        self._armed = False
        self._over = False
        self._cut = False

    def put(self, item: bytes | Lost) -> None:
        """Send something; nothing follows a `Lost`."""
        if self._over or (self._cut and not isinstance(item, Lost)):
            return
        self._over = isinstance(item, Lost)
        due = asyncio.get_running_loop().time() + self._network.draw_delay(self._base_latency)
        self._last_due = max(self._last_due, due)
        self._queue.append((self._last_due, item))
        if isinstance(item, bytes):
            self.bytes_queued += len(item)
        self.arm()

    def lose(self, reason: str) -> None:
        """Keep a drawn prefix of what is under way, then the end."""
        if self._over:
            return
        kept = self._network.random.randint(0, len(self._queue))
        while len(self._queue) > kept:
            _, item = self._queue.pop()
            self.bytes_queued -= len(item) if isinstance(item, bytes) else 0
        self.put(Lost(reason))

    def stall(self, seconds: float) -> None:
        """Let nothing that is sent from now on arrive before that time has passed."""
        self._last_due = max(self._last_due, asyncio.get_running_loop().time() + seconds)

    def cut(self) -> None:
        """Silently swallow all frames from now on."""
        self._cut = True

    def arm(self) -> None:
        """Set the timer that delivers what is due next, if the receiver listens and none is set."""
        context = self.receiver.context
        if self._armed or not self._queue or context is None:
            return
        self._armed = True
        asyncio.get_running_loop().call_at(self._queue[0][0], self._deliver, context=context)

    def _deliver(self) -> None:
        self._armed = False
        now = asyncio.get_running_loop().time()
        while self._queue and self._queue[0][0] <= now and not self.receiver.closed:
            _, item = self._queue.popleft()
            if isinstance(item, bytes):
                self.bytes_queued -= len(item)
            self.receiver.take(item)
        if not self.receiver.closed:
            self.arm()


class SimLink:
    """One end of a connection. Implements `host.base.Link`."""

    def __init__(self, owner: SimProcess, out: _Lane, network: Network, serial: int) -> None:
        self.owner = owner
        self.context: Context | None = None
        self.closed = False
        self._out = out
        self._network = network
        self._serial = serial
        self._on_frame: Callable[[bytes], None]
        self._on_lost: Callable[[str], None]
        self._inbound: _Lane

    def attach(self, inbound: _Lane) -> None:
        """Make this the receiving end of a lane."""
        self._inbound = inbound
        inbound.receiver = self

    def start(self, on_frame: Callable[[bytes], None], on_lost: Callable[[str], None]) -> None:
        self.owner.require_alive("link.start")
        assert self.context is None, "a link is started once"
        self._on_frame, self._on_lost = on_frame, on_lost
        self.context = copy_context()
        self._inbound.arm()

    def send_nowait(self, *parts: bytes) -> None:
        self.owner.require_alive("link.send_nowait")
        if not self.closed:
            frame = b"".join(parts)
            self._network.tell(self, frame)
            self._out.put(frame)

    def close(self) -> None:
        self.owner.require_alive("link.close")
        self.end("closed by the other side")

    @property
    def queued_bytes(self) -> int:
        return 0 if self.closed else max(0, self._out.bytes_queued - KERNEL_BUFFER_BYTES)

    @property
    def peer(self) -> SimProcess:
        """The process at the other end."""
        return self._out.receiver.owner

    def end(self, reason: str) -> None:
        """Close this end after what is queued; the other side is told."""
        self._forget()
        self._out.put(Lost(reason))

    def reset(self, reason: str) -> None:
        """The process at this end is gone: the other side gets a prefix of what was under way, then the loss."""
        self._forget()
        self._out.lose(reason)

    def break_both(self, reason: str) -> None:
        """Break the connection: both sides get a prefix of what was under way, then the loss."""
        self._out.lose(reason)
        self._inbound.lose(reason)

    def stall(self, seconds: float) -> None:
        """Let what this end sends take that long; the order stays."""
        self._out.stall(seconds)

    def cut_out(self) -> None:
        """Let everything that this end sends vanish silently."""
        self._out.cut()
        self._network.half_open.append(self)

    def take(self, item: bytes | Lost) -> None:
        """Deliver one thing to the program."""
        if isinstance(item, Lost):
            self._forget()
            self._on_lost(item.reason)
            return
        try:
            self._on_frame(item)
        except LinkLost as error:
            if not self.closed:
                self.reset("the other side could not follow the link")
                self._on_lost(str(error))
        except Exception as error:  # noqa: BLE001 - the contract of Link.start: an exception there closes the link
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a frame could not be handled; its link is closed", "exception": error}
            )
            if not self.closed:
                self.reset("the other side could not handle a frame")
                self._on_lost(f"a frame could not be handled: {type(error).__name__}: {error}")

    def _forget(self) -> None:
        self.closed = True
        self.owner.links.pop(self._serial, None)


class SimListener:
    """A bound address. Implements `host.base.Listener`."""

    def __init__(self, network: Network, owner: SimProcess, address: str, on_link: Callable[[Link], None]) -> None:
        self.owner = owner
        self.closed = False
        self._network = network
        self._address = address
        self._on_link = on_link
        self._context = copy_context()

    @property
    def address(self) -> str:
        return self._address

    def close(self) -> None:
        self.closed = True
        if self._network.listeners.get(self._address) is self:
            del self._network.listeners[self._address]

    def offer(self, link: SimLink) -> None:
        """Give a new link to the program, in its own context."""
        asyncio.get_running_loop().call_soon(self._accept, link, context=self._context)

    def _accept(self, link: SimLink) -> None:
        if self.closed:
            link.reset("refused: nobody listens there any more")
        else:
            self._on_link(link)


class Network:
    """All links and listeners of the simulated machine."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.listeners: dict[str, SimListener] = {}
        self.half_open: list[SimLink] = []
        self.stall_rate = 0.0
        self._serial = 0
        self._watchers: list[Callable[[SimLink, bytes], None]] = []

    def watch(self, callback: Callable[[SimLink, bytes], None]) -> None:
        """Call back with every frame that a program sends, before it is on its way."""
        self._watchers.append(callback)

    def tell(self, link: SimLink, frame: bytes) -> None:
        """A program sends a frame."""
        for callback in self._watchers:
            callback(link, frame)

    def listen(self, process: SimProcess, address: str, on_link: Callable[[Link], None]) -> Listener:
        """Bind an address."""
        taken = self.listeners.get(address)
        if taken is not None and taken.owner.alive:
            raise OSError(errno.EADDRINUSE, f"{taken.owner.name} listens there already", address)
        listener = SimListener(self, process, address, on_link)
        self.listeners[address] = listener
        return listener

    def connect(self, process: SimProcess, address: str) -> SimLink:
        """Open a link now. LinkLost when nobody listens there."""
        listener = self.listeners.get(address)
        if listener is None or not listener.owner.alive:
            raise LinkLost(f"cannot connect to {address}: nobody listens there")
        there, back = _Lane(self), _Lane(self)
        near, far = self._link(process, there), self._link(listener.owner, back)
        near.attach(back)
        far.attach(there)
        listener.offer(far)
        return near

    def drop_process(self, process: SimProcess, reason: str) -> None:
        """Everything of a dead process on the network is gone."""
        for listener in [one for one in self.listeners.values() if one.owner is process]:
            listener.close()
        for link in list(process.links.values()):
            link.reset(reason)

    def heal(self) -> None:
        """No more stalls; what was cut silently is now lost aloud."""
        self.stall_rate = 0.0
        for link in self.half_open:
            link.break_both("broken (a silent cut was noticed)")
        self.half_open.clear()

    def draw_latency(self) -> float:
        """The usual latency of a lane."""
        return self.random.choice((0.00005, 0.0002, 0.001, 0.004))

    def draw_delay(self, base: float) -> float:
        """How long one frame takes on a lane of this latency."""
        if self.stall_rate and self.random.random() < self.stall_rate:
            return self.random.uniform(*STALL_SECONDS)
        return base * (0.5 + self.random.random())

    def _link(self, owner: SimProcess, out: _Lane) -> SimLink:
        self._serial += 1
        link = SimLink(owner, out, self, self._serial)
        owner.links[self._serial] = link
        return link
