"""Whoever connects to a private socket and speaks something else is told of in one line, and not again at once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from flowpoint.errors import LinkLost
from flowpoint.host.base import Link
from flowpoint.host.strangers import QUIET_SECONDS, Strangers
from flowpoint.host.system import SystemHost

pytestmark = pytest.mark.timeout(20)


def test_each_socket_has_one_line_a_minute_which_counts_what_was_not_said() -> None:
    lines: list[str] = []
    now = [1000.0]
    strangers = Strangers(lines.append, lambda: now[0])

    for address in ("/a", "/b", "/a", "/a"):
        strangers.note(address, "it sent nothing of ours")
    now[0] += QUIET_SECONDS
    strangers.note("/a", "again")

    assert lines == [
        "closed a link that came in at /a: it sent nothing of ours",
        "closed a link that came in at /b: it sent nothing of ours",
        "closed a link that came in at /a: again (and 2 more since the last such line)",
    ]


def refuse(frame: bytes) -> None:
    raise LinkLost(f"it began with {frame!r}")


@pytest.mark.parametrize("sent", [b"\0\0\0\0", b"\0\0\0\3abc", b"GET / HTTP/1.1\r\n\r\n"])
async def test_bytes_that_are_no_frames_of_ours_leave_one_line_without_a_traceback(tmp_path: Path, sent: bytes) -> None:
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    host = SystemHost("a", str(tmp_path / "run"))
    losses: list[str] = []

    def take(link: Link) -> None:
        link.start(refuse, losses.append)

    listener = await host.listen(host.socket_address("door"), take)
    for count in range(1, 4):
        await say_and_wait_for_the_end(listener.address, sent)
        while len(losses) < count:
            await asyncio.sleep(0)

    assert [list(context) for context in told] == [["message"]]
    assert str(told[0]["message"]).startswith(f"closed a link that came in at {listener.address}: ")
    listener.close()
    await host.close()


async def say_and_wait_for_the_end(address: str, sent: bytes) -> None:
    reader, writer = await asyncio.open_unix_connection(address)
    writer.write(sent)
    with suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
