"""Protobuf with a schema registry: what Confluent's ProtobufConverter does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from consumers.connect.configuration.definitions import ConfigDef, ConfigType, Importance
from consumers.connect.converters.protobuf_names import PROPERTIES, WRAPPERS_FILE, ProtobufOptions
from consumers.connect.converters.registry_converter import (
    CACHE_SIZE,
    RegistryConverter,
    Writing,
    converter_key,
    refused_if_true,
    registry_keys,
)
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.schemas import Schema, SchemaAndValue
from waylog.bounded_cache import BoundedCache
from waylog.serialization.schema_ids import Framed
from waylog.serialization.schema_types import PROTOBUF
from waylog.serialization.serializer import SerializationError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

    from consumers.connect.converters.protobuf_reading import ProtobufReading

_SUM_TYPES: Final = "generalized.sum.type.support"
_STRUCTS: Final = "generate.struct.for.nulls"


class ProtobufConverter(RegistryConverter):
    """Reads and writes Protobuf in the wire formats of Confluent's registry."""

    kafka_name = "io.confluent.connect.protobuf.ProtobufConverter"
    format_name = "Protobuf"
    extras = ("avro", "protobuf")
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            *registry_keys(),
            *(
                converter_key(name, ConfigType.BOOLEAN, default, Importance.MEDIUM, documentation)
                for (name, documentation), default in zip(
                    PROPERTIES.items(), ProtobufOptions(), strict=True
                )
            ),
            converter_key(_SUM_TYPES, ConfigType.BOOLEAN, False, Importance.MEDIUM,
                          "Whether enums and oneofs have names that other formats share.",
                          validator=refused_if_true("names are those of Protobuf alone")),
            converter_key(_STRUCTS, ConfigType.BOOLEAN, False, Importance.MEDIUM,
                          "Whether messages that are not set are structs of defaults.",
                          validator=refused_if_true("what is not set is null")),
        ]
    )  # fmt: skip

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """Raises ConfigException."""
        super().__init__(properties)
        self._options: Final = ProtobufOptions.of(self.settings)
        self._readings: Final = BoundedCache(self._make_reading, self.settings[CACHE_SIZE])

    def _make_writing(self, schema: Schema) -> Writing:
        from consumers.connect.converters.protobuf_writing import protobuf_writing, raw_wrapper
        from waylog.serialization.protobuf_printer import proto_text
        from waylog.serialization.protobuf_schema import ProtobufSchema, known_file

        wrapper = raw_wrapper(schema)
        writing = protobuf_writing(schema, self._options) if wrapper is None else wrapper
        file = writing.file if wrapper is None else known_file(WRAPPERS_FILE)
        assert file is not None, "it is a part of protobuf's library"
        serializer = self._serializer(proto_text(file), PROTOBUF, writing.message)
        written = serializer.schema
        assert isinstance(written, ProtobufSchema)

        def write(value: Any) -> Any:
            message = written.new_message()
            try:
                writing.put(message, value)
            except (ValueError, TypeError) as error:
                # Protobuf's own, for a text that has no UTF-8 for instance.
                raise DataException(f"The value has no Protobuf: {str(error)[:200]}") from error
            return message

        return Writing(write, serializer)

    def _read(self, framed: Framed) -> SchemaAndValue:
        from waylog.serialization.protobuf_schema import ProtobufSchema

        schema = self._schema_of(framed.schema_id)
        if not isinstance(schema, ProtobufSchema):
            raise SerializationError("the schema is not of type PROTOBUF")
        message = schema.read_message(framed.place + framed.payload)
        reading = self._readings.get(message.DESCRIPTOR)
        return SchemaAndValue(reading.schema, reading.read(message))

    def _make_reading(self, descriptor: Descriptor) -> ProtobufReading:
        from consumers.connect.converters.protobuf_reading import protobuf_reading

        return protobuf_reading(descriptor, self._options)
