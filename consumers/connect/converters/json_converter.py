"""JSON with or without schemas: what Kafka Connect's JsonConverter does.

With `schemas.enable` (the default) each key and value is an envelope,
{"schema":{"type":"string","optional":false},"payload":"x"}. Without it, JSON is taken as it is:
whole numbers are INT64, others FLOAT64, objects maps.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from consumers.connect.configuration.definitions import ConfigDef, ConfigKey, ConfigType, Importance
from consumers.connect.configuration.validators import one_of_ignoring_case
from consumers.connect.converters.converter import CONVERTER_TYPE, AddedHeaders, Converter
from consumers.connect.converters.json_schemas import schema_from_json, schema_to_json
from consumers.connect.converters.json_values import (
    Convert,
    JsonValues,
    has_decimal,
    read_schemaless,
    write_schemaless,
)
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.schemas import NULL, Schema, SchemaAndValue
from waylog.bounded_cache import BoundedCache
from waylog.malformed import MALFORMED
from waylog.serialization.serializer import NO_HEADERS, RecordHeaders

_SCHEMAS_ENABLE: Final = "schemas.enable"
_CACHE_SIZE: Final = "schemas.cache.size"
_DECIMAL_FORMAT: Final = "decimal.format"
_REPLACE_NULL: Final = "replace.null.with.default"
_NOT_AN_ENVELOPE: Final = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain '
    "additional fields. If you are trying to deserialize plain JSON data, set schemas.enable=false "
    "in your converter configuration."
)
#: A longer schema is read each time.
_REMEMBERED_BYTES_MAX: Final = 16 * 1024
#: For bytes that are no JSON, numbers that nobody can hold, and what is nested too deeply.
_NO_JSON: Final = (*MALFORMED, ArithmeticError)
_NO_TEXT: Final = (ValueError, RecursionError)


class _Envelope(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    schema: msgspec.Raw
    payload: msgspec.Raw


class _Reading(NamedTuple):
    """A schema that was read, and how its values are."""

    schema: Schema | None
    read: Convert
    decode: msgspec.json.Decoder[Any]


class _Writing(NamedTuple):
    """How values of a schema are written, with the envelope up to them."""

    head: bytes
    write: Convert


_decoder: Final = msgspec.json.Decoder()
#: Keeps all digits of numbers.
_exact_decoder: Final = msgspec.json.Decoder(float_hook=Decimal)
_envelope_decoder: Final = msgspec.json.Decoder(_Envelope)
_encoder: Final = msgspec.json.Encoder(decimal_format="number")


class JsonConverter(Converter):
    """Reads and writes JSON."""

    kafka_name = "org.apache.kafka.connect.json.JsonConverter"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            CONVERTER_TYPE,
            ConfigKey(
                name=_SCHEMAS_ENABLE,
                type=ConfigType.BOOLEAN,
                default=True,
                importance=Importance.HIGH,
                documentation="Whether keys and values have their schemas with them.",
                group="Schemas",
                order=0,
                display_name="Enable Schemas",
            ),
            ConfigKey(
                name=_CACHE_SIZE,
                type=ConfigType.INT,
                default=1000,
                importance=Importance.HIGH,
                documentation="How many schemas the converter remembers.",
                group="Schemas",
                order=1,
                display_name="Schema Cache Size",
            ),
            ConfigKey(
                name=_DECIMAL_FORMAT,
                type=ConfigType.STRING,
                default="BASE64",
                validator=one_of_ignoring_case("BASE64", "NUMERIC"),
                importance=Importance.LOW,
                documentation="How decimals are written: as Base64 of the unscaled number, or as "
                "numbers. Both are read.",
                group="Serialization",
                order=0,
                display_name="Decimal Format",
            ),
            ConfigKey(
                name=_REPLACE_NULL,
                type=ConfigType.BOOLEAN,
                default=True,
                importance=Importance.LOW,
                documentation="Whether null becomes the default of its schema.",
                group="Serialization",
                order=1,
                display_name="Replace null with default",
            ),
        ]
    )

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """Raises ConfigException."""
        super().__init__(properties)
        self._with_schemas: Final[bool] = self.settings[_SCHEMAS_ENABLE]
        self._values: Final = JsonValues(
            numeric_decimals=self.settings[_DECIMAL_FORMAT].upper() == "NUMERIC",
            replace_null_with_default=self.settings[_REPLACE_NULL],
        )
        size = max(self.settings[_CACHE_SIZE], 0)
        self._readings: Final = BoundedCache(self._make_reading, size)
        self._writings: Final = BoundedCache(self._make_writing, size)

    def from_connect(
        self, topic: str, schema: Schema | None, value: Any, headers: AddedHeaders | None = None
    ) -> bytes | None:
        """Return the JSON; None for a tombstone."""
        if schema is None and value is None:
            return None
        try:
            if schema is None:
                head = b'{"schema":null,"payload":'
                payload = _encoder.encode(write_schemaless(value))
            else:
                writing = self._writings.get(schema)
                head = writing.head
                payload = _encoder.encode(writing.write(value))
        except _NO_TEXT as error:
            raise DataException(
                "Converting Kafka Connect data to byte[] failed due to serialization error: "
                f"{type(error).__name__}"
            ) from error
        return head + payload + b"}" if self._with_schemas else payload

    def to_connect(
        self, topic: str, data: bytes | None, headers: RecordHeaders = NO_HEADERS
    ) -> SchemaAndValue:
        """Return the value; of a tombstone none."""
        if data is None:
            return NULL
        try:
            if self._with_schemas:
                return self._read_envelope(data)
            if not data or data.isspace():
                return NULL
            return SchemaAndValue(None, read_schemaless(_decoder.decode(data)))
        except _NO_JSON as error:
            raise DataException(
                "Converting byte[] to Kafka Connect data failed due to serialization error: "
                f"{error}"
            ) from error

    def _read_envelope(self, data: bytes) -> SchemaAndValue:
        try:
            envelope = _envelope_decoder.decode(data)
        except MALFORMED as error:
            if isinstance(error, msgspec.ValidationError):
                raise DataException(_NOT_AN_ENVELOPE) from error
            raise
        schema = bytes(envelope.schema)
        # Whoever writes to the topic writes the schemas: long ones would fill the memory.
        remembered = len(schema) <= _REMEMBERED_BYTES_MAX
        reading = self._readings.get(schema) if remembered else self._make_reading(schema)
        return SchemaAndValue(reading.schema, reading.read(reading.decode.decode(envelope.payload)))

    def _make_reading(self, json: bytes) -> _Reading:
        schema = schema_from_json(_exact_decoder.decode(json), self._values)
        if schema is None:
            return _Reading(None, read_schemaless, _decoder)
        decoder = _exact_decoder if has_decimal(schema) else _decoder
        return _Reading(schema, self._values.reader(schema), decoder)

    def _make_writing(self, schema: Schema) -> _Writing:
        head = b""
        if self._with_schemas:
            json = _encoder.encode(schema_to_json(schema, self._values))
            head = b'{"schema":' + json + b',"payload":'
        return _Writing(head, self._values.writer(schema))
