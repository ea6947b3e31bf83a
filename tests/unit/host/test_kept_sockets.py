"""A process can be reached at its socket, whatever somebody does to the file of it."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from flowpoint.host import kept_sockets
from flowpoint.host.kept_sockets import KeptSocket, serve_at

ANSWER = b"here"


def serve(sock: socket.socket):
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(ANSWER)
        writer.close()

    return asyncio.start_unix_server(answer, sock=sock)


async def asked(address: str) -> bytes:
    reader, writer = await asyncio.open_unix_connection(address)
    try:
        return await reader.read()
    finally:
        writer.close()


async def answer_in_time(address: str) -> bytes:
    async with asyncio.timeout(10):
        while True:
            try:
                return await asked(address)
            except OSError:
                await asyncio.sleep(0.01)


@pytest.fixture
async def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KeptSocket]:
    monkeypatch.setattr(kept_sockets, "LOOK_SECONDS", 0.01)
    (tmp_path / "job").mkdir()
    kept = await serve_at(str(tmp_path / "job" / "door"), serve)
    yield kept
    kept.close()


def remove_file(folder: Path) -> None:
    (folder / "door").unlink()


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder)


@pytest.mark.parametrize("remove", [remove_file, remove_folder])
async def test_a_socket_that_somebody_has_removed_is_there_again_private_as_before(
    kept: KeptSocket, tmp_path: Path, remove: Callable[[Path], None]
) -> None:
    for _ in range(2):
        assert await asked(kept.address) == ANSWER
        remove(tmp_path / "job")

        assert await answer_in_time(kept.address) == ANSWER
        assert os.stat(kept.address).st_mode & 0o777 == 0o600


async def test_one_that_is_closed_is_gone_for_good(kept: KeptSocket) -> None:
    kept.close()

    await asyncio.sleep(0.05)

    assert not os.path.exists(kept.address)


async def test_a_socket_that_another_one_serves_in_its_place_is_left_alone(kept: KeptSocket) -> None:
    os.unlink(kept.address)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(kept.address)
        other.listen()
        taken = os.stat(kept.address).st_ino

        await asyncio.sleep(0.05)
        kept.close()

        assert os.stat(kept.address).st_ino == taken
