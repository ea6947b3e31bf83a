"""The loop of a process does not wait for threads that hang."""

from __future__ import annotations

import asyncio
import threading

from flowpoint.host import main_loop


def test_the_loop_ends_while_a_thread_of_its_is_still_at_work() -> None:
    release, begun = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        release.wait()

    async def main() -> str:
        left = asyncio.create_task(asyncio.to_thread(hang))
        await asyncio.to_thread(begun.wait)
        left.cancel()
        return "done"

    ending = threading.Timer(20, release.set)  # so that a failure ends, too
    ending.start()
    try:
        assert main_loop.run(main()) == "done"
        assert not release.is_set()
    finally:
        release.set()
        ending.cancel()
