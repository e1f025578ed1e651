"""From the bytes of one format to those of another, for the keys and values of one topic.

Values of the platform's own topics have classes, from which their Avro schemas are made; with these
they are checked on the way, in both directions. Values of other topics are taken as they are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from waylog.kafka.topics import ADDRESS, ERROR, EVENT, LOCATION
from waylog.malformed import MALFORMED
from waylog.messages import Address, Event, Fix, Rejected
from waylog.serialization.message_schemas import MessageSchema
from waylog.serialization.schema_ids import names_schema
from waylog.serialization.serializer import (
    Deserializer,
    RecordHeaders,
    RecordPart,
    SerializationError,
    Serialized,
    Serializer,
)

#: What the records of the platform's topics are.
MESSAGES: Final[Mapping[str, type[msgspec.Struct]]] = {
    LOCATION: Fix,
    ADDRESS: Address,
    EVENT: Event,
    ERROR: Rejected,
}


class Endpoint(NamedTuple):
    """A topic, and whether its values are JSON or records of a schema."""

    topic: str
    is_json: bool


class ValueConversion:
    """Converts values from what one topic has to what the other one has."""

    def __init__(
        self, deserializer: Deserializer, serializer: Serializer, source: str, target: Endpoint
    ) -> None:
        self._deserializer: Final = deserializer
        self._serializer: Final = serializer
        self._source: Final = source
        self._target: Final = target
        class_ = MESSAGES.get(source) or MESSAGES.get(target.topic)
        self._messages: Final = None if class_ is None else MessageSchema(class_)
        self._class: Final = class_

    def convert(self, data: bytes | None, headers: RecordHeaders) -> Serialized:
        """Return a value in the other format, None for None.

        Raises SerializationError and SchemaRegistryUnavailable.
        """
        if data is None:
            return Serialized(None)
        value = self._deserializer.deserialize(self._source, data, headers)
        if self._messages is not None:
            value = self._checked(value, named=names_schema(RecordPart.VALUE, data, headers))
        return self._serializer.serialize(self._target.topic, value)

    def _checked(self, value: Any, *, named: bool) -> Any:
        """Return a message of the platform as the target has it.

        `named`: it was read with a schema; then an object is a text of JSON.
        """
        assert self._messages is not None and self._class is not None
        try:
            message = (
                self._messages.from_avro(value) if named else msgspec.convert(value, self._class)
            )
        except (*MALFORMED, TypeError) as error:
            raise SerializationError(f"the value is no {self._class.__name__}: {error}") from error
        if self._target.is_json:
            return msgspec.to_builtins(message)
        # What a message lacks Avro takes from the default, and Protobuf leaves out.
        members = self._messages.to_avro(message)
        return {name: each for name, each in members.items() if each is not None}


class KeyConversion:
    """Converts keys."""

    def __init__(
        self, deserializer: Deserializer, serializer: Serializer, source: str, target: str
    ) -> None:
        self._deserializer: Final = deserializer
        self._serializer: Final = serializer
        self._source: Final = source
        self._target: Final = target

    def convert(self, data: bytes | None, headers: RecordHeaders) -> Serialized:
        """Return a key in the other format, None for None.

        Raises SerializationError, which says that it is the key, and SchemaRegistryUnavailable.
        """
        if data is None:
            return Serialized(None)
        try:
            key = self._deserializer.deserialize(self._source, data, headers)
            return self._serializer.serialize(self._target, key)
        except SerializationError as error:
            raise SerializationError(f"key: {error}") from error
