"""Avro with a schema registry: what Confluent's AvroConverter does.

What Avro has no word for stands in attributes (`connect.name`, ...), as Confluent's converter
writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from consumers.connect.configuration.definitions import ConfigDef, ConfigType, Importance
from consumers.connect.converters.avro_reading import AvroReading, avro_reading
from consumers.connect.converters.avro_writing import avro_writing
from consumers.connect.converters.registry_converter import (
    CACHE_SIZE,
    RegistryConverter,
    Writing,
    converter_key,
    registry_keys,
)
from consumers.connect.data.schemas import Schema, SchemaAndValue
from waylog.bounded_cache import BoundedCache
from waylog.serialization.schema_ids import Framed, SchemaId
from waylog.serialization.schema_types import AVRO
from waylog.serialization.serializer import SerializationError

if TYPE_CHECKING:
    from waylog.serialization.avro_schema import AvroSchema

_METADATA: Final = "connect.meta.data"


class AvroConverter(RegistryConverter):
    """Reads and writes Avro in the wire formats of Confluent's registry."""

    kafka_name = "io.confluent.connect.avro.AvroConverter"
    format_name = "Avro"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            *registry_keys(),
            converter_key(_METADATA, ConfigType.BOOLEAN, True, Importance.LOW,
                          "Whether names, versions and types of Connect stand in the schemas."),
        ]
    )  # fmt: skip

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """Raises ConfigException."""
        super().__init__(properties)
        self._readings: Final = BoundedCache(self._make_reading, self.settings[CACHE_SIZE])

    def _make_writing(self, schema: Schema) -> Writing:
        avro, write = avro_writing(schema, with_metadata=self.settings[_METADATA])
        return Writing(write, self._serializer(msgspec.json.encode(avro).decode(), AVRO))

    def _read(self, framed: Framed) -> SchemaAndValue:
        from waylog.serialization.registered_schemas import read_framed

        reading = self._readings.get(framed.schema_id)
        value = read_framed(self._avro_of(framed.schema_id), framed)
        return SchemaAndValue(reading.schema, reading.read(value))

    def _make_reading(self, schema_id: SchemaId) -> AvroReading:
        schema = self._avro_of(schema_id)
        return avro_reading(schema.json, schema.referenced)

    def _avro_of(self, schema_id: SchemaId) -> AvroSchema:
        from waylog.serialization.avro_schema import AvroSchema

        schema = self._schema_of(schema_id)
        if not isinstance(schema, AvroSchema):
            raise SerializationError("the schema is not of type AVRO")
        return schema
