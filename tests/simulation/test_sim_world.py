"""Simulated processes, links, disks and heartbeats: death, pauses and what others notice of them."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from flowpoint.errors import LinkLost
from flowpoint.sim.world import SIGKILL, ProcessGone, SimWorld
from tests.simulation.worlds import idle, start_idle

SEEDS = range(25)


def in_world(main, seed: int = 0, **programs):
    """Run `main(world)` in a fresh world with these programs; returns the result and the world."""
    world = SimWorld(seed)
    world.programs |= {"idle": idle, **programs}
    try:
        return world.run(main(world)), world
    finally:
        world.close()


def act_as(process, coro):
    return process.world.loop.create_task(coro, context=process.context.copy())


async def linked(world, on_frame, on_lost):
    """A link from process a to process b; frames arrive in `on_frame`."""
    a, b = start_idle(world), start_idle(world)

    async def serve():
        await b.host.listen("/door", lambda link: link.start(on_frame, on_lost))

    async def open_link():
        return await a.host.connect("/door")

    await act_as(b, serve())
    return a, b, await act_as(a, open_link())


# ------------------------------------------------------------------ processes


def test_when_a_main_returns_then_its_code_is_the_exit_code():
    async def seven(host, args):
        return 7

    async def main(world):
        return await world.start("seven", ()).wait_exit()

    assert in_world(main, seven=seven)[0] == 7


def test_when_a_main_raises_then_it_exits_with_1_and_the_trace_is_in_the_story():
    async def broken(host, args):
        raise ValueError("no such thing")

    async def main(world):
        return await world.start("broken", ()).wait_exit()

    code, world = in_world(main, broken=broken)

    assert code == 1
    assert any("ValueError: no such thing" in line for line in world.trace.lines)


def test_sys_exit_ends_the_process_with_its_code_wherever_it_is_called():
    async def leaves(host, args):
        asyncio.get_running_loop().call_later(1, exec, "raise SystemExit(5)")
        await asyncio.Event().wait()

    async def main(world):
        return await world.start("leaves", ()).wait_exit()

    assert in_world(main, leaves=leaves)[0] == 5


def test_what_a_returning_main_leaves_behind_is_a_complaint():
    async def careless(host, args):
        await host.listen("/door", lambda link: None)
        careless.task = asyncio.create_task(asyncio.sleep(100))
        await host.disk.make_dirs("/d")
        await host.disk.create("/d/f")
        return 0

    async def main(world):
        await world.start("careless", ()).wait_exit()

    complaints = "\n".join(in_world(main, careless=careless)[1].complaints)

    assert "listener /door" in complaints
    assert "sleep" in complaints
    assert "file /d/f" in complaints


def test_an_error_that_nobody_awaits_is_a_complaint():
    async def careless(host, args):
        asyncio.get_running_loop().call_soon([].pop)
        await asyncio.sleep(1)
        return 0

    async def main(world):
        await world.start("careless", ()).wait_exit()

    assert "IndexError" in in_world(main, careless=careless)[1].complaints[0]


def test_when_a_process_is_killed_then_its_parent_hears_minus_nine_and_its_children_die_soon():
    async def parent(host, args):
        child = await host.start_process("idle", ["x"], None)
        return await child.wait()

    async def main(world):
        process = world.start("parent", ())
        await asyncio.sleep(1)
        child = world.living()[1]
        world.kill(process, "by the test")
        await asyncio.sleep(0.1)
        assert not world.living()
        return child.exit_code, await process.wait_exit()

    assert in_world(main, parent=parent)[0] == (SIGKILL, SIGKILL)


def test_the_last_words_of_a_child_are_in_its_log():
    async def broken(host, args):
        raise ValueError("no such thing")

    async def parent(host, args):
        await host.disk.make_dirs("/logs")
        child = await host.start_process("broken", [], "/logs/worker.log")
        return await child.wait()

    async def main(world):
        await world.start("parent", ()).wait_exit()

    _, world = in_world(main, broken=broken, parent=parent)

    assert b"ValueError: no such thing" in world.files.file("/logs/worker.log").data


def test_kill_reaps_a_child_and_wait_may_be_called_by_several():
    async def parent(host, args):
        child = await host.start_process("idle", [], None)
        child.kill()
        child.kill()
        codes = await asyncio.gather(child.wait(), child.wait())
        return 0 if codes == [SIGKILL, SIGKILL] else 1

    async def main(world):
        return await world.start("parent", ()).wait_exit()

    assert in_world(main, parent=parent)[0] == 0


def test_kill_stale_kills_only_the_very_process():
    async def main(world):
        victim, killer = start_idle(world), start_idle(world)

        async def kill():
            wrong = await killer.host.kill_stale(victim.pid, victim.start_time + 1)
            alive = victim.alive
            right = await killer.host.kill_stale(victim.pid, victim.start_time)
            return wrong, alive, right, victim.alive

        return await act_as(killer, kill())

    assert in_world(main)[0] == (False, True, True, False)


def test_a_dead_process_changes_nothing_even_in_its_finally_blocks():
    async def stubborn(host, args):
        await host.disk.make_dirs("/d")
        try:
            await asyncio.sleep(100)
        finally:
            await host.disk.create("/d/too-late")

    async def main(world):
        process = world.start("stubborn", ())
        await asyncio.sleep(1)
        world.kill(process, "by the test")
        await asyncio.sleep(200)
        with pytest.raises(ProcessGone):
            process.host.new_id()
        return process

    _, world = in_world(main, stubborn=stubborn)

    assert world.files.list("/d") == []


# ------------------------------------------------------------------ links


@pytest.mark.parametrize("seed", SEEDS)
def test_frames_stay_in_order_when_callbacks_run_in_any_order(seed):
    async def main(world):
        seen = []
        world.network.stall_rate = 0.1
        _, _, link = await linked(world, seen.append, lambda reason: None)
        for i in range(100):
            link.send_nowait(b"%d" % i)
            await asyncio.sleep(0.001)
        await asyncio.sleep(200)
        return seen

    assert in_world(main, seed)[0] == [b"%d" % i for i in range(100)]


def test_when_the_sender_is_killed_then_a_prefix_arrives_and_then_the_loss():
    lengths = set()
    for seed in SEEDS:

        async def main(world):
            seen, losses = [], []
            a, _, link = await linked(world, seen.append, losses.append)
            for i in range(5):
                link.send_nowait(b"%d" % i)
            world.kill(a, "by the test")
            await asyncio.sleep(5)
            assert len(losses) == 1
            return seen

        seen, _ = in_world(main, seed)
        assert seen == [b"%d" % i for i in range(len(seen))]
        lengths.add(len(seen))

    assert {0, 5} < lengths


def test_a_connection_that_was_not_accepted_when_its_listener_died_is_lost():
    async def main(world):
        a, b = start_idle(world), start_idle(world)
        losses = []

        async def serve():
            await b.host.listen("/door", lambda link: None)

        async def open_link():
            (await a.host.connect("/door")).start(lambda frame: None, losses.append)

        await act_as(b, serve())
        world.pause(b)
        await act_as(a, open_link())
        world.kill(b, "by the test")
        await asyncio.sleep(5)
        with pytest.raises(LinkLost):
            await act_as(a, open_link())
        return losses

    assert len(in_world(main)[0]) == 1


def test_frames_to_a_paused_process_wait_for_it():
    async def main(world):
        seen = []
        _, b, link = await linked(world, seen.append, lambda reason: None)
        world.pause(b)
        link.send_nowait(b"x")
        await asyncio.sleep(10)
        before = list(seen)
        world.resume(b)
        await asyncio.sleep(1)
        return before, seen

    assert in_world(main)[0] == ([], [b"x"])


def test_a_silent_cut_loses_frames_without_a_word_until_it_is_noticed():
    async def main(world):
        seen, losses = [], []
        _, _, link = await linked(world, seen.append, losses.append)
        link.cut_out()
        link.send_nowait(b"x")
        await asyncio.sleep(100)
        silent = list(losses)
        world.heal()
        await asyncio.sleep(5)
        return seen, silent, len(losses)

    assert in_world(main)[0] == ([], [], 1)


# ------------------------------------------------------------------ heartbeats


async def beating(host, args):
    host.start_heartbeat("/door", b"beat", 0.5)
    await asyncio.Event().wait()


async def hearing(world):
    """A process that listens for beats, one that sends them, and the times at which they came."""
    times = []
    listener = start_idle(world)

    async def serve():
        await listener.host.listen(
            "/door", lambda link: link.start(lambda frame: times.append(world.loop.time()), lambda reason: None)
        )

    await act_as(listener, serve())
    return listener, world.start("beating", ()), times


def test_heartbeats_stop_while_their_process_is_paused():
    async def main(world):
        _, process, times = await hearing(world)
        await asyncio.sleep(2)
        world.pause(process)
        await asyncio.sleep(5)
        world.resume(process)
        await asyncio.sleep(2)
        return max(b - a for a, b in pairwise(times)), len(times)

    (gap, count), _ = in_world(main, beating=beating)

    assert gap > 4
    assert 7 <= count <= 10


def test_when_the_other_end_dies_then_the_heartbeat_ends_its_process():
    async def main(world):
        listener, process, _ = await hearing(world)
        await asyncio.sleep(1)
        world.kill(listener, "by the test")
        code = await process.wait_exit()
        return code, process.exit_reason

    (code, reason), _ = in_world(main, beating=beating)

    assert code != 0
    assert "heartbeat" in reason


# ------------------------------------------------------------------ disk


def test_a_kill_between_effect_and_answer_leaves_the_effect():
    async def main(world):
        process = start_idle(world)
        world.watch_points(
            lambda point: world.kill(point.process, "at the link") if point.operation == "disk.link" else None
        )
        answered = []

        async def act(phase):
            await process.host.disk.make_dirs("/d")
            await process.host.disk.create("/d/a")
            await process.host.disk.link("/d/a", "/d/b")
            answered.append("yes")

        act_as(process, act("after"))
        await asyncio.sleep(1)
        return answered, world.files.list("/d")

    assert in_world(main)[0] == ([], ["a"])


def test_an_operation_whose_caller_was_cancelled_still_takes_effect():
    async def main(world):
        process = start_idle(world)

        async def act():
            await process.host.disk.make_dirs("/d")
            creating = asyncio.create_task(process.host.disk.create("/d/f"))
            while not process.doing:
                await asyncio.sleep(0)
            creating.cancel()
            await asyncio.wait([creating])
            await asyncio.sleep(1)
            return creating.cancelled(), await process.host.disk.list("/d")

        return await act_as(process, act())

    assert in_world(main)[0] == (True, ["f"])


def test_a_lost_answer_is_an_error_of_something_that_was_done():
    async def main(world):
        process = start_idle(world)

        async def act():
            await process.host.disk.make_dirs("/d")
            world.disk_faults.lost_answer_rate = 1.0
            with pytest.raises(OSError, match="answer was lost"):
                await process.host.disk.create("/d/f")
            world.heal()
            return await process.host.disk.list("/d")

        return await act_as(process, act())

    assert in_world(main)[0] == ["f"]


def test_a_full_disk_takes_a_part_of_a_write_and_says_so():
    async def main(world):
        process = start_idle(world)

        async def act():
            await process.host.disk.make_dirs("/d")
            file = await process.host.disk.create("/d/f")
            world.disk_faults.full = True
            with pytest.raises(OSError, match="no space"):
                await file.write(b"x" * 1000)
            with pytest.raises(OSError, match="no space"):
                await process.host.disk.create("/d/g")
            return len(await process.host.disk.read("/d/f"))

        return await act_as(process, act())

    assert {0 <= in_world(main, seed)[0] <= 1000 for seed in SEEDS} == {True}


def test_an_injected_error_of_a_sync_loses_the_file():
    async def main(world):
        process = start_idle(world)

        async def act():
            await process.host.disk.make_dirs("/d")
            file = await process.host.disk.create("/d/f")
            await file.write(b"data")
            await process.host.disk.sync_dir("/d")
            world.disk_faults.error_rate = 1.0
            with pytest.raises(OSError, match="injected"):
                await file.sync()
            world.heal()
            await file.sync()
            await file.close()
            return world.files.is_durable("/d/f")

        return await act_as(process, act())

    assert in_world(main)[0] is False
