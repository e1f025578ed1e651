"""MaskField: nothing, or a fixed value, in place of what is in a field."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, ClassVar, Final

from consumers.connect.configuration.definitions import ConfigDef, ConfigKey, ConfigType, Importance
from consumers.connect.configuration.validators import non_empty
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.logical_types import decimal_from_bytes, scale_of
from consumers.connect.data.records import Record
from consumers.connect.data.schemas import DECIMAL_NAME, INTEGER_BITS, Schema, Type
from consumers.connect.data.structs import Struct
from consumers.connect.java.number_text import integer_of_decimal, parse_decimal, to_float32, wrap
from consumers.connect.transforms.transform import (
    FIELDS,
    REPLACE_NULL,
    VALUE,
    Side,
    Transform,
    field_values,
    require_map,
    require_struct,
)

_PURPOSE: Final = "mask fields"


class MaskField(Transform):
    """Hides what fields hold: 0, false, an empty text, or a replacement."""

    kafka_name = "org.apache.kafka.connect.transforms.MaskField"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            FIELDS,
            ConfigKey(
                name="replacement",
                type=ConfigType.STRING,
                default=None,
                validator=non_empty,
                importance=Importance.LOW,
                documentation="What is put in their place; for numbers and texts only.",
            ),
            REPLACE_NULL,
        ]
    )

    def __init__(self, properties: Mapping[str, Any], side: Side = VALUE) -> None:
        """Raises ConfigException."""
        super().__init__(properties, side)
        self._fields: Final = frozenset(self.settings["fields"])
        self._replacement: Final[str | None] = self.settings["replacement"]
        self._with_defaults: Final[bool] = self.settings[REPLACE_NULL.name]

    def apply(self, record: Record) -> Record:
        """Return the record with fields hidden; DataException where the replacement is none.

        A tombstone has no fields, and is DataException, too: a predicate can leave it out.
        """
        schema = self.side.schema(record)
        value = self.side.value(record)
        if schema is None:
            fields = dict(require_map(value, _PURPOSE))
            for name in self._fields:
                fields[name] = self._masked(None, fields.get(name))
            return self.side.changed(record, None, fields)
        struct = require_struct(value, _PURPOSE)
        values = [
            self._masked(field.schema, each) if field.name in self._fields else each
            for field, each in zip(
                struct.schema.fields,
                field_values(struct, with_defaults=self._with_defaults),
                strict=True,
            )
        ]
        return self.side.changed(record, schema, Struct.of(struct.schema, values))

    def _masked(self, schema: Schema | None, value: Any) -> Any:
        if value is None:
            return None
        if self._replacement is None:
            return _nothing(schema, value)
        if isinstance(value, str):
            return self._replacement
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            raise DataException(
                f"Cannot mask value of type {type(value).__name__} with custom replacement."
            )
        replacement = parse_decimal(self._replacement)
        if replacement is None:
            raise DataException(f"Unable to convert {self._replacement} to number")
        return _number(schema, value, replacement)


def _number(schema: Schema | None, value: float | Decimal, new: Decimal) -> Any:
    """Return a number of the kind of the masked one."""
    if isinstance(value, Decimal):
        if schema is not None and new.as_tuple().exponent != -scale_of(schema):
            raise DataException(f"The replacement does not have the scale {scale_of(schema)}")
        return new
    if isinstance(value, int):
        bits = INTEGER_BITS.get(schema.type, 64) if schema is not None else 64
        return wrap(integer_of_decimal(new), bits)
    is_narrow = schema is not None and schema.type is Type.FLOAT32
    return to_float32(float(new)) if is_narrow else float(new)


def _nothing(schema: Schema | None, value: Any) -> Any:
    if isinstance(value, Decimal):
        is_logical = schema is not None and schema.name == DECIMAL_NAME
        return decimal_from_bytes(schema, b"\x00") if schema and is_logical else Decimal(0)
    for kind, nothing in (
        (bool, False),
        (int, 0),
        (float, 0.0),
        (str, ""),
        (datetime, datetime(1970, 1, 1, tzinfo=UTC)),
        (date, date(1970, 1, 1)),
        (time, time(0)),
    ):
        if isinstance(value, kind):
            return nothing
    if isinstance(value, list):
        return []
    if isinstance(value, dict):
        return {}
    raise DataException(f"Cannot mask value of type: {type(value).__name__}")
