"""InsertField: where a record comes from, its time, or a fixed text as fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple

from consumers.connect.configuration.definitions import ConfigDef, ConfigKey, ConfigType
from consumers.connect.configuration.exceptions import ConfigException, invalid_value
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.logical_types import (
    OPTIONAL_TIMESTAMP,
    TIMESTAMP,
    timestamp_from_ms,
)
from consumers.connect.data.records import ConnectRecord, Record, SinkRecord
from consumers.connect.data.schemas import (
    INT32,
    INT64,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
)
from consumers.connect.data.structs import Struct
from consumers.connect.transforms.transform import (
    REPLACE_NULL,
    SCHEMAS_REMEMBERED,
    VALUE,
    Side,
    Transform,
    field_values,
    require_map,
    require_struct,
)
from waylog.bounded_cache import BoundedCache

_PURPOSE: Final = "field insertion"


class _Insertion(NamedTuple):
    kind: str
    field: str
    schema: Schema


_SCHEMAS: Final = {
    "topic": (STRING, OPTIONAL_STRING),
    "partition": (INT32, OPTIONAL_INT32),
    "offset": (INT64, OPTIONAL_INT64),
    "timestamp": (TIMESTAMP, OPTIONAL_TIMESTAMP),
    "static": (STRING, OPTIONAL_STRING),
}


def _field_key(kind: str, documentation: str) -> ConfigKey:
    return ConfigKey(
        name=f"{kind}.field",
        type=ConfigType.STRING,
        default=None,
        documentation=f"Name of the field for {documentation}. Behind it ! makes the field "
        "required, ? optional, which it is anyway.",
    )


class InsertField(Transform):
    """Adds fields to the key or value."""

    kafka_name = "org.apache.kafka.connect.transforms.InsertField"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            _field_key("topic", "the topic"),
            _field_key("partition", "the partition"),
            _field_key("offset", "the offset, which only records of sink connectors have"),
            _field_key("timestamp", "the record's time"),
            _field_key("static", "a fixed text"),
            ConfigKey(
                name="static.value",
                type=ConfigType.STRING,
                default=None,
                documentation="The fixed text.",
            ),
            REPLACE_NULL,
        ]
    )

    def __init__(self, properties: Mapping[str, Any], side: Side = VALUE) -> None:
        """Raises ConfigException, also if no field is named."""
        super().__init__(properties, side)
        self._insertions: Final = [
            _insertion(kind, spec)
            for kind in _SCHEMAS
            if (spec := self.settings[f"{kind}.field"]) is not None
        ]
        self._static: Final[str | None] = self.settings["static.value"]
        if not self._insertions:
            raise ConfigException("No field insertion configured")
        if self._insertions[-1].kind == "static" and self._static is None:
            reason = f"No value specified for static field: {self._insertions[-1].field}"
            raise invalid_value("static.value", None, reason)
        self._with_defaults: Final[bool] = self.settings[REPLACE_NULL.name]
        self._schemas: Final = BoundedCache(self._extended, SCHEMAS_REMEMBERED)

    def apply(self, record: Record) -> Record:
        """Return the record with more fields; a tombstone as it is. Raises DataException."""
        value = self.side.value(record)
        if value is None:
            return record
        if self.side.schema(record) is None:
            fields = dict(require_map(value, _PURPOSE))
            for insertion in self._insertions:
                inserted = self._inserted(insertion.kind, record)
                if inserted is not None:
                    fields[insertion.field] = inserted
            return self.side.changed(record, None, fields)
        struct = require_struct(value, _PURPOSE)
        schema = self._schemas.get(struct.schema)
        values = list(field_values(struct, with_defaults=self._with_defaults))
        for insertion in self._insertions:
            inserted = self._inserted(insertion.kind, record)
            if insertion.kind == "timestamp" and inserted is not None:
                inserted = timestamp_from_ms(TIMESTAMP, inserted)
            if inserted is None and not insertion.schema.optional:
                raise DataException(f"The record has no {insertion.kind} for {insertion.field}")
            values.append(inserted)
        return self.side.changed(record, schema, Struct.of(schema, values))

    def _inserted(self, kind: str, record: ConnectRecord) -> Any:
        match kind:
            case "topic":
                return record.topic
            case "partition":
                return record.partition
            case "timestamp":
                return record.timestamp
            case "static":
                return self._static
            case _:
                if not isinstance(record, SinkRecord):
                    raise DataException(
                        f"Only SinkRecord supported for [{_PURPOSE}], "
                        f"found: {type(record).__name__}"
                    )
                return record.offset

    def _extended(self, schema: Schema) -> Schema:
        own = [(field.name, field.schema) for field in schema.fields]
        added = [(insertion.field, insertion.schema) for insertion in self._insertions]
        return schema.replace(fields=[*own, *added], optional=False, default=None)


def _insertion(kind: str, spec: str) -> _Insertion:
    required, optional = _SCHEMAS[kind]
    if spec.endswith("!"):
        return _Insertion(kind, spec[:-1], required)
    return _Insertion(kind, spec.removesuffix("?"), optional)
