"""JSON with a JSON Schema in a schema registry: what Confluent's JsonSchemaConverter does."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from consumers.connect.configuration.definitions import ConfigDef, ConfigType, Importance
from consumers.connect.configuration.validators import one_of_ignoring_case
from consumers.connect.converters.json_schema_reading import json_schema_reading
from consumers.connect.converters.json_schema_writing import JsonSchemaValues, JsonSchemaWriter
from consumers.connect.converters.json_values import Convert, has_decimal
from consumers.connect.converters.registry_converter import (
    CACHE_SIZE,
    RegistryConverter,
    Writing,
    converter_key,
    refused_if_true,
    registry_keys,
)
from consumers.connect.data.schemas import Schema, SchemaAndValue
from waylog.bounded_cache import BoundedCache
from waylog.malformed import MALFORMED
from waylog.serialization.json_document import JsonDocument
from waylog.serialization.schema_ids import Framed, SchemaId
from waylog.serialization.schema_types import JSON
from waylog.serialization.serializer import SerializationError

_DECIMAL_FORMAT: Final = "decimal.format"
_OPEN_OBJECTS: Final = "object.additional.properties"
_OPTIONAL: Final = "use.optional.for.nonrequired"
_IGNORE_DEFAULT: Final = "ignore.default.for.nullables"
_SUM_TYPES: Final = "generalized.sum.type.support"
_KEEP_MORE: Final = "preserve.additional.properties"
_BOOLEAN: Final = ConfigType.BOOLEAN

_decode: Final = msgspec.json.Decoder().decode
#: Keeps all digits of numbers.
_decode_exactly: Final = msgspec.json.Decoder(float_hook=Decimal).decode


class _Reading(NamedTuple):
    schema: Schema
    read: Convert
    is_exact: bool


class JsonSchemaConverter(RegistryConverter):
    """Reads and writes JSON in the wire formats of Confluent's registry."""

    kafka_name = "io.confluent.connect.json.JsonSchemaConverter"
    format_name = "JSON Schema"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            *registry_keys(),
            converter_key(_DECIMAL_FORMAT, ConfigType.STRING, "BASE64", Importance.LOW,
                          "How decimals are written: as Base64 of the unscaled number, or as "
                          "numbers. Both are read.",
                          validator=one_of_ignoring_case("BASE64", "NUMERIC")),
            converter_key(_OPEN_OBJECTS, _BOOLEAN, True, Importance.MEDIUM,
                          "Whether objects may have other properties than those of the schema."),
            converter_key(_OPTIONAL, _BOOLEAN, False, Importance.MEDIUM,
                          "Whether properties that are not required may be null."),
            converter_key(_IGNORE_DEFAULT, _BOOLEAN, False, Importance.MEDIUM,
                          "Whether null is written although its schema has a default."),
            converter_key(_SUM_TYPES, _BOOLEAN, False, Importance.MEDIUM,
                          "Whether enums and alternatives have names that other formats share.",
                          validator=refused_if_true("names are those of JSON Schema alone")),
            converter_key(_KEEP_MORE, _BOOLEAN, False, Importance.MEDIUM,
                          "Whether properties that the schema does not name are kept.",
                          validator=refused_if_true("Connect has no schema for them")),
        ]
    )  # fmt: skip

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """Raises ConfigException."""
        super().__init__(properties)
        settings = self.settings
        numeric = settings[_DECIMAL_FORMAT].upper() == "NUMERIC"
        self._values: Final = JsonSchemaValues(
            numeric_decimals=numeric, replace_null_with_default=not settings[_IGNORE_DEFAULT]
        )
        self._writer: Final = JsonSchemaWriter(
            self._values, numeric=numeric, open_objects=settings[_OPEN_OBJECTS]
        )
        self._readings: Final = BoundedCache(self._make_reading, settings[CACHE_SIZE])

    def _make_writing(self, schema: Schema) -> Writing:
        text = msgspec.json.encode(self._writer.of(schema)).decode()
        return Writing(self._values.writer(schema), self._serializer(text, JSON))

    def _read(self, framed: Framed) -> SchemaAndValue:
        if framed.place:
            raise SerializationError("the header that names the schema is too long")
        reading = self._readings.get(framed.schema_id)
        try:
            json = (_decode_exactly if reading.is_exact else _decode)(framed.payload)
        except (*MALFORMED, ArithmeticError) as error:
            raise SerializationError(f"the bytes are no JSON: {error}") from error
        return SchemaAndValue(reading.schema, reading.read(json))

    def _make_reading(self, schema_id: SchemaId) -> _Reading:
        from waylog.serialization.registered_schemas import JsonSchema

        kept = self._schema_of(schema_id)
        if not isinstance(kept, JsonSchema):
            raise SerializationError("the schema is not of type JSON")
        schema = json_schema_reading(
            JsonDocument(kept.json, kept.referenced),
            self._values,
            optional_unless_required=self.settings[_OPTIONAL],
        )
        return _Reading(schema, self._values.reader(schema), has_decimal(schema))
