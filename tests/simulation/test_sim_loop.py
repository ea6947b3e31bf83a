"""The simulated loop: asyncio works on it, time is virtual, order is the seed's, the dead and the paused do not run."""

from __future__ import annotations

import asyncio
import time
from contextvars import Context
from random import Random

import pytest

from flowpoint.sim.loop import Deadlock, SimLoop, StepLimit
from flowpoint.sim.tasks import OWNER, Owner

ORDERS = [None, 1, 2]


def run(main, order=None, **options):
    loop = SimLoop(None if order is None else Random(order), **options)
    try:
        return loop.run_until_complete(main)
    finally:
        loop.dispose()


def start_as(owner: Owner, coro):
    context = Context()
    context.run(OWNER.set, owner)
    return asyncio.get_running_loop().create_task(coro, context=context)


@pytest.mark.parametrize("order", ORDERS)
def test_a_month_of_sleep_takes_no_time(order):
    async def main():
        await asyncio.sleep(30 * 86_400)
        return asyncio.get_running_loop().time()

    began = time.process_time()

    assert 30 * 86_400 <= run(main(), order) < 30 * 86_400 + 1
    assert time.process_time() - began < 1


@pytest.mark.parametrize("order", ORDERS)
def test_queues_events_conditions_and_groups_work(order):
    async def main():
        queue: asyncio.Queue[int] = asyncio.Queue(2)
        done, changed, seen = asyncio.Event(), asyncio.Condition(), []

        async def produce():
            for i in range(10):
                await queue.put(i)
            done.set()

        async def consume():
            while len(seen) < 10:
                seen.append(await queue.get())
                async with changed:
                    changed.notify_all()

        async def watch():
            async with changed:
                await changed.wait_for(lambda: len(seen) >= 5)

        async with asyncio.TaskGroup() as group:
            for part in produce(), consume(), watch():
                group.create_task(part)
        assert done.is_set()
        return seen

    assert run(main(), order) == list(range(10))


@pytest.mark.parametrize("order", ORDERS)
def test_timeouts_and_wait_for_expire_in_virtual_time(order):
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(10)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 3)
        return asyncio.get_running_loop().time()

    assert run(main(), order) == pytest.approx(8, abs=0.01)


def test_timers_of_one_moment_fire_in_the_order_of_their_setting():
    async def main():
        fired = []
        for i in range(20):
            asyncio.get_running_loop().call_at(1.0, fired.append, i)
        await asyncio.sleep(2)
        return fired

    assert run(main()) == list(range(20))


def test_a_seed_gives_one_order_and_seeds_give_different_ones():
    async def main():
        order = []

        async def step(i):
            order.append(i)

        await asyncio.gather(*(step(i) for i in range(8)))
        return tuple(order)

    orders = [run(main(), seed) for seed in range(20)]

    assert orders == [run(main(), seed) for seed in range(20)]
    assert len(set(orders)) > 10
    assert run(main(), None) == tuple(range(8))


@pytest.mark.parametrize("order", ORDERS)
def test_a_failing_group_cancels_its_children_in_the_same_order_every_time(order):
    async def main():
        cancelled = []

        async def child(i):
            try:
                await asyncio.sleep(100)
            finally:
                cancelled.append(i)

        with pytest.raises(ExceptionGroup):  # noqa: PT012 - the group is what raises
            async with asyncio.TaskGroup() as group:
                for i in range(12):
                    group.create_task(child(i))
                await asyncio.sleep(1)
                raise ValueError
        return cancelled

    ballast = [bytearray(i * 50) for i in range(50)]  # other addresses for other runs

    assert len({tuple(run(main(), order)) for _ in range(15)}) == 1
    assert ballast


def test_busy_code_does_not_stop_the_clock():
    async def main():
        loop = asyncio.get_running_loop()
        while loop.time() < 0.01:
            await asyncio.sleep(0)

    run(main(), step_cost=1e-4)


def test_when_nobody_can_go_on_then_everybody_is_listed_with_the_place_where_they_wait():
    async def wait_for_godot():
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match=r"Event\.wait .*locks\.py"):
        run(wait_for_godot())


def test_when_code_goes_round_for_ever_then_the_step_limit_ends_it():
    async def spin():
        while True:
            await asyncio.sleep(0)

    with pytest.raises(StepLimit, match="1000 steps"):
        run(spin(), step_limit=1000)


def test_threads_and_sockets_are_refused_in_words():
    async def main():
        with pytest.raises(NotImplementedError, match=r"run_in_executor.*Host"):
            await asyncio.to_thread(print)
        with pytest.raises(NotImplementedError, match=r"create_unix_connection.*Host"):
            await asyncio.open_unix_connection("/nowhere")
        with pytest.raises(NotImplementedError, match="subprocess_exec"):
            await asyncio.create_subprocess_exec("true")

    run(main())


@pytest.mark.parametrize("order", ORDERS)
def test_a_dead_owner_takes_no_further_step_and_runs_no_finally(order):
    steps = []

    async def victim():
        try:
            while True:
                steps.append("alive")
                await asyncio.sleep(1)
        finally:
            steps.append("finally")

    async def main():
        owner = Owner("victim", 1)
        start_as(owner, victim())
        await asyncio.sleep(2.5)
        owner.alive = False
        await asyncio.sleep(10)
        return list(steps)

    assert run(main(), order) == ["alive"] * 3


@pytest.mark.parametrize("order", ORDERS)
def test_a_paused_owner_goes_on_where_it_was(order):
    times = []

    async def sleeper():
        while len(times) < 4:
            await asyncio.sleep(1)
            times.append(asyncio.get_running_loop().time())

    async def main():
        owner = Owner("sleeper", 1)
        task = start_as(owner, sleeper())
        await asyncio.sleep(1.5)
        owner.paused = True
        await asyncio.sleep(10)
        owner.paused = False
        asyncio.get_running_loop().release(owner)
        await task

    run(main(), order)

    assert times == pytest.approx([1, 11.5, 12.5, 13.5], abs=0.01)


def test_an_aborted_run_raises_before_the_next_step():
    async def main():
        asyncio.get_running_loop().abort(ValueError("broken"))
        await asyncio.sleep(0)
        pytest.fail("a step was taken after the abort")

    with pytest.raises(ValueError, match="broken"):
        run(main())
