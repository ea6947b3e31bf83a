"""Encryption of stored values with AES-GCM, each bound to the place where it is kept.

    sealed = SEALED, length of the key id, key id, nonce (12 bytes), ciphertext with its tag

The first of `keys` encrypts, all of them decrypt: to rotate, put the new key in front and keep the old ones as long as
something is stored under them. The place (thread, namespace, checkpoint, or the name of a blob) and the key id are
associated data, so that a value that was moved, or whose key id was changed, does not open. `content_key` names equal
values of one thread alike without telling what they are; after a rotation equal values get new names.

Invariants: `open` gives back only what `seal` was given for the same place; bytes that are not sealed are refused.
A random nonce is safe for 2**32 values a key: rotate before that.
Not here: which place a value has (the savers).
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from typing import Any, Final

from flowpoint.errors import ConfigError, SealError

__all__ = ["SEALED", "AesGcmSealer"]

SEALED: Final = b"\xc1"
"""The first byte of everything sealed: the one byte that no msgpack value begins with."""

_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_KEY_LENGTHS: Final = (16, 24, 32)


class AesGcmSealer:
    """AES-GCM with several keys.

    Example:
        >>> sealer = AesGcmSealer({"2026": bytes(32)})
        >>> sealer.open(sealer.seal(b"secret", b"here"), b"here", "a value")
        b'secret'
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        """`keys`: key ids to keys of 16, 24 or 32 bytes; the first encrypts.

        Raises:
            ConfigError: there is no key, a key has another length, or `cryptography` is not installed.
        """
        if not keys:
            raise ConfigError("cannot encrypt: `keys` is empty; give at least one {id: key}, or leave `keys` out")
        self._ciphers: dict[bytes, Any] = {_id_bytes(id): _cipher(id, key) for id, key in keys.items()}
        self._current = next(iter(self._ciphers))
        first = next(iter(keys.values()))
        self._naming_key = hmac.digest(first, b"flowpoint content key", "sha256")

    def seal(self, data: bytes, place: bytes) -> bytes:
        """Encrypt bytes that are kept at a place."""
        head = SEALED + bytes([len(self._current)]) + self._current
        nonce = os.urandom(_NONCE_BYTES)
        encrypted: bytes = self._ciphers[self._current].encrypt(nonce, data, head + place)
        return head + nonce + encrypted

    def open(self, data: bytes, place: bytes, where: str) -> bytes:
        """The bytes that `seal` was given for this place; `where` names it in errors.

        Raises:
            SealError: they are not encrypted, were changed or moved here, or were sealed with an unknown key.
        """
        key_at = 2
        nonce_at = key_at + data[1] if len(data) > 1 else len(data)
        if data[:1] != SEALED or len(data) < nonce_at + _NONCE_BYTES + _TAG_BYTES:
            raise SealError(
                f"cannot read {where}: it is not encrypted, and the saver has keys; it was not written by this "
                "saver, or somebody replaced it"
            )
        id = data[key_at:nonce_at]
        name = id.decode(errors="replace")
        cipher = self._ciphers.get(id)
        if cipher is None:
            raise SealError(
                f"cannot read {where}: it was encrypted with the key {name!r}, which is not among `keys`; add it"
            )
        from cryptography.exceptions import InvalidTag

        text_at = nonce_at + _NONCE_BYTES
        try:
            opened: bytes = cipher.decrypt(data[nonce_at:text_at], data[text_at:], data[:nonce_at] + place)
        except InvalidTag:
            raise SealError(
                f"cannot read {where}: it was changed, belongs to another place, or the key {name!r} is not the "
                "one it was encrypted with"
            ) from None
        return opened

    def content_key(self, data: bytes, thread: str) -> str:
        """A name for these bytes in this thread that tells nothing about them."""
        name = thread.encode("utf-8", "surrogatepass")
        return hmac.new(self._naming_key, len(name).to_bytes(8, "big") + name + data, "sha256").hexdigest()


def _id_bytes(id: str) -> bytes:
    encoded = id.encode()
    if not 0 < len(encoded) <= 255:
        raise ConfigError(f"cannot use the key id {id!r}: it must have 1 to 255 bytes")
    return encoded


def _cipher(id: str, key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise ConfigError(
            "cannot encrypt: the package `cryptography` is not installed; in a checkout of FlowPoint: pip install '.[agents]'"
        ) from None
    if not isinstance(key, bytes) or len(key) not in _KEY_LENGTHS:
        raise ConfigError(f"cannot use the key {id!r}: it must be 16, 24 or 32 bytes, such as os.urandom(32)")
    return AESGCM(key)
