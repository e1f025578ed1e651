"""ReplaceField: fields left out or renamed. And SetSchemaMetadata, which renames the schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from consumers.connect.configuration.definitions import ConfigDef, ConfigKey, ConfigType, Importance
from consumers.connect.configuration.exceptions import ConfigException, invalid_value
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.records import Record
from consumers.connect.data.schemas import Schema
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

_PURPOSE: Final = "field replacement"


def _parse_renames(name: str, renames: Sequence[str]) -> dict[str, str]:
    parsed: dict[str, str] = {}
    for mapping in renames:
        parts = mapping.split(":")
        if len(parts) != 2:
            raise invalid_value(name, list(renames), f"Invalid rename mapping: {mapping}")
        parsed[parts[0]] = parts[1]
    return parsed


def _validate_renames(name: str, value: Any) -> None:
    _parse_renames(name, value or [])


class ReplaceField(Transform):
    """Leaves fields out and renames others."""

    kafka_name = "org.apache.kafka.connect.transforms.ReplaceField"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="exclude",
                type=ConfigType.LIST,
                default=[],
                documentation="Names of fields to leave out, even if they are included.",
            ),
            ConfigKey(
                name="include",
                type=ConfigType.LIST,
                default=[],
                documentation="Names of the only fields to keep; empty for all.",
            ),
            ConfigKey(
                name="renames",
                type=ConfigType.LIST,
                default=[],
                validator=_validate_renames,
                documentation="Pairs old:new.",
            ),
            REPLACE_NULL,
        ]
    )

    def __init__(self, properties: Mapping[str, Any], side: Side = VALUE) -> None:
        """Raises ConfigException."""
        super().__init__(properties, side)
        self._exclude: Final = frozenset(self.settings["exclude"])
        self._include: Final = frozenset(self.settings["include"])
        self._renames: Final = _parse_renames("renames", self.settings["renames"])
        self._with_defaults: Final[bool] = self.settings[REPLACE_NULL.name]
        self._schemas: Final = BoundedCache(self._replaced, SCHEMAS_REMEMBERED)

    def _keeps(self, name: Any) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def apply(self, record: Record) -> Record:
        """Return the record with fewer or other fields; DataException if two get one name."""
        value = self.side.value(record)
        if value is None:
            return record
        if self.side.schema(record) is None:
            fields = {
                self._renames.get(name, name): each
                for name, each in require_map(value, _PURPOSE).items()
                if self._keeps(name)
            }
            return self.side.changed(record, None, fields)
        struct = require_struct(value, _PURPOSE)
        schema = self._schemas.get(struct.schema)
        values = field_values(struct, with_defaults=self._with_defaults)
        kept = [values[each.index] for each in struct.schema.fields if self._keeps(each.name)]
        return self.side.changed(record, schema, Struct.of(schema, kept))

    def _replaced(self, schema: Schema) -> Schema:
        fields = [
            (self._renames.get(each.name, each.name), each.schema)
            for each in schema.fields
            if self._keeps(each.name)
        ]
        return schema.replace(fields=fields, optional=False, default=None)


class SetSchemaMetadata(Transform):
    """Gives the schema another name or version."""

    kafka_name = "org.apache.kafka.connect.transforms.SetSchemaMetadata"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="schema.name",
                type=ConfigType.STRING,
                default=None,
                importance=Importance.HIGH,
                documentation="The schema's new name.",
            ),
            ConfigKey(
                name="schema.version",
                type=ConfigType.INT,
                default=None,
                importance=Importance.HIGH,
                documentation="The schema's new version.",
            ),
            REPLACE_NULL,
        ]
    )

    def __init__(self, properties: Mapping[str, Any], side: Side = VALUE) -> None:
        """Raises ConfigException, also if neither is set."""
        super().__init__(properties, side)
        self._with_defaults: Final[bool] = self.settings[REPLACE_NULL.name]
        self._changes: Final[dict[str, Any]] = {
            member: self.settings[f"schema.{member}"]
            for member in ("name", "version")
            if self.settings[f"schema.{member}"] is not None
        }
        if not self._changes:
            raise ConfigException("Neither schema name nor version configured")
        self._schemas: Final = BoundedCache(self._renamed, SCHEMAS_REMEMBERED)

    def apply(self, record: Record) -> Record:
        """Return the record with the schema; DataException for a value without one."""
        schema = self.side.schema(record)
        value = self.side.value(record)
        if schema is None:
            if value is None:
                return record
            raise DataException("Schema required for [updating schema metadata]")
        renamed = self._schemas.get(schema)
        if isinstance(value, Struct):
            values = field_values(value, with_defaults=self._with_defaults)
            value = Struct.of(renamed, values)
        return self.side.changed(record, renamed, value)

    def _renamed(self, schema: Schema) -> Schema:
        default = schema.default
        renamed = schema.replace(**self._changes, default=None)
        if isinstance(default, Struct):
            default = Struct.of(renamed, default.values)
        return renamed if default is None else renamed.replace(default=default)
