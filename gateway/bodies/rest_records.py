"""Conversion of records between the JSON of the REST proxy and keys and values in bytes."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import msgspec
from confluent_kafka import Message

from waylog.malformed import MALFORMED

#: Records in one request.
RECORDS_MAX: Final = 10_000
#: Bytes of one key or value: the log accepts no larger record (message.max.bytes).
RECORD_BYTES_MAX: Final = 1_000_000

#: Key, value, partition.
Produced = tuple[bytes | None, bytes | None, int | None]


class RecordsRefused(Exception):
    """The body does not contain valid records; `code` is the REST proxy's error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Record(msgspec.Struct):
    value: Any = None
    key: Any = None
    partition: int | None = None


class _Records(msgspec.Struct):
    records: list[_Record]


class _Shown(msgspec.Struct):
    topic: str
    key: Any
    value: Any
    partition: int
    offset: int


_decoder = msgspec.json.Decoder(_Records)
_raw_decoder = msgspec.json.Decoder(msgspec.Raw)
_encode = msgspec.json.Encoder().encode


def read_records(body: bytes, format_: str) -> list[Produced]:
    """Return the records of a request in format `json` or `binary`. Raises RecordsRefused."""
    try:
        records = _decoder.decode(body).records
    except MALFORMED as error:
        raise RecordsRefused(42201, f"the body is not understood: {error}") from error
    if not 0 < len(records) <= RECORDS_MAX:
        raise RecordsRefused(42202, f"1 to {RECORDS_MAX} records are expected")
    return [
        (_bounded(each.key, format_), _bounded(each.value, format_), each.partition)
        for each in records
    ]


def _bounded(value: Any, format_: str) -> bytes | None:
    data = _bytes_of(value, format_)
    if data is not None and len(data) > RECORD_BYTES_MAX:
        reason = f"a key or value of {len(data)} bytes; {RECORD_BYTES_MAX} are allowed"
        raise RecordsRefused(41301, reason)
    return data


def _bytes_of(value: Any, format_: str) -> bytes | None:
    if value is None:
        return None
    if format_ == "json":
        return _encode(value)
    if not isinstance(value, str):
        raise RecordsRefused(42206, "keys and values of the binary format are base64")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise RecordsRefused(42206, "keys and values of the binary format are base64") from None


def shown_records(messages: list[Message], format_: str) -> bytes:
    """Return a response body with these records. Run it in a thread: it encodes every record."""
    return b"[" + b",".join([_encode(_shown(each, format_)) for each in messages]) + b"]"


def _shown(message: Message, format_: str) -> _Shown:
    return _Shown(
        message.topic() or "",
        _shown_bytes(message.key(), format_),
        _shown_bytes(message.value(), format_),
        message.partition() or 0,
        message.offset() or 0,
    )


def _shown_bytes(data: bytes | None, format_: str) -> Any:
    if data is None:
        return None
    if format_ == "binary":
        return base64.b64encode(data).decode()
    try:
        # Valid JSON is passed on unchanged.
        return _raw_decoder.decode(data)
    except MALFORMED:
        # The platform's keys are text and not JSON.
        return data.decode("utf-8", "replace")
