"""Encryption of values of the log; see docs/decisions/0006.

A sealed value is MAGIC, the id of its key, a nonce and the AES-256-GCM ciphertext of the plain
value. The record's key is authenticated with it, so that the value of one device cannot be passed
off as another's. The keys are in topic `value-key` (waylog.sealing.value_keys), each wrapped
(RFC 3394) with the master key, which is in a file that the environment names and never in the log.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from waylog.config import ConfigError
from waylog.sealing.sealing import ENVIRONMENT, ID_BYTES, MAGIC

_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_ID_END: Final = len(MAGIC) + ID_BYTES
_NONCE_END: Final = _ID_END + _NONCE_BYTES


class NotAuthentic(ValueError):
    """A sealed value was changed, or belongs to another record."""


class ValueKey(NamedTuple):
    """The key of an owner: a device (`user/device`), a user, or "" for records without a key."""

    owner: str
    key_id: bytes
    secret: bytes

    @classmethod
    def new(cls, owner: str) -> ValueKey:
        """Create a new random key."""
        return cls(owner, secrets.token_bytes(ID_BYTES), secrets.token_bytes(_KEY_BYTES))


class _Wrapped(msgspec.Struct):
    """The value of a record of topic `value-key`."""

    owner: str
    id: bytes
    key: bytes  # wrapped with the master key
    created: int  # ms


def record_key(key: ValueKey) -> bytes:
    """Return owner and id, so that two processes that create a key at once both keep theirs."""
    return f"{key.owner}\n{key.key_id.hex()}".encode()


def owner_of(record: bytes | None) -> str:
    """Return the owner in the key of a record of topic `value-key`: its first line."""
    return (record or b"").decode("utf-8", "replace").partition("\n")[0]


def wrap(key: ValueKey, master: bytes, now_ms: int) -> bytes:
    """Encode a key as the log stores it."""
    return msgspec.json.encode(
        _Wrapped(key.owner, key.key_id, aes_key_wrap(master, key.secret), now_ms)
    )


def unwrap(value: bytes, master: bytes) -> ValueKey:
    """Decode a stored key; raises ConfigError for a wrong master key, MALFORMED."""
    wrapped = msgspec.json.decode(value, type=_Wrapped)
    if len(wrapped.id) != ID_BYTES:
        raise ValueError(f"the id of a key has {ID_BYTES} bytes, not {len(wrapped.id)}")
    try:
        return ValueKey(wrapped.owner, wrapped.id, aes_key_unwrap(master, wrapped.key))
    except InvalidUnwrap:
        raise ConfigError(
            f"the file that {ENVIRONMENT} names has another master key than the log's values"
        ) from None


def created_ms(value: bytes) -> int:
    """Return the time when a key was created; raises MALFORMED."""
    return msgspec.json.decode(value, type=_Wrapped).created


def seal(value: bytes, key: ValueKey, record: bytes | None) -> bytes:
    """Encrypt the value of the record whose key is `record`."""
    head = MAGIC + key.key_id
    nonce = os.urandom(_NONCE_BYTES)
    return head + nonce + AESGCM(key.secret).encrypt(nonce, value, head + (record or b""))


def unseal(value: bytes, secret: bytes, record: bytes | None) -> bytes:
    """Decrypt a sealed value; raises NotAuthentic."""
    try:
        return AESGCM(secret).decrypt(
            value[_ID_END:_NONCE_END], value[_NONCE_END:], value[:_ID_END] + (record or b"")
        )
    except (InvalidTag, ValueError):
        raise NotAuthentic("a sealed value is not what was written") from None


def load_master_key(path: Path) -> bytes:
    """Read the master key from a file; raises ConfigError."""
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise ConfigError(f"{path}: 64 hexadecimal digits are expected")
    return key


def ensure_master_key(path: Path) -> None:
    """Create a master key if there is none, readable by its owner alone; raises ConfigError."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        load_master_key(path)
        return
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(secrets.token_hex(_KEY_BYTES) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
