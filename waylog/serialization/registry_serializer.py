"""Avro, Protobuf and JSON Schema with a schema registry, in Confluent's wire formats."""

from __future__ import annotations

from typing import Any, Final

from waylog.serialization.registered_schemas import (
    RecordSchema,
    read_framed,
    read_framed_named,
    record_schema,
)
from waylog.serialization.registry_client import RegisteredSchema, RegistryClient
from waylog.serialization.schema_ids import names_schema, split, with_header, with_prefix
from waylog.serialization.schema_types import AVRO
from waylog.serialization.serializer import (
    NO_HEADERS,
    Deserializer,
    NamedValue,
    RecordHeaders,
    RecordPart,
    SerializationError,
    Serialized,
)
from waylog.serialization.subject_names import SubjectNameStrategy, topic_name


class RegistrySerializer:
    """Writes values of one schema, and names it in front of the value or in a header."""

    def __init__(
        self,
        registry: RegistryClient,
        part: RecordPart,
        schema: str | None = None,
        *,
        schema_type: str = AVRO,
        message: str | None = None,
        auto_register: bool = True,
        normalize: bool = False,
        in_header: bool = False,
        subject_name: SubjectNameStrategy = topic_name,
    ) -> None:
        """`schema` is its text; None: the newest one of the subject.

        `message` is the one that is written, of a schema of Protobuf (default: its first). Without
        `auto_register` the schema has to be registered already. Raises SerializationError for what
        is no schema.
        """
        self._registry: Final = registry
        self._part: Final = part
        self._text: Final = schema
        self._type: Final = schema_type
        self._message: Final = message
        #: The schema that is written, None for the newest one of the subject.
        self.schema: Final[RecordSchema | None] = (
            None if schema is None else record_schema(schema_type, schema, message=message)
        )
        self._name: Final = (message or "") if self.schema is None else self.schema.name
        self._auto_register: Final = auto_register
        self._normalize: Final = normalize
        self._in_header: Final = in_header
        self._subject_name: Final = subject_name

    def serialize(self, topic: str, value: Any) -> Serialized:
        """See Serializer."""
        if value is None:
            return Serialized(None)
        number, guid, registered = self._schema(topic)
        schema = self.schema or registered
        payload = schema.write(value)
        if self._in_header and guid is not None:
            length = len(schema.place)
            return with_header(self._part, guid, payload[length:], payload[:length])
        if self._in_header or number is None:
            missing = "GUIDs, which headers need" if self._in_header else "id of the schema"
            raise SerializationError(f"the schema registry has no {missing}")
        return with_prefix(number, payload)

    def written_name(self, topic: str) -> str:
        """Return the full name of what is written to a topic.

        Raises SerializationError and SchemaRegistryUnavailable if a registry has to be asked.
        """
        return self._schema(topic).schema.name if self.schema is None else self.schema.name

    def _schema(self, topic: str) -> RegisteredSchema:
        if not self._name and self._subject_name is not topic_name:
            raise SerializationError(
                f"the subject of the {self._part.value} has the name of its record: a schema is "
                "needed, or for Protobuf the name of the message"
            )
        subject = self._subject_name(topic, self._part, self._name)
        if self._text is None:
            return self._registry.latest(subject, message=self._message)
        ask = self._registry.register if self._auto_register else self._registry.registered
        return ask(subject, self._text, schema_type=self._type, normalize=self._normalize)


class RegistryDeserializer:
    """Reads values of any schema of the registry, in both forms."""

    def __init__(
        self, registry: RegistryClient, part: RecordPart, reader: RecordSchema | None = None
    ) -> None:
        """`reader` is the schema as which values are seen; None: the one they have."""
        self._registry: Final = registry
        self._part: Final = part
        self._reader: Final = reader

    def deserialize(
        self, topic: str, data: bytes | None, headers: RecordHeaders = NO_HEADERS
    ) -> Any:
        """See Deserializer."""
        if data is None:
            return None
        framed = split(self._part, data, headers)
        return read_framed(self._registry.schema_of(framed.schema_id), framed, self._reader)

    def read_named(
        self, topic: str, data: bytes, headers: RecordHeaders = NO_HEADERS
    ) -> NamedValue:
        """Return a value as other formats take it, and what it is by its schema.

        Raises as `deserialize` does.
        """
        framed = split(self._part, data, headers)
        return read_framed_named(self._registry.schema_of(framed.schema_id), framed, self._reader)


class RecognisingDeserializer:
    """Reads records that name a schema with it, and all others otherwise.

    So a topic may change its format: what it has already is read as it was written.
    """

    def __init__(
        self, part: RecordPart, registered: RegistryDeserializer, plain: Deserializer
    ) -> None:
        self._part: Final = part
        self._registered: Final = registered
        self._plain: Final = plain

    def deserialize(
        self, topic: str, data: bytes | None, headers: RecordHeaders = NO_HEADERS
    ) -> Any:
        """See Deserializer."""
        if data is not None and names_schema(self._part, data, headers):
            return self._registered.deserialize(topic, data, headers)
        return self._plain.deserialize(topic, data, headers)

    def read_named(
        self, topic: str, data: bytes, headers: RecordHeaders = NO_HEADERS
    ) -> NamedValue:
        """Return a value as other formats take it, and what it is by the schema that it names."""
        if names_schema(self._part, data, headers):
            return self._registered.read_named(topic, data, headers)
        return NamedValue(self._plain.deserialize(topic, data, headers))
