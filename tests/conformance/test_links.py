"""What every world's links must do. See `worlds` for how to add a world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from flowpoint.errors import LinkLost
from flowpoint.host.base import Host, Link, Listener
from tests.conformance.worlds import WORLDS, Check, World, checks_of


class End:
    """One end of a link, with what came in on it."""

    def __init__(self, link: Link, on_frame: Callable[[bytes], None] | None = None) -> None:
        self.link = link
        self.frames: list[bytes] = []
        self.losses: list[str] = []
        self.frames_at_loss = -1
        self._changed = asyncio.Event()
        self._on_frame = on_frame

    def start(self) -> End:
        self.link.start(self._take, self._lose)
        return self

    def _take(self, frame: bytes) -> None:
        assert type(frame) is bytes
        self.frames.append(frame)
        self._changed.set()
        if self._on_frame is not None:
            self._on_frame(frame)

    def _lose(self, reason: str) -> None:
        self.losses.append(reason)
        self.frames_at_loss = len(self.frames)
        self._changed.set()

    async def wait_for(self, condition: Callable[[], object]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def wait_frames(self, count: int) -> None:
        await self.wait_for(lambda: len(self.frames) >= count)

    async def wait_lost(self) -> None:
        await self.wait_for(lambda: self.losses)


async def pair(a: Host, b: Host) -> tuple[Link, Link, Listener]:
    """A link from `a` to a listener of `b`; neither end is started."""
    arrived: asyncio.Future[Link] = asyncio.get_running_loop().create_future()
    listener = await b.listen(b.socket_address("door"), arrived.set_result)
    near = await a.connect(listener.address)
    return near, await arrived, listener


async def started_pair(a: Host, b: Host) -> tuple[End, End]:
    near, far, _ = await pair(a, b)
    return End(near).start(), End(far).start()


async def settle(a: Host, b: Host) -> None:
    """Wait until whatever was under way between the hosts has come about: a whole other conversation took place."""
    near, far = await started_pair_at(a, b, "settle")
    near.link.send_nowait(b"ping")
    await far.wait_frames(1)
    far.link.send_nowait(b"pong")
    await near.wait_frames(1)


async def started_pair_at(a: Host, b: Host, name: str) -> tuple[End, End]:
    arrived: asyncio.Future[Link] = asyncio.get_running_loop().create_future()
    listener = await b.listen(b.socket_address(name), arrived.set_result)
    near = await a.connect(listener.address)
    return End(near).start(), End(await arrived).start()


async def check_frames_arrive_whole_and_in_order(a: Host, b: Host, folder: str) -> None:
    near, far = await started_pair(a, b)
    sent = [bytes([i % 256]) * (i * 37 % 5000) for i in range(300)]

    for frame in sent:
        near.link.send_nowait(frame)
    await far.wait_frames(len(sent))

    assert far.frames == sent


async def check_both_directions_carry_frames(a: Host, b: Host, folder: str) -> None:
    near, far = await started_pair(a, b)

    near.link.send_nowait(b"question")
    far.link.send_nowait(b"answer")
    await far.wait_frames(1)
    await near.wait_frames(1)

    assert (near.frames, far.frames) == ([b"answer"], [b"question"])


async def check_parts_are_joined_into_one_frame(a: Host, b: Host, folder: str) -> None:
    near, far = await started_pair(a, b)

    near.link.send_nowait(b"one ", b"", b"frame")
    near.link.send_nowait()
    near.link.send_nowait(b"x" * 100_000, b"y")
    await far.wait_frames(3)

    assert far.frames == [b"one frame", b"", b"x" * 100_000 + b"y"]


async def check_a_frame_bigger_than_any_buffer_passes(a: Host, b: Host, folder: str) -> None:
    near, far = await started_pair(a, b)
    big = bytes(range(256)) * 40_000

    near.link.send_nowait(b"before")
    near.link.send_nowait(big)
    near.link.send_nowait(b"after")
    await far.wait_frames(3)

    assert far.frames == [b"before", big, b"after"]


async def check_frames_that_came_before_start_are_kept(a: Host, b: Host, folder: str) -> None:
    near, far, _ = await pair(a, b)
    near.start(lambda frame: None, lambda reason: None)
    sent = [b"%d" % i * 1000 for i in range(500)]

    for frame in sent:
        near.send_nowait(frame)
    await settle(a, b)
    end = End(far).start()
    await end.wait_frames(len(sent))

    assert end.frames == sent


async def check_start_calls_nothing_from_inside(a: Host, b: Host, folder: str) -> None:
    near, far, _ = await pair(a, b)
    near.send_nowait(b"early")
    await settle(a, b)

    end = End(far).start()

    assert end.frames == []
    await end.wait_frames(1)


async def check_what_was_sent_before_close_arrives_and_then_the_loss_once(a: Host, b: Host, folder: str) -> None:
    near, far = await started_pair(a, b)
    sent = [b"x" * 50_000] * 40

    for frame in sent:
        near.link.send_nowait(frame)
    near.link.close()
    await far.wait_lost()
    await settle(a, b)

    assert far.frames == sent
    assert (len(far.losses), far.frames_at_loss) == (1, len(sent))
    assert far.losses[0]


async def check_a_link_closed_before_the_other_end_started_still_delivers(a: Host, b: Host, folder: str) -> None:
    near, far, _ = await pair(a, b)

    near.send_nowait(b"last words")
    near.close()
    await settle(a, b)
    end = End(far).start()
    await end.wait_lost()

    assert (end.frames, len(end.losses)) == ([b"last words"], 1)


async def check_no_callback_comes_after_close_on_this_side(a: Host, b: Host, folder: str) -> None:
    near, far = await started_pair(a, b)

    far.link.send_nowait(b"too late")
    near.link.close()
    await far.wait_lost()
    await settle(a, b)

    assert (near.frames, near.losses) == ([], [])


async def check_close_inside_a_callback_stops_delivery_at_once(a: Host, b: Host, folder: str) -> None:
    near, far, _ = await pair(a, b)
    reader = End(far, on_frame=lambda frame: far.close())

    for _ in range(5):
        near.send_nowait(b"frame")
    await settle(a, b)
    reader.start()
    await End(near).start().wait_lost()

    assert (len(reader.frames), reader.losses) == (1, [])


async def check_last_words_are_heard_by_an_end_that_is_writing(a: Host, b: Host, folder: str) -> None:
    near, far = await started_pair(a, b)

    near.link.send_nowait(b"last words")
    near.link.close()
    for _ in range(100):
        far.link.send_nowait(b"w" * 10_000)
    await far.wait_lost()

    assert far.frames == [b"last words"]


async def check_both_ends_may_close_at_the_same_time(a: Host, b: Host, folder: str) -> None:
    near, far = await started_pair(a, b)

    near.link.close()
    far.link.close()
    near.link.close()
    await settle(a, b)

    assert (near.losses, far.losses) == ([], [])


async def check_sending_on_a_closed_or_lost_link_is_dropped(a: Host, b: Host, folder: str) -> None:
    near, far = await started_pair(a, b)

    near.link.close()
    near.link.send_nowait(b"nobody hears this")
    await far.wait_lost()
    far.link.send_nowait(b"nor this")

    assert (near.frames, far.frames, far.link.queued_bytes) == ([], [], 0)


async def check_an_exception_in_on_frame_closes_the_link_on_both_sides(a: Host, b: Host, folder: str) -> None:
    problems: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
    near, far, _ = await pair(a, b)

    def refuse(frame: bytes) -> None:
        raise ValueError("no such message")

    reader = End(far, on_frame=refuse).start()
    writer = End(near).start()
    near.send_nowait(b"one")
    near.send_nowait(b"two")
    await reader.wait_lost()
    await writer.wait_lost()

    assert (len(reader.frames), len(reader.losses), len(writer.losses)) == (1, 1, 1)
    assert "no such message" in reader.losses[0]


async def check_an_other_end_that_is_none_of_ours_is_lost_without_a_report_of_a_bug(
    a: Host, b: Host, folder: str
) -> None:
    problems: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
    near, far, _ = await pair(a, b)

    def refuse(frame: bytes) -> None:
        raise LinkLost("it is a stranger")

    reader = End(far, on_frame=refuse).start()
    writer = End(near).start()
    near.send_nowait(b"one")
    await reader.wait_lost()
    await writer.wait_lost()

    assert reader.losses == ["it is a stranger"]
    assert not any("exception" in problem for problem in problems)


async def check_queued_bytes_tell_what_the_other_side_did_not_take(a: Host, b: Host, folder: str) -> None:
    near, far, _ = await pair(a, b)
    End(near).start()
    assert near.queued_bytes == 0

    for _ in range(100):
        near.send_nowait(b"x" * 100_000)
    assert near.queued_bytes > 1_000_000
    reader = End(far).start()
    await reader.wait_frames(100)

    assert near.queued_bytes == 0


async def check_connecting_where_nobody_listens_is_a_lost_link(a: Host, b: Host, folder: str) -> None:
    with pytest.raises(LinkLost, match="cannot connect"):
        await a.connect(b.socket_address("nobody"))


async def check_a_closed_listener_lets_nobody_in_but_keeps_its_links(a: Host, b: Host, folder: str) -> None:
    near, far, listener = await pair(a, b)
    reader = End(far).start()

    listener.close()
    with pytest.raises(LinkLost):
        await a.connect(listener.address)
    near.send_nowait(b"still here")
    await reader.wait_frames(1)

    assert reader.frames == [b"still here"]


async def check_an_address_can_be_used_again_after_its_listener_closed(a: Host, b: Host, folder: str) -> None:
    _, _, listener = await pair(a, b)
    listener.close()

    second, far, _ = await pair(a, b)
    second.send_nowait(b"new")
    reader = End(far).start()
    await reader.wait_frames(1)

    assert reader.frames == [b"new"]


async def check_an_address_in_use_is_refused(a: Host, b: Host, folder: str) -> None:
    listener = await b.listen(b.socket_address("door"), lambda link: None)

    with pytest.raises(OSError):
        await b.listen(listener.address, lambda link: None)


async def check_links_of_one_listener_do_not_mix(a: Host, b: Host, folder: str) -> None:
    ends: list[End] = []
    listener = await b.listen(b.socket_address("door"), lambda link: ends.append(End(link).start()))
    links = [await a.connect(listener.address) for _ in range(5)]

    for i, link in enumerate(links):
        for n in range(20):
            link.send_nowait(b"%d/%d" % (i, n))
        link.close()
    await settle(a, b)
    for end in ends:
        await end.wait_lost()

    assert sorted(end.frames for end in ends) == [[b"%d/%d" % (i, n) for n in range(20)] for i in range(5)]


@pytest.mark.parametrize("check", checks_of(globals()), ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_links(world: World, check: Check) -> None:
    world.run(check)
