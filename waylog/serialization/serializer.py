"""What serializers do: values of a program to the bytes of a record and back."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

#: Headers of a record: names with values, in their order; a name may come several times.
RecordHeaders = Sequence[tuple[str, bytes | None]]
NO_HEADERS: Final[RecordHeaders] = ()


class RecordPart(enum.Enum):
    """The part of a record that is serialized; `value` is its word in names of subjects."""

    KEY = "key"
    VALUE = "value"


class SerializationError(ValueError):
    """The value, or the bytes of one record, cannot be converted. Other records may well be.

    It is a ValueError, and so one of waylog.malformed.MALFORMED.
    """


class SchemaRegistryUnavailable(Exception):
    """The schema registry does not answer, or not for this client: no record is to blame.

    The same call may succeed later.
    """


class Serialized(NamedTuple):
    """The bytes of a key or value, and the headers that have to go with them."""

    data: bytes | None
    headers: RecordHeaders = NO_HEADERS


class Serializer(Protocol):
    """Makes bytes of values, for one part of the records of any topic."""

    def serialize(self, topic: str, value: Any) -> Serialized:
        """Return the bytes of a value, None (a tombstone) for None.

        Raises SerializationError, and SchemaRegistryUnavailable if it has to ask a registry.
        """


class NamedValue(NamedTuple):
    """A value, and which schema says what it is."""

    value: Any
    #: AVRO, PROTOBUF or JSON (waylog.serialization.schema_types); None without a schema.
    schema_type: str | None = None
    #: The full name of the record or message, the title of a JSON Schema.
    name: str = ""


class Deserializer(Protocol):
    """Makes values of bytes, for one part of the records of any topic."""

    def deserialize(
        self, topic: str, data: bytes | None, headers: RecordHeaders = NO_HEADERS
    ) -> Any:
        """Return the value of bytes that anybody may have written, None for None.

        Takes time and memory in proportion to the bytes. Raises SerializationError, and
        SchemaRegistryUnavailable if it has to ask a registry.
        """
