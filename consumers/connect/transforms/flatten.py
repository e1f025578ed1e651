"""Flatten: fields within fields get names of their own, a.b."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from consumers.connect.configuration.definitions import ConfigDef, ConfigKey, ConfigType
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.records import Record
from consumers.connect.data.schemas import Schema, Type
from consumers.connect.data.structs import Struct
from consumers.connect.transforms.transform import (
    SCHEMAS_REMEMBERED,
    VALUE,
    Side,
    Transform,
    require_map,
    require_struct,
)
from waylog.bounded_cache import BoundedCache

_PURPOSE: Final = "flattening"


class Flatten(Transform):
    """Takes structs and maps apart; arrays stay as they are."""

    kafka_name = "org.apache.kafka.connect.transforms.Flatten"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="delimiter",
                type=ConfigType.STRING,
                default=".",
                documentation="What is put between the names.",
            )
        ]
    )

    def __init__(self, properties: Mapping[str, Any], side: Side = VALUE) -> None:
        """Raises ConfigException."""
        super().__init__(properties, side)
        self._delimiter: Final[str] = self.settings["delimiter"]
        self._schemas: Final = BoundedCache(self._flat_schema, SCHEMAS_REMEMBERED)

    def apply(self, record: Record) -> Record:
        """Return the record without fields within fields; raises DataException."""
        value = self.side.value(record)
        if value is None:
            return record
        try:
            if self.side.schema(record) is None:
                flat: dict[str, Any] = {}
                self._flatten_map(require_map(value, _PURPOSE), "", flat)
                return self.side.changed(record, None, flat)
            struct = require_struct(value, _PURPOSE)
            schema = self._schemas.get(struct.schema)
            fields: dict[str, Any] = {}
            self._flatten_struct(struct, "", fields)
        except RecursionError as error:
            raise DataException("The value is nested too deeply") from error
        return self.side.changed(record, schema, Struct(schema, fields))

    def _name(self, prefix: str, name: str) -> str:
        return f"{prefix}{self._delimiter}{name}" if prefix else name

    def _flatten_map(self, value: dict[str, Any], prefix: str, flat: dict[str, Any]) -> None:
        for key, each in value.items():
            if not isinstance(key, str):
                raise DataException(f"Flatten transformation does not support the key {key!r}")
            name = self._name(prefix, key)
            if isinstance(each, dict):
                self._flatten_map(each, name, flat)
            elif each is None or isinstance(each, (str, bool, int, float, bytes, list)):
                flat[name] = each
            else:
                raise DataException(
                    f"Flatten transformation does not support {type(each).__name__} for record "
                    f"without schemas (for field {name})."
                )

    def _flatten_struct(self, struct: Struct, prefix: str, flat: dict[str, Any]) -> None:
        values = struct.values_with_defaults()
        for field, each in zip(struct.schema.fields, values, strict=True):
            name = self._name(prefix, field.name)
            if field.schema.type is not Type.STRUCT:
                flat[name] = each
            elif each is not None:
                self._flatten_struct(each, name, flat)

    def _flat_schema(self, schema: Schema) -> Schema:
        fields: list[tuple[str, Schema]] = []
        self._add_fields(schema, "", fields, schema.optional, schema.default)
        return schema.replace(fields=fields, optional=False, default=None)

    def _add_fields(
        self,
        schema: Schema,
        prefix: str,
        fields: list[tuple[str, Schema]],
        optional: bool,
        default: Struct | None,
    ) -> None:
        """Add the fields of a struct that is optional, or has a default, on the way down to it."""
        for field in schema.fields:
            name = self._name(prefix, field.name)
            is_optional = optional or field.schema.optional
            of_field = field.schema.default
            if of_field is None and default is not None:
                of_field = default.get(field.name)
            if field.schema.type is Type.STRUCT:
                self._add_fields(field.schema, name, fields, is_optional, of_field)
            elif field.schema.type is Type.MAP:
                raise DataException(
                    f"Flatten transformation does not support {field.schema.type} for record with "
                    f"schemas (for field {name})."
                )
            else:
                flat = field.schema.replace(optional=is_optional, default=of_field)
                fields.append((name, flat))
