"""Encrypted payloads of OwnTracks and Home Assistant: libsodium's secretbox.

The nonce (24 bytes) precedes the ciphertext, and both are base64. OwnTracks' key is a passphrase,
padded with zeros to 32 bytes (https://owntracks.org/booklet/features/encrypt/). Home Assistant's
key is 32 bytes in hexadecimal.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

KEY_BYTES: Final = 32
#: Bytes that libsodium adds: the nonce and the authenticator.
OVERHEAD_BYTES: Final = 24 + 16

_HEXADECIMAL_KEY = re.compile(r"[0-9a-f]{64}")


class Undecryptable(Exception):
    """The data is not encrypted with this key, or is incomplete."""


def key_bytes(key: str) -> bytes:
    """Return the 32 bytes of a passphrase or of a hexadecimal key. Raises ValueError."""
    if _HEXADECIMAL_KEY.fullmatch(key):
        return bytes.fromhex(key)
    encoded = key.encode()
    if not 0 < len(encoded) <= KEY_BYTES:
        raise ValueError(f"a passphrase has 1 to {KEY_BYTES} bytes")
    return encoded.ljust(KEY_BYTES, b"\0")


def decrypt(data: object, key: str) -> bytes:
    """Return the plaintext of base64 `data`. Raises Undecryptable."""
    from nacl.exceptions import CryptoError
    from nacl.secret import SecretBox

    if not isinstance(data, str):
        raise Undecryptable("the encrypted data is not text")
    try:
        box = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Undecryptable("the encrypted data is not base64") from error
    if len(box) < OVERHEAD_BYTES:
        raise Undecryptable("the encrypted data is too short")
    try:
        return SecretBox(key_bytes(key)).decrypt(box)
    except CryptoError as error:
        raise Undecryptable("encrypted with another key than this user's") from error


def encrypt(plain: bytes, key: str) -> str:
    """Return nonce and ciphertext in base64; the nonce is random."""
    from nacl.secret import SecretBox

    return base64.b64encode(SecretBox(key_bytes(key)).encrypt(plain)).decode()
