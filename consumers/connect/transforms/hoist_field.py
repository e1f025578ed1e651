"""HoistField and ValueToKey: fields put into a new map or struct."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from consumers.connect.configuration.definitions import ConfigDef, ConfigKey, ConfigType, Importance
from consumers.connect.configuration.validators import non_empty_list
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.records import Record, changed
from consumers.connect.data.schemas import Schema, struct_of
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


class HoistField(Transform):
    """Makes the key or value the only field of a map or struct."""

    kafka_name = "org.apache.kafka.connect.transforms.HoistField"
    config: ClassVar[ConfigDef] = ConfigDef(
        [ConfigKey(name="field", type=ConfigType.STRING, documentation="Name of the field.")]
    )

    def __init__(self, properties: Mapping[str, Any], side: Side = VALUE) -> None:
        """Raises ConfigException."""
        super().__init__(properties, side)
        self._field: Final[str] = self.settings["field"]
        self._schemas: Final = BoundedCache(self._hoisted, SCHEMAS_REMEMBERED)

    def _hoisted(self, schema: Schema) -> Schema:
        return struct_of({self._field: schema})

    def apply(self, record: Record) -> Record:
        """Return the record with the field around; DataException for a null that must not be."""
        schema = self.side.schema(record)
        value = self.side.value(record)
        if schema is None:
            return self.side.changed(record, None, {self._field: value})
        hoisted = self._schemas.get(schema)
        return self.side.changed(record, hoisted, Struct(hoisted, {self._field: value}))


class ValueToKey(Transform):
    """Makes a new key of fields of the value."""

    kafka_name = "org.apache.kafka.connect.transforms.ValueToKey"
    has_sides = False
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="fields",
                type=ConfigType.LIST,
                validator=non_empty_list,
                importance=Importance.HIGH,
                documentation="Names of the fields.",
            ),
            REPLACE_NULL,
        ]
    )
    _purpose: ClassVar = "copying fields from value to key"

    def __init__(self, properties: Mapping[str, Any], side: Side = VALUE) -> None:
        """Raises ConfigException."""
        super().__init__(properties, side)
        self._fields: Final[list[str]] = self.settings["fields"]
        self._with_defaults: Final[bool] = self.settings[REPLACE_NULL.name]
        self._schemas: Final = BoundedCache(self._key_schema, SCHEMAS_REMEMBERED)

    def apply(self, record: Record) -> Record:
        """Return the record with the new key; DataException if a struct has no such field."""
        if record.value_schema is None:
            value = require_map(record.value, self._purpose)
            key = {name: value.get(name) for name in self._fields}
            return changed(record, key=key, key_schema=None)
        struct = require_struct(record.value, self._purpose)
        schema = self._schemas.get(struct.schema)
        values = field_values(struct, with_defaults=self._with_defaults)
        by_name = struct.schema.fields_by_name
        key_values = [values[by_name[field.name].index] for field in schema.fields]
        return changed(record, key=Struct.of(schema, key_values), key_schema=schema)

    def _key_schema(self, schema: Schema) -> Schema:
        fields: dict[str, Schema] = {}
        for name in self._fields:
            field = schema.field(name)
            if field is None:
                raise DataException(f"Field does not exist: {name}")
            fields[name] = field.schema
        return struct_of(fields)
