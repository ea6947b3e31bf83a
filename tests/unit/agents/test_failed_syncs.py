"""A log that could not be synced, which the disk alone decides: RocksDB refuses all writes from then on, and says why.

`RocksKv` relies on that where it syncs beside its caller. A system call fails here for one thread, by a filter that ends with
the thread, so that the real RocksDB meets the real error.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from flowpoint.agents import rocks_kv
from flowpoint.agents.rocks_kv import RocksKv
from flowpoint.errors import StorageError

FSYNC_AND_FDATASYNC = {"x86_64": (74, 75), "aarch64": (82, 83)}
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
RET_ERRNO, RET_ALLOW = 0x00050000, 0x7FFF0000
LOAD_NUMBER, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in FSYNC_AND_FDATASYNC,
    reason="filters of Linux, for known numbers",
)


class Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte), ("k", ctypes.c_uint))


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(Instruction)))


def fail_syncs() -> str:
    """From now on no file can be synced by this thread; why that cannot be arranged, or ""."""
    first, second = FSYNC_AND_FDATASYNC[platform.machine()]
    instructions = (Instruction * 5)(
        Instruction(LOAD_NUMBER, 0, 0, 0),
        Instruction(JUMP_IF_EQUAL, 1, 0, first),
        Instruction(JUMP_IF_EQUAL, 0, 1, second),
        Instruction(RETURN, 0, 0, RET_ERRNO | errno.EIO),
        Instruction(RETURN, 0, 0, RET_ALLOW),
    )
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return os.strerror(ctypes.get_errno())
    program = Program(len(instructions), instructions)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0):
        return os.strerror(ctypes.get_errno())
    return ""


def where_syncs_fail(do: Callable[[], object]) -> None:
    """Do something in a thread of its own."""
    refused: list[str] = []

    def run() -> None:
        refused.append(fail_syncs())
        if not refused[0]:
            do()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if refused[0]:
        pytest.skip(f"this machine does not let system calls be filtered: {refused[0]}")


@pytest.fixture
def kv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RocksKv:
    """A store with an entry that is not synced yet, nor will be by itself."""
    monkeypatch.setattr(rocks_kv, "FLUSH_SECONDS", 3600.0)
    kv = RocksKv(tmp_path)
    kv.write([("before", b"1")], sync=False)
    return kv


@pytest.mark.parametrize("sync", [True, False])
def test_after_a_sync_beside_its_caller_has_failed_every_write_and_the_close_are_refused(
    kv: RocksKv, tmp_path: Path, *, sync: bool
) -> None:
    where_syncs_fail(kv._db._sync_rest)

    for _ in range(2):
        with pytest.raises(StorageError, match=f"cannot write {tmp_path}: .*Input/output error"):
            kv.write([("after", b"2")], sync=sync)
    assert kv.get("after") is None

    with pytest.raises(StorageError, match=f"cannot close {tmp_path}: .*Input/output error"):
        kv.close()


def test_a_close_whose_sync_fails_says_so_and_the_store_can_be_opened_again(kv: RocksKv, tmp_path: Path) -> None:
    told: list[StorageError] = []

    def close() -> None:
        with pytest.raises(StorageError, match=f"cannot close {tmp_path}: .*Input/output error") as caught:
            kv.close()
        told.append(caught.value)

    where_syncs_fail(close)

    assert told
    again = RocksKv(tmp_path)
    # The log was written, and the process lives: only a loss of power would take it.
    assert again.get("before") == b"1"
    again.close()
