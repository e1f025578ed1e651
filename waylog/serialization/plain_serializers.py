"""Serializers without a registry: JSON, and Kafka's for single values."""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec

from waylog.malformed import MALFORMED
from waylog.serialization.json_numbers import NON_FINITE, json_bytes
from waylog.serialization.serializer import (
    NO_HEADERS,
    RecordHeaders,
    SerializationError,
    Serialized,
)


class JsonSerde:
    """JSON; with a msgspec type its values are of this type, else what JSON has."""

    def __init__(self, type_: Any = Any) -> None:
        self._decode: Final = msgspec.json.Decoder(type_).decode

    def serialize(self, topic: str, value: Any) -> Serialized:
        """See Serializer."""
        if value is None:
            return Serialized(None)
        try:
            return Serialized(json_bytes(value))
        except (*MALFORMED, TypeError, msgspec.MsgspecError) as error:
            raise SerializationError(f"the value has no JSON: {error}") from error

    def deserialize(
        self, topic: str, data: bytes | None, headers: RecordHeaders = NO_HEADERS
    ) -> Any:
        """See Deserializer."""
        if data is None:
            return None
        try:
            return self._decode(data)
        except MALFORMED as error:
            raise SerializationError(f"the bytes are not the expected JSON: {error}") from error


class StringSerde:
    """Text in UTF-8: Kafka's StringSerializer."""

    def serialize(self, topic: str, value: Any) -> Serialized:
        """See Serializer."""
        if value is None:
            return Serialized(None)
        if not isinstance(value, str):
            raise _wrong(value, "text")
        try:
            return Serialized(value.encode())
        except UnicodeEncodeError as error:
            raise SerializationError(f"the text has no UTF-8: {error.reason}") from error

    def deserialize(
        self, topic: str, data: bytes | None, headers: RecordHeaders = NO_HEADERS
    ) -> Any:
        """See Deserializer."""
        if data is None:
            return None
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise SerializationError(f"the bytes are not UTF-8: {error.reason}") from error


class BytesSerde:
    """Bytes as they are: Kafka's ByteArraySerializer."""

    def serialize(self, topic: str, value: Any) -> Serialized:
        """See Serializer."""
        if value is not None and not isinstance(value, bytes):
            raise _wrong(value, "bytes")
        return Serialized(value)

    def deserialize(
        self, topic: str, data: bytes | None, headers: RecordHeaders = NO_HEADERS
    ) -> Any:
        """See Deserializer."""
        return data


class NumberSerde:
    """Numbers, big-endian: Kafka's LongSerializer, DoubleSerializer and their sisters."""

    def __init__(self, code: str) -> None:
        """`code` is one of the module struct: h short, i integer, q long, f float, d double."""
        self._struct: Final = struct.Struct(f">{code}")
        self._kind: Final[tuple[type, ...]] = (int,) if code in "hiq" else (int, float)

    def serialize(self, topic: str, value: Any) -> Serialized:
        """See Serializer."""
        if value is None:
            return Serialized(None)
        if float in self._kind and isinstance(value, str):
            value = NON_FINITE.get(value, value)
        if not isinstance(value, self._kind) or isinstance(value, bool):
            raise _wrong(value, "number of this kind")
        try:
            return Serialized(self._struct.pack(value))
        except (struct.error, OverflowError) as error:
            raise SerializationError(f"the number does not fit: {error}") from error

    def deserialize(
        self, topic: str, data: bytes | None, headers: RecordHeaders = NO_HEADERS
    ) -> Any:
        """See Deserializer."""
        if data is None:
            return None
        if len(data) != self._struct.size:
            raise SerializationError(
                f"the number takes {self._struct.size} bytes; these are {len(data)}"
            )
        return self._struct.unpack(data)[0]


def _wrong(value: Any, expected: str) -> SerializationError:
    return SerializationError(f"{type(value).__name__} is no {expected}")
