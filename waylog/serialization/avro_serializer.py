"""Avro with a schema registry, in Confluent's wire formats."""

from __future__ import annotations

from typing import Any, Final

from waylog.serialization.avro_schema import AvroSchema
from waylog.serialization.registry_client import RegisteredSchema, RegistryClient
from waylog.serialization.schema_ids import split, with_header, with_prefix
from waylog.serialization.serializer import (
    NO_HEADERS,
    RecordHeaders,
    RecordPart,
    SerializationError,
    Serialized,
)
from waylog.serialization.subject_names import SubjectNameStrategy, topic_name


class AvroSerializer:
    """Writes values of one schema, and names it in front of the value or in a header."""

    def __init__(
        self,
        registry: RegistryClient,
        part: RecordPart,
        schema: str | None = None,
        *,
        auto_register: bool = True,
        normalize: bool = False,
        in_header: bool = False,
        subject_name: SubjectNameStrategy = topic_name,
    ) -> None:
        """`schema` is Avro's JSON; None: the newest of the subject `TOPIC-key` or `TOPIC-value`.

        Without `auto_register` it has to be registered already. Raises SerializationError for what
        is no schema.
        """
        self._registry: Final = registry
        self._part: Final = part
        self._text: Final = schema
        self._name: Final = "" if schema is None else AvroSchema(schema).name
        self._auto_register: Final = auto_register
        self._normalize: Final = normalize
        self._in_header: Final = in_header
        self._subject_name: Final = subject_name

    def serialize(self, topic: str, value: Any) -> Serialized:
        """See Serializer."""
        if value is None:
            return Serialized(None)
        number, guid, schema = self._schema(topic)
        payload = schema.write(value)
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
        return ask(subject, self._text, normalize=self._normalize)


class AvroDeserializer:
    """Reads values of any schema of the registry, in both forms."""

    def __init__(
        self, registry: RegistryClient, part: RecordPart, reader: AvroSchema | None = None
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
        return self._registry.schema_of(schema_id).read(payload, self._reader)
