"""Sealed values open where they were put, with a key that is known, and nowhere else."""

from __future__ import annotations

import pytest

pytest.importorskip("cryptography")

from flowpoint.agents.encryption import SEALED, AesGcmSealer
from flowpoint.errors import ConfigError, SealError

OLD, NEW = bytes(range(32)), bytes(range(1, 17))


def test_a_value_opens_at_its_place_and_does_not_show() -> None:
    sealer = AesGcmSealer({"k": OLD})
    for data in (b"", b"secret" * 100):
        sealed = sealer.seal(data, b"thread/ns/1")
        assert sealer.open(sealed, b"thread/ns/1", "it") == data
        assert sealed[:1] == SEALED and b"secret" not in sealed
    assert sealer.seal(b"x", b"p") != sealer.seal(b"x", b"p")


def test_a_value_that_was_moved_does_not_open() -> None:
    sealer = AesGcmSealer({"k": OLD})
    with pytest.raises(SealError, match="cannot read it: .*belongs to another place"):
        sealer.open(sealer.seal(b"x", b"here"), b"other", "it")


def test_any_changed_byte_is_noticed() -> None:
    sealer = AesGcmSealer({"k": OLD, "l": NEW})
    sealed = sealer.seal(b"value", b"p")
    for at in range(len(sealed)):
        changed = bytes([*sealed[:at], sealed[at] ^ 1, *sealed[at + 1 :]])
        with pytest.raises(SealError):
            sealer.open(changed, b"p", "it")
    for size in range(len(sealed)):
        with pytest.raises(SealError):
            sealer.open(sealed[:size], b"p", "it")


@pytest.mark.parametrize("data", [b"", b"\x01plain", b"\xc1", b"\xc1\xff", b"\x93\x01\x02\x03"])
def test_a_value_that_is_not_encrypted_is_refused(data: bytes) -> None:
    with pytest.raises(SealError, match="it is not encrypted, and the saver has keys"):
        AesGcmSealer({"k": OLD}).open(data, b"p", "it")


def test_keys_are_rotated_by_putting_the_new_one_in_front() -> None:
    before = AesGcmSealer({"old": OLD})
    sealed = before.seal(b"x", b"p")
    both = AesGcmSealer({"new": NEW, "old": OLD})
    assert both.open(sealed, b"p", "it") == b"x"
    after = AesGcmSealer({"new": NEW})
    assert after.open(both.seal(b"y", b"p"), b"p", "it") == b"y"
    with pytest.raises(SealError, match="key 'old', which is not among `keys`"):
        after.open(sealed, b"p", "it")
    with pytest.raises(SealError, match="the key 'old' is not the one"):
        AesGcmSealer({"old": NEW}).open(sealed, b"p", "it")


def test_content_keys_are_alike_for_equal_values_of_one_thread_only() -> None:
    sealer = AesGcmSealer({"k": OLD})
    assert sealer.content_key(b"x", "t") == AesGcmSealer({"k": OLD, "l": NEW}).content_key(b"x", "t")
    others = [
        sealer.content_key(b"x", "t"), sealer.content_key(b"y", "t"), sealer.content_key(b"x", "u"),
        sealer.content_key(b"", "tx"), AesGcmSealer({"k": NEW}).content_key(b"x", "t"),
    ]  # fmt: skip
    assert len(set(others)) == len(others) and all(len(key) == 64 for key in others)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "`keys` is empty"),
        ({"k": b"short"}, "16, 24 or 32 bytes"),
        ({"": OLD}, "1 to 255"),
        ({"k" * 256: OLD}, "1 to 255"),
    ],
)
def test_keys_that_cannot_be_used_are_refused_at_once(keys: dict[str, bytes], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AesGcmSealer(keys)
