"""Cast: fields, or the whole key or value, as another type."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from typing import Any, ClassVar, Final

from consumers.connect.configuration.definitions import ConfigDef, ConfigKey, ConfigType, Importance
from consumers.connect.configuration.exceptions import ConfigException, invalid_value
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.logical_types import logical_type_of
from consumers.connect.data.records import Record
from consumers.connect.data.schemas import DECIMAL_NAME, INTEGER_BITS, Schema, Type
from consumers.connect.data.structs import Struct
from consumers.connect.data.value_text import java_text
from consumers.connect.java.number_text import (
    integer_of_decimal,
    parse_double,
    parse_integer,
    to_float32,
    truncate,
    wrap,
)
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

_PURPOSE: Final = "cast types"
_OUTPUTS: Final = (
    *(Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64),
    *(Type.BOOLEAN, Type.STRING),
)
_INPUTS: Final = (*_OUTPUTS, Type.BYTES)


def _parse_spec(spec: Sequence[str]) -> dict[str | None, Type]:
    """Return the types by field; that of the whole value by None. Raises ConfigException."""
    casts: dict[str | None, Type] = {}
    for mapping in spec:
        parts = mapping.split(":")
        if len(parts) > 2:
            raise invalid_value("spec", list(spec), f"Invalid cast mapping: {mapping}")
        name = parts[-1].strip()
        try:
            type_ = Type[name.upper()]
        except KeyError as error:
            raise ConfigException(f"Invalid type found in casting spec: {name}") from error
        if type_ not in _OUTPUTS:
            raise ConfigException(
                f"Cast transformation does not support casting to {type_}; "
                f"supported types are [{', '.join(map(str, _OUTPUTS))}]"
            )
        casts[parts[0].strip() if len(parts) == 2 else None] = type_
    if None in casts and len(spec) > 1:
        raise ConfigException(
            "Cast transformations that specify a type to cast the entire value to may only "
            "specify a single cast in their spec"
        )
    return casts


def _validate_spec(name: str, value: Any) -> None:
    if not value:
        raise ConfigException("Must specify at least one field to cast.")
    _parse_spec(value)


class Cast(Transform):
    """Gives values another type."""

    kafka_name = "org.apache.kafka.connect.transforms.Cast"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="spec",
                type=ConfigType.LIST,
                validator=_validate_spec,
                importance=Importance.HIGH,
                documentation="Pairs field:type, or one type for the whole value: int8, int16, "
                "int32, int64, float32, float64, boolean or string. Bytes become Base64.",
            ),
            REPLACE_NULL,
        ]
    )

    def __init__(self, properties: Mapping[str, Any], side: Side = VALUE) -> None:
        """Raises ConfigException."""
        super().__init__(properties, side)
        self._casts: Final = _parse_spec(self.settings["spec"])
        self._whole: Final = self._casts.get(None)
        self._with_defaults: Final[bool] = self.settings[REPLACE_NULL.name]
        self._schemas: Final = BoundedCache(self._changed_schema, SCHEMAS_REMEMBERED)

    def apply(self, record: Record) -> Record:
        """Return the record with the values cast; DataException for what cannot be."""
        value = self.side.value(record)
        if value is None:
            return record
        schema = self.side.schema(record)
        if schema is None:
            return self.side.changed(record, None, self._cast_schemaless(value))
        if self._whole is not None:
            new = cast_value(schema, value, self._whole)
            return self.side.changed(record, self._schemas.get(schema), new)
        struct = require_struct(value, _PURPOSE)
        values = [
            each
            if field.name not in self._casts
            else cast_value(field.schema, each, self._casts[field.name])
            for field, each in zip(
                struct.schema.fields,
                field_values(struct, with_defaults=self._with_defaults),
                strict=True,
            )
        ]
        changed = self._schemas.get(struct.schema)
        return self.side.changed(record, changed, Struct.of(changed, values))

    def _cast_schemaless(self, value: Any) -> Any:
        if self._whole is not None:
            return cast_value(None, value, self._whole)
        fields = dict(require_map(value, _PURPOSE))
        for name, type_ in self._casts.items():
            assert name is not None, "the whole value has been handled"
            fields[name] = cast_value(None, fields.get(name), type_)
        return fields

    def _changed_schema(self, schema: Schema) -> Schema:
        if self._whole is not None:
            default = cast_value(schema, schema.default, self._whole)
            if logical_type_of(schema) is not None:
                # Its name would say that values are still times or decimals.
                return Schema(
                    self._whole, optional=schema.optional, default=default, doc=schema.doc
                )
            return Schema(
                self._whole,
                optional=schema.optional,
                default=default,
                name=schema.name,
                version=schema.version,
                doc=schema.doc,
                parameters=schema.parameters,
            )
        fields = [
            (each.name, self._changed_field(each.name, each.schema)) for each in schema.fields
        ]
        changed = schema.replace(fields=fields, default=None)
        if schema.default is None:
            return changed
        default = Struct.of(
            changed,
            [
                each
                if field.name not in self._casts
                else cast_value(field.schema, each, self._casts[field.name])
                for field, each in zip(schema.fields, schema.default.values, strict=True)
            ],
        )
        return changed.replace(default=default)

    def _changed_field(self, name: str, schema: Schema) -> Schema:
        type_ = self._casts.get(name)
        if type_ is None:
            return schema
        default = cast_value(schema, schema.default, type_)
        return Schema(type_, optional=schema.optional, default=default)


def cast_value(schema: Schema | None, value: Any, target: Type) -> Any:
    """Return a value as another type as Java casts it; raises DataException.

    Numbers that are too large lose their upper bits, floats are cut to the type's range.
    """
    if value is None:
        return None
    type_ = schema.type if schema is not None else _inferred(value)
    if type_ not in _INPUTS:
        raise DataException(
            f"Cast transformation does not support casting from {type_}; "
            f"supported types are [{', '.join(map(str, _INPUTS))}]"
        )
    if target is Type.STRING:
        return _text(schema, value)
    logical = logical_type_of(schema)
    if logical is not None and schema is not None and schema.name != DECIMAL_NAME:
        value = logical.to_plain(schema, value)
    bits = INTEGER_BITS.get(target)
    if bits is not None:
        return _integer(value, bits)
    if target is Type.BOOLEAN:
        return _boolean(value)
    number = _float(value)
    return to_float32(number) if target is Type.FLOAT32 else number


def _inferred(value: Any) -> Type | None:
    for kind, type_ in (
        (bool, Type.BOOLEAN),
        (int, Type.INT64),
        (float, Type.FLOAT64),
        (str, Type.STRING),
        (bytes, Type.BYTES),
        (list, Type.ARRAY),
        (dict, Type.MAP),
        (Struct, Type.STRUCT),
    ):
        if isinstance(value, kind):
            return type_
    raise DataException(
        f"Cast transformation was passed a value of type {type(value).__name__} which is not "
        "supported by Connect's data API"
    )


def _unexpected(value: Any) -> DataException:
    return DataException(f"Unexpected type in Cast transformation: {type(value).__name__}")


def _out_of_range(value: Any) -> DataException:
    return DataException(f"Value ({value}) was out of range for requested data type")


def _text(schema: Schema | None, value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if not isinstance(value, (str, bool, int, float, Decimal, date, time)):
        raise _unexpected(value)
    return java_text(value, schema)


def _integer(value: Any, bits: int) -> int:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return wrap(value, bits)
    if isinstance(value, float):
        return truncate(value, bits)
    if isinstance(value, Decimal) and value.is_finite():
        return wrap(integer_of_decimal(value), bits)
    if not isinstance(value, str):
        raise _unexpected(value)
    number = parse_integer(value, bits)
    if number is None:
        raise _out_of_range(value)
    return number


def _float(value: Any) -> float:
    if isinstance(value, (bool, int, float, Decimal)):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
        except ValueError as error:
            raise _unexpected(value) from error
    if not isinstance(value, str):
        raise _unexpected(value)
    number = parse_double(value)
    if number is None:
        raise _out_of_range(value)
    return number


def _boolean(value: Any) -> bool:
    if isinstance(value, str):
        return value.lower() == "true"
    if isinstance(value, float):
        return truncate(value, 64) != 0
    if isinstance(value, Decimal):
        return _integer(value, 64) != 0
    if not isinstance(value, int):
        raise _unexpected(value)
    return wrap(int(value), 64) != 0
