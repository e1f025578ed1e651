"""Avro, Protobuf and JSON Schema with a schema registry, in Confluent's wire formats."""

from __future__ import annotations

from typing import Any, Final

from waylog.serialization.registered_schemas import RecordSchema, record_schema
from waylog.serialization.registry_client import RegisteredSchema, RegistryClient
from waylog.serialization.schema_ids import names_schema, split, with_header, with_prefix
from waylog.serialization.schema_types import AVRO
from waylog.serialization.serializer import (
    NO_HEADERS,
    Deserializer,
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
        """`schema` is its text; None: the newest of the subject `TOPIC-key` or `TOPIC-value`.

        `message` is the one that is written, of a schema of Protobuf (default: its first). Without
        `auto_register` the schema has to be registered already. Raises SerializationError for what
        is no schema.
        """
        self._registry: Final = registry
        self._part: Final = part
        self._text: Final = schema
        self._type: Final = schema_type
        self._own: Final[RecordSchema | None] = (
            None if schema is None else record_schema(schema_type, schema, message=message)
        )
        self._name: Final = "" if self._own is None else self._own.name
        self._auto_register: Final = auto_register
        self._normalize: Final = normalize
        self._in_header: Final = in_header
        self._subject_name: Final = subject_name

    def serialize(self, topic: str, value: Any) -> Serialized:
        """See Serializer."""
        if value is None:
            return Serialized(None)
        number, guid, schema = self._schema(topic)
        payload = (self._own or schema).write(value)
        if self._in_header and guid is not None:
            return with_header(self._part, guid, payload)
        if self._in_header or number is None:
            missing = "GUIDs, which headers need" if self._in_header else "id of the schema"
            raise SerializationError(f"the schema registry has no {missing}")
        return with_prefix(number, payload)

    def _schema(self, topic: str) -> RegisteredSchema:
        if self._text is None:
            return self._registry.latest(topic_name(topic, self._part, ""))
        subject = self._subject_name(topic, self._part, self._name)
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
        schema_id, payload = split(self._part, data, headers)
        schema = self._registry.schema_of(schema_id)
        if self._reader is not None and type(self._reader) is not type(schema):
            raise SerializationError(
                f"the {self._part.value} is of another type of schema than the one it is read with"
            )
        return schema.read(payload, self._reader)


class RecognisingDeserializer:
    """Reads records that name a schema with it, and all others otherwise.

    So a topic may change its format: what it has already is read as it was written.
    """

    def __init__(self, part: RecordPart, registered: Deserializer, plain: Deserializer) -> None:
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
