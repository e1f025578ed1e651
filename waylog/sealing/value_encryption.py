"""Values of the log that only who has the keys can read: see docs/decisions/0010.

A sealed value is MAGIC, the id of its key, a nonce and what AES-256-GCM made of the plain value;
the record's key is authenticated with it, so that nobody can give one device the value of another.
The keys are in topic `value-key` (waylog.sealing.value_keys), each wrapped (RFC 3394) by the master key,
which is in a file that the environment names and never in the log.
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
from waylog.sealing.sealing import ENVIRONMENT, MAGIC

_KEY_BYTES: Final = 32
_ID_BYTES: Final = 8
_NONCE_BYTES: Final = 12
_ID_END: Final = len(MAGIC) + _ID_BYTES
_NONCE_END: Final = _ID_END + _NONCE_BYTES


class NotAuthentic(ValueError):
    """A sealed value was changed, or belongs to another record."""


class ValueKey(NamedTuple):
    """A key of one owner: a device (`user/device`), or nobody (``) for records without a key."""

    owner: str
    key_id: bytes
    secret: bytes

    @classmethod
    def new(cls, owner: str) -> ValueKey:
        """A key that nobody has."""
        return cls(owner, secrets.token_bytes(_ID_BYTES), secrets.token_bytes(_KEY_BYTES))


class _Wrapped(msgspec.Struct):
    """The value of a record of topic `value-key`."""

    owner: str
    id: bytes
    key: bytes  # wrapped by the master key
    created: int  # ms


def record_key(key: ValueKey) -> bytes:
    """Owner and id: two processes that make a key at once both keep theirs."""
    return f"{key.owner}\n{key.key_id.hex()}".encode()


def owner_of(record: bytes | None) -> str:
    """The owner of the record with this key: the device, which is the key or its first line."""
    return (record or b"").decode("utf-8", "replace").partition("\n")[0]


def wrap(key: ValueKey, master: bytes, now_ms: int) -> bytes:
    """A key as the log keeps it."""
    return msgspec.json.encode(
        _Wrapped(key.owner, key.key_id, aes_key_wrap(master, key.secret), now_ms)
    )


def unwrap(value: bytes, master: bytes) -> ValueKey:
    """Raises ConfigError when it was wrapped by another master key, msgspec.DecodeError."""
    wrapped = msgspec.json.decode(value, type=_Wrapped)
    try:
        return ValueKey(wrapped.owner, wrapped.id, aes_key_unwrap(master, wrapped.key))
    except InvalidUnwrap:
        raise ConfigError(
            f"the file that {ENVIRONMENT} names has another master key than the log's values"
        ) from None


def created_ms(value: bytes) -> int:
    """When a key was made; raises msgspec.DecodeError."""
    return msgspec.json.decode(value, type=_Wrapped).created


def key_id_of(value: bytes) -> bytes:
    """Which key a sealed value needs."""
    return value[len(MAGIC) : _ID_END]


def seal(value: bytes, key: ValueKey, record: bytes | None) -> bytes:
    """The value of the record with this key, so that only who has `key` can read it."""
    head = MAGIC + key.key_id
    nonce = os.urandom(_NONCE_BYTES)
    return head + nonce + AESGCM(key.secret).encrypt(nonce, value, head + (record or b""))


def unseal(value: bytes, secret: bytes, record: bytes | None) -> bytes:
    """What was sealed; raises NotAuthentic."""
    try:
        return AESGCM(secret).decrypt(
            value[_ID_END:_NONCE_END], value[_NONCE_END:], value[:_ID_END] + (record or b"")
        )
    except (InvalidTag, ValueError):
        raise NotAuthentic("a sealed value is not what was written") from None


def load_master_key(path: Path) -> bytes:
    """Raises ConfigError."""
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
    """Make a master key where there is none, readable by its owner alone; raises ConfigError."""
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
