"""From the bytes of one format to those of another, for the keys and values of one topic.

Messages of the platform have classes, from which their Avro schemas are made. A value is known as
one by its topic, by the schema that it names (`waylog.Fix`), or by that with which it is written;
it is checked on the way, and is the same whichever formats it has been through. Other values are
taken as they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from consumers.streams.heat_map.messages import CellCount
from consumers.streams.trips.messages import Trip, TripDay
from waylog.kafka.topics import ADDRESS, ERROR, EVENT, HEAT_MAP, LOCATION, TRIP, TRIP_DAY
from waylog.messages import Address, Event, Fix, Rejected
from waylog.serialization.by_name import Serde, read_named, written_name
from waylog.serialization.message_schemas import MessageSchema
from waylog.serialization.schema_types import AVRO, PROTOBUF
from waylog.serialization.serializer import (
    NamedValue,
    RecordHeaders,
    RecordPart,
    SerializationError,
    Serialized,
)

#: What the records of the platform's topics are.
MESSAGES: Final[Mapping[str, type[msgspec.Struct]]] = {
    LOCATION: Fix,
    ADDRESS: Address,
    EVENT: Event,
    ERROR: Rejected,
    TRIP: Trip,
    TRIP_DAY: TripDay,
    HEAT_MAP: CellCount,
}


class Endpoint(NamedTuple):
    """A topic, and whether its values are JSON or records of a schema."""

    topic: str
    is_json: bool


class ValueConversion:
    """Converts values from what one topic has to what the other one has."""

    def __init__(
        self,
        reading: Serde,
        writing: Serde,
        source: str,
        target: Endpoint,
        *,
        writing_messages: Callable[[str], Serde] | None = None,
    ) -> None:
        """`writing_messages` returns what writes messages with the text of their schema.

        Without it `writing` writes them, too.
        """
        self._reading: Final = reading
        self._writing: Final = writing
        self._source: Final = source
        self._target: Final = target
        self._writing_messages: Final = writing_messages
        self._writers: Final[dict[str, Serde]] = {}
        known = {name: MessageSchema(each) for name, each in MESSAGES.items()}
        self._of_topics: Final = known.get(source) or known.get(target.topic)
        self._by_name: Final = {each.name: each for each in known.values()}

    def convert(self, data: bytes | None, headers: RecordHeaders) -> Serialized:
        """Return a value in the other format, None for None.

        Raises SerializationError and SchemaRegistryUnavailable.
        """
        if data is None:
            return Serialized(None)
        read = read_named(self._reading, RecordPart.VALUE, self._source, data, headers)
        if self._of_topics is not None:
            return self._written(_message(self._of_topics, read), self._of_topics)
        messages = self._by_name.get(read.name)
        if messages is None:
            messages = self._by_name.get(written_name(self._writing, self._target.topic))
        if messages is not None:
            try:
                message = _message(messages, read)
            except SerializationError:
                # Its schema has that name, and is another one, or has some of the fields alone.
                messages = None
        if messages is None:
            return self._writing.serialize(self._target.topic, read.value)
        return self._written(message, messages)

    def _written(self, message: msgspec.Struct, messages: MessageSchema[Any]) -> Serialized:
        """Return a message of the platform as the target has it."""
        if self._target.is_json:
            return self._writing.serialize(self._target.topic, msgspec.to_builtins(message))
        # What a message lacks Avro takes from the default, and Protobuf leaves out.
        members = {
            name: each for name, each in messages.to_avro(message).items() if each is not None
        }
        return self._writer(messages).serialize(self._target.topic, members)

    def _writer(self, messages: MessageSchema[Any]) -> Serde:
        if self._writing_messages is None:
            return self._writing
        writer = self._writers.get(messages.name)
        if writer is None:
            writer = self._writers[messages.name] = self._writing_messages(messages.text)
        return writer


def _message(messages: MessageSchema[Any], read: NamedValue) -> msgspec.Struct:
    """Return a value as a message; raises SerializationError."""
    if read.schema_type == AVRO:
        found: msgspec.Struct = messages.from_avro(read.value)
    elif read.schema_type == PROTOBUF:
        found = messages.from_protobuf(read.value)
    else:
        found = messages.from_json(read.value)
    return found


class KeyConversion:
    """Converts keys."""

    def __init__(self, reading: Serde, writing: Serde, source: str, target: str) -> None:
        self._reading: Final = reading
        self._writing: Final = writing
        self._source: Final = source
        self._target: Final = target

    def convert(self, data: bytes | None, headers: RecordHeaders) -> Serialized:
        """Return a key in the other format, None for None.

        Raises SerializationError, which says that it is the key, and SchemaRegistryUnavailable.
        """
        if data is None:
            return Serialized(None)
        try:
            key = read_named(self._reading, RecordPart.KEY, self._source, data, headers)
            return self._writing.serialize(self._target, key.value)
        except SerializationError as error:
            raise SerializationError(f"key: {error}") from error
