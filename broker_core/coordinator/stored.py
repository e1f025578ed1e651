"""Keys and values of the coordinators' records: an int16 version, then the fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker_core.protocol.decoder import decode
from broker_core.protocol.encoder import encode
from broker_core.protocol.errors import RemoteProtocolError
from broker_core.protocol.schema import StoredMessage

_VERSION_BYTES: Final = 2


def stored_version(data: bytes) -> int:
    """Return the version that a key or value begins with."""
    return int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)


def encode_stored(message: StoredMessage, version: int, fields: Mapping[str, object]) -> bytes:
    """Encode a key or value."""
    return version.to_bytes(_VERSION_BYTES, "big") + encode(message.plan(version), fields)


def decode_stored(message: StoredMessage, data: bytes) -> dict[str, Any]:
    """Decode a key or value; raises RemoteProtocolError."""
    version = stored_version(data)
    if not message.versions[0] <= version <= message.versions[1]:
        raise RemoteProtocolError(f"{message.name} of unknown version {version}")
    fields: dict[str, Any] = decode(message.plan(version), data, _VERSION_BYTES)[0]
    return fields
