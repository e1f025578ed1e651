"""Transforms of headers: DropHeaders, InsertHeader (KIP-145), HeaderFrom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from consumers.connect.configuration.definitions import ConfigDef, ConfigKey, ConfigType, Importance
from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.configuration.validators import non_empty_list, non_null, one_of
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.records import Header, Record, changed
from consumers.connect.data.schemas import Schema
from consumers.connect.data.structs import Struct
from consumers.connect.data.text_parser import parse_text
from consumers.connect.transforms.transform import (
    FIELDS,
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


class DropHeaders(Transform):
    """Leaves headers out."""

    kafka_name = "org.apache.kafka.connect.transforms.DropHeaders"
    has_sides = False
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="headers",
                type=ConfigType.LIST,
                validator=non_empty_list,
                importance=Importance.HIGH,
                documentation="Names of the headers to leave out.",
            )
        ]
    )

    def __init__(self, properties: Mapping[str, Any], side: Side = VALUE) -> None:
        """Raises ConfigException."""
        super().__init__(properties, side)
        self._dropped: Final = frozenset(self.settings["headers"])

    def apply(self, record: Record) -> Record:
        """Return the record without these headers."""
        kept = tuple(header for header in record.headers if header.key not in self._dropped)
        return changed(record, headers=kept)


class InsertHeader(Transform):
    """Adds a header with the same value to all records."""

    kafka_name = "org.apache.kafka.connect.transforms.InsertHeader"
    has_sides = False
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="header",
                type=ConfigType.STRING,
                validator=non_null,
                importance=Importance.HIGH,
                documentation="Name of the header.",
            ),
            ConfigKey(
                name="value.literal",
                type=ConfigType.STRING,
                validator=non_null,
                importance=Importance.HIGH,
                documentation="Value of the header; its form says its type, as that of headers "
                "that SimpleHeaderConverter reads.",
            ),
        ]
    )

    def __init__(self, properties: Mapping[str, Any], side: Side = VALUE) -> None:
        """Raises ConfigException."""
        super().__init__(properties, side)
        schema, value = parse_text(self.settings["value.literal"])
        self._header: Final = Header(self.settings["header"], value, schema)

    def apply(self, record: Record) -> Record:
        """Return the record with one header more."""
        return changed(record, headers=(*record.headers, self._header))


class HeaderFrom(Transform):
    """Copies or moves fields to headers."""

    kafka_name = "org.apache.kafka.connect.transforms.HeaderFrom"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            FIELDS,
            ConfigKey(
                name="headers",
                type=ConfigType.LIST,
                validator=non_empty_list,
                importance=Importance.HIGH,
                documentation="Names of the headers, in the order of the fields.",
            ),
            ConfigKey(
                name="operation",
                type=ConfigType.STRING,
                validator=one_of("move", "copy"),
                importance=Importance.HIGH,
                documentation="move: the fields are left out. copy: they stay.",
            ),
            REPLACE_NULL,
        ]
    )

    def __init__(self, properties: Mapping[str, Any], side: Side = VALUE) -> None:
        """Raises ConfigException."""
        super().__init__(properties, side)
        self._fields: Final[list[str]] = self.settings["fields"]
        self._headers: Final[list[str]] = self.settings["headers"]
        if len(self._fields) != len(self._headers):
            raise ConfigException(
                "'fields' config must have the same number of elements as 'headers' config."
            )
        self._moves: Final = self.settings["operation"] == "move"
        self._purpose: Final = f"header {self.settings['operation']}"
        self._with_defaults: Final[bool] = self.settings[REPLACE_NULL.name]
        self._rest: Final = BoundedCache(self._schema_of_rest, SCHEMAS_REMEMBERED)

    def apply(self, record: Record) -> Record:
        """Return the record with more headers; DataException if it is neither map nor struct."""
        schema = self.side.schema(record)
        if schema is None:
            return self._apply_to_map(record)
        struct = require_struct(self.side.value(record), self._purpose)
        values = field_values(struct, with_defaults=self._with_defaults)
        headers = []
        for name, header in zip(self._fields, self._headers, strict=True):
            field = struct.schema.field(name)
            if field is None:
                raise DataException(f"Unknown field: {name}")
            headers.append(Header(header, values[field.index], field.schema))
        if self._moves:
            rest = self._rest.get(struct.schema)
            kept = [values[struct.schema.fields_by_name[each.name].index] for each in rest.fields]
            record = self.side.changed(record, rest, Struct.of(rest, kept))
        return changed(record, headers=(*record.headers, *headers))

    def _apply_to_map(self, record: Record) -> Record:
        value = require_map(self.side.value(record), self._purpose)
        added = [
            Header(header, value.get(name))
            for name, header in zip(self._fields, self._headers, strict=True)
        ]
        rest = dict(value)
        if self._moves:
            for name in self._fields:
                rest.pop(name, None)
        return changed(self.side.changed(record, None, rest), headers=(*record.headers, *added))

    def _schema_of_rest(self, schema: Schema) -> Schema:
        fields = [(each.name, each.schema) for each in schema.fields]
        kept = [each for each in fields if each[0] not in self._fields]
        return schema.replace(fields=kept, default=None, optional=False)
