"""Addresses and sockets of the real host."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from flowpoint.errors import InternalError
from flowpoint.host.base import Host, Link
from flowpoint.host.short_folder import ADDRESS_BYTES_MAX
from flowpoint.host.system import SystemHost

pytestmark = pytest.mark.timeout(20)


def mode_of(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


async def test_a_socket_is_private(tmp_path: Path) -> None:
    host = SystemHost("a", str(tmp_path / "run"))

    listener = await host.listen(host.socket_address("door"), lambda link: None)

    assert listener.address == str(tmp_path / "run" / "door.sock")
    assert (mode_of(str(tmp_path / "run")), mode_of(listener.address)) == (0o700, 0o600)
    listener.close()
    assert not os.path.exists(listener.address)
    await host.close()


async def test_a_long_run_folder_falls_back_to_a_short_private_one(tmp_path: Path) -> None:
    host = SystemHost("a", str(tmp_path / ("long" * 30)))

    address = host.socket_address("door")
    listener = await host.listen(address, lambda link: None)

    assert len(os.fsencode(address)) <= ADDRESS_BYTES_MAX
    assert mode_of(os.path.dirname(address)) == 0o700
    assert os.path.dirname(host.socket_address("other")) == os.path.dirname(address)
    listener.close()
    await host.close()
    assert not os.path.exists(os.path.dirname(address))


async def test_a_name_too_long_for_any_folder_is_refused(tmp_path: Path) -> None:
    host = SystemHost("a", str(tmp_path))

    with pytest.raises(InternalError, match="too long"):
        host.socket_address("x" * 100)
    await host.close()


async def test_the_socket_of_a_dead_process_is_replaced(tmp_path: Path) -> None:
    host = SystemHost("a", str(tmp_path))
    address = host.socket_address("door")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(address)

    arrived: asyncio.Future[Link] = asyncio.get_running_loop().create_future()
    listener = await host.listen(address, arrived.set_result)
    await host.connect(address)

    assert await arrived
    listener.close()
    await host.close()


async def test_a_file_in_the_place_of_a_socket_is_not_touched(tmp_path: Path) -> None:
    host = SystemHost("a", str(tmp_path))
    address = host.socket_address("door")
    Path(address).write_text("precious")

    with pytest.raises(OSError, match="no socket"):
        await host.listen(address, lambda link: None)

    assert Path(address).read_text() == "precious"
    await host.close()


async def test_closing_the_host_sends_what_its_links_hold(tmp_path: Path) -> None:
    sender, receiver = SystemHost("a", str(tmp_path)), SystemHost("b", str(tmp_path))
    frames: list[bytes] = []

    def on_link(link: Link) -> None:
        link.start(frames.append, lambda reason: None)

    listener = await receiver.listen(receiver.socket_address("door"), on_link)
    link = await sender.connect(listener.address)

    for _ in range(20):
        link.send_nowait(b"x" * 1_000_000)
    await sender.close()

    assert len(frames) == 20
    listener.close()
    await receiver.close()


async def test_closing_the_host_does_not_wait_for_an_end_that_does_not_read(tmp_path: Path) -> None:
    sender, receiver = SystemHost("a", str(tmp_path)), SystemHost("b", str(tmp_path))
    listener = await receiver.listen(receiver.socket_address("door"), lambda link: None)
    link = await sender.connect(listener.address)

    link.send_nowait(b"x" * 10_000_000)
    await sender.close(timeout=0.01)

    listener.close()
    await receiver.close(timeout=0.01)


async def test_it_is_a_host_that_knows_itself(tmp_path: Path) -> None:
    host: Host = SystemHost("a", str(tmp_path))

    assert (host.name, host.pid) == ("a", os.getpid())
    assert host.start_time == pytest.approx(psutil.Process().create_time())
    assert len({host.new_id() for _ in range(100)}) == 100
    assert len(host.new_id()) == 16
    assert await host.run_blocking(lambda a, b: a + b, 1, 2) == 3
