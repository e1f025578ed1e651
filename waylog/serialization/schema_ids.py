"""How a record says which schema it was written with: Confluent's two wire formats.

| form | is |
|---|---|
| prefix | a zero byte and the schema's id, 4 bytes, big-endian, in front of the value |
| header | `__key_schema_id` or `__value_schema_id`: a byte 1 and the schema's GUID, 16 bytes |

Of Protobuf the place of the message in its file follows both (waylog/serialization/
protobuf_schema.py). confluent-kafka knows the second form since 2.10.1.
"""

from __future__ import annotations

import uuid
from typing import Final, NamedTuple

from waylog.serialization.serializer import (
    NO_HEADERS,
    RecordHeaders,
    RecordPart,
    SerializationError,
    Serialized,
)

_PREFIX_BYTES: Final = 5
_PREFIX_MAGIC: Final = b"\0"
_GUID_MAGIC: Final = b"\1"
_GUID_BYTES: Final = 17
_ID_MAX: Final = 0x7FFF_FFFF


class SchemaId(NamedTuple):
    """A schema's number, or its GUID; the other one is None."""

    number: int | None
    guid: str | None = None


class Framed(NamedTuple):
    """A key or value, taken out of its frame."""

    schema_id: SchemaId
    #: The place of a message of Protobuf, if a header has named the schema; else it is in front of
    #: the payload.
    place: bytes
    payload: bytes


def header_name(part: RecordPart) -> str:
    """Return the name of the header that names the schema of a part of a record."""
    return f"__{part.value}_schema_id"


def with_prefix(number: int, payload: bytes) -> Serialized:
    """Return a value behind the id of its schema."""
    return Serialized(_PREFIX_MAGIC + number.to_bytes(4, "big") + payload)


def with_header(part: RecordPart, guid: str, payload: bytes, place: bytes = b"") -> Serialized:
    """Return a value, and the header that names its schema; `place` is that of its message."""
    header = _GUID_MAGIC + uuid.UUID(guid).bytes + place
    return Serialized(payload, [(header_name(part), header)])


def names_schema(part: RecordPart, data: bytes, headers: RecordHeaders = NO_HEADERS) -> bool:
    """Tell whether a value names its schema; no text and no JSON begins as those that do."""
    return data[:1] == _PREFIX_MAGIC or any(name == header_name(part) for name, _ in headers)


def split(part: RecordPart, data: bytes, headers: RecordHeaders = NO_HEADERS) -> Framed:
    """Return which schema a value was written with, and the value's bytes.

    The header comes first, as in Confluent's clients. Raises SerializationError.
    """
    name = header_name(part)
    for each, value in headers:
        if each == name and value is not None:
            return _of_header(name, value, data)
    if data[:1] != _PREFIX_MAGIC:
        raise SerializationError(
            f"the {part.value} does not begin with the id of a schema: a zero byte and four more"
        )
    if len(data) < _PREFIX_BYTES:
        raise SerializationError(f"the {part.value} ends within the id of its schema")
    number = int.from_bytes(data[1:_PREFIX_BYTES], "big")
    if number > _ID_MAX:
        raise SerializationError(f"{number} is no id of a schema")
    return Framed(SchemaId(number), b"", data[_PREFIX_BYTES:])


def _of_header(name: str, value: bytes, data: bytes) -> Framed:
    if value[:1] == _GUID_MAGIC and len(value) >= _GUID_BYTES:
        guid = str(uuid.UUID(bytes=value[1:_GUID_BYTES]))
        return Framed(SchemaId(None, guid), value[_GUID_BYTES:], data)
    if value[:1] == _PREFIX_MAGIC and len(value) >= _PREFIX_BYTES:
        number = SchemaId(int.from_bytes(value[1:_PREFIX_BYTES], "big"))
        return Framed(number, value[_PREFIX_BYTES:], data)
    raise SerializationError(f"the header {name} is no id of a schema")
