"""Schemas of keys, values and headers, as `org.apache.kafka.connect.data.Schema` describes them.

| type | a value is |
|---|---|
| INT8 to INT64 | int within the type's bits |
| FLOAT32, FLOAT64 | float |
| BOOLEAN, STRING, BYTES | bool, str, bytes |
| ARRAY, MAP, STRUCT | list, dict, Struct |
| a logical type (`consumers/connect/data/logical_types.py`) | Decimal, date, time, aware datetime |

None is a value of optional schemas. Schemas never change; they can be keys of dicts.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec

from consumers.connect.data.exceptions import DataException, SchemaException


class Type(enum.Enum):
    """The type of a value; `value` is the name that Kafka's `Type.getName` returns."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"

    def __str__(self) -> str:
        return self.name


DECIMAL_NAME: Final = "org.apache.kafka.connect.data.Decimal"
DATE_NAME: Final = "org.apache.kafka.connect.data.Date"
TIME_NAME: Final = "org.apache.kafka.connect.data.Time"
TIMESTAMP_NAME: Final = "org.apache.kafka.connect.data.Timestamp"
#: Bits of the types of whole numbers.
INTEGER_BITS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}

_CLASSES: Final[dict[Type, type]] = {
    Type.FLOAT32: float,
    Type.FLOAT64: float,
    Type.BOOLEAN: bool,
    Type.STRING: str,
    Type.BYTES: bytes,
    Type.ARRAY: list,
    Type.MAP: dict,
}
#: By the names of logical types (`consumers/connect/data/logical_types.py`).
_LOGICAL_CLASSES: Final[dict[tuple[str, Type], type]] = {
    (DECIMAL_NAME, Type.BYTES): Decimal,
    (DATE_NAME, Type.INT32): date,
    (TIME_NAME, Type.INT32): time,
    (TIMESTAMP_NAME, Type.INT64): datetime,
}


class Field(msgspec.Struct, frozen=True):
    """A field of a struct."""

    name: str
    index: int
    schema: Schema


class Schema:
    """The form of a value. Two schemas with the same members are equal."""

    __slots__ = (
        *("_hash", "default", "doc", "fields", "fields_by_name", "key_schema", "name"),
        *("optional", "parameters", "type", "value_schema", "version"),
    )

    def __init__(
        self,
        type_: Type,
        *,
        optional: bool = False,
        default: Any = None,
        name: str | None = None,
        version: int | None = None,
        doc: str | None = None,
        parameters: Mapping[str, str] | None = None,
        fields: Iterable[tuple[str, Schema]] = (),
        key_schema: Schema | None = None,
        value_schema: Schema | None = None,
    ) -> None:
        """`fields` are a struct's in their order, `key_schema` a map's, `value_schema` that of a
        map or an array. Raises SchemaException for what does not belong together, and for a
        default that is no value of the schema.
        """
        self.type: Final = type_
        self.optional: Final = optional
        self.name: Final = name
        self.version: Final = version
        self.doc: Final = doc
        self.parameters: Final[Mapping[str, str] | None] = dict(parameters) if parameters else None
        self.fields: Final = tuple(
            Field(each, index, schema) for index, (each, schema) in enumerate(fields)
        )
        self.fields_by_name: Final = {field.name: field for field in self.fields}
        self.key_schema: Final = key_schema
        self.value_schema: Final = value_schema
        if self.fields and type_ is not Type.STRUCT:
            raise SchemaException(f"Cannot create fields on type {type_}")
        if "" in self.fields_by_name:
            raise SchemaException("fieldName cannot be null.")
        if len(self.fields_by_name) < len(self.fields):
            names = [field.name for field in self.fields]
            twice = next(each for each in names if names.count(each) > 1)
            raise SchemaException(f"Cannot create field because of field name duplication {twice}")
        self._hash: Final = hash(
            (type_, optional, name, version, self.fields, key_schema, value_schema)
        )
        self.default: Any = None
        if default is not None:
            try:
                validate_value(self, default)
            except DataException as error:
                raise SchemaException(f"Invalid default value: {error}") from error
            self.default = default

    def field(self, name: str) -> Field | None:
        """Return a struct's field, None if there is none; DataException for other types."""
        if self.type is not Type.STRUCT:
            raise DataException("Cannot look up fields on non-struct type")
        return self.fields_by_name.get(name)

    def replace(self, **changes: Any) -> Schema:
        """Return a schema with some members changed, named as those of the constructor."""
        members: dict[str, Any] = {
            "optional": self.optional,
            "default": self.default,
            "name": self.name,
            "version": self.version,
            "doc": self.doc,
            "parameters": self.parameters,
            "fields": [(field.name, field.schema) for field in self.fields],
            "key_schema": self.key_schema,
            "value_schema": self.value_schema,
        }
        return Schema(changes.pop("type_", self.type), **(members | changes))

    def is_same_struct(self, other: Schema) -> bool:
        """Return whether structs of one schema are structs of the other.

        Whether they may be missing, and their default, does not matter: the default of a schema
        is a struct of the schema without default.
        """
        return self is other or (
            self.type is other.type
            and self.name == other.name
            and self.version == other.version
            and self.fields == other.fields
        )

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Schema) or self._hash != other._hash:
            return False
        return (
            self.type is other.type
            and self.optional == other.optional
            and self.name == other.name
            and self.version == other.version
            and self.doc == other.doc
            and self.parameters == other.parameters
            and self.fields == other.fields
            and self.key_schema == other.key_schema
            and self.value_schema == other.value_schema
            and bool(self.default == other.default)
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Schema{{{self.name}:{self.type}}}" if self.name else f"Schema{{{self.type}}}"


class SchemaAndValue(NamedTuple):
    """A value with its schema, None if it has none."""

    schema: Schema | None
    value: Any


NULL: Final = SchemaAndValue(None, None)

INT8: Final = Schema(Type.INT8)
INT16: Final = Schema(Type.INT16)
INT32: Final = Schema(Type.INT32)
INT64: Final = Schema(Type.INT64)
FLOAT32: Final = Schema(Type.FLOAT32)
FLOAT64: Final = Schema(Type.FLOAT64)
BOOLEAN: Final = Schema(Type.BOOLEAN)
STRING: Final = Schema(Type.STRING)
BYTES: Final = Schema(Type.BYTES)
OPTIONAL_INT8: Final = Schema(Type.INT8, optional=True)
OPTIONAL_INT16: Final = Schema(Type.INT16, optional=True)
OPTIONAL_INT32: Final = Schema(Type.INT32, optional=True)
OPTIONAL_INT64: Final = Schema(Type.INT64, optional=True)
OPTIONAL_FLOAT32: Final = Schema(Type.FLOAT32, optional=True)
OPTIONAL_FLOAT64: Final = Schema(Type.FLOAT64, optional=True)
OPTIONAL_BOOLEAN: Final = Schema(Type.BOOLEAN, optional=True)
OPTIONAL_STRING: Final = Schema(Type.STRING, optional=True)
OPTIONAL_BYTES: Final = Schema(Type.BYTES, optional=True)


def array_of(values: Schema, *, optional: bool = False) -> Schema:
    """Return the schema of an array of such values."""
    return Schema(Type.ARRAY, value_schema=values, optional=optional)


def map_of(keys: Schema, values: Schema, *, optional: bool = False) -> Schema:
    """Return the schema of a map."""
    return Schema(Type.MAP, key_schema=keys, value_schema=values, optional=optional)


def struct_of(
    fields: Mapping[str, Schema], *, name: str | None = None, optional: bool = False
) -> Schema:
    """Return the schema of a struct with these fields in this order."""
    return Schema(Type.STRUCT, fields=fields.items(), name=name, optional=optional)


def validate_value(schema: Schema, value: Any, location: str = "value") -> None:
    """Raise DataException if the value is not one of the schema; `location` is for the message."""
    if value is None:
        if not schema.optional:
            raise DataException(
                f"Invalid value: null used for required {location}, schema type: {schema.type}"
            )
        return
    if not _is_instance(schema, value):
        name = f' "{schema.name}"' if schema.name is not None else ""
        kind = type(value).__name__
        raise DataException(
            f"Invalid object for schema{name} with type {schema.type}: {kind} for {location}"
        )
    if schema.type is Type.ARRAY:
        element = f"element of array {location}"
        for each in value:
            validate_value(_present(schema.value_schema, element), each, element)
    elif schema.type is Type.MAP:
        of_key, of_value = f"key of map {location}", f"value of map {location}"
        for key, each in value.items():
            validate_value(_present(schema.key_schema, of_key), key, of_key)
            validate_value(_present(schema.value_schema, of_value), each, of_value)
    elif schema.type is Type.STRUCT and not schema.is_same_struct(value.schema):
        # A struct has checked its own fields when it was made.
        raise DataException("Struct schemas do not match.")


def _present(schema: Schema | None, location: str) -> Schema:
    if schema is None:
        raise DataException(f"No schema defined for {location}")
    return schema


def _is_instance(schema: Schema, value: Any) -> bool:
    if schema.name is not None:
        logical = _LOGICAL_CLASSES.get((schema.name, schema.type))
        if logical is not None:
            # A datetime is a date to Python.
            return isinstance(value, logical) and (
                logical is not date or not isinstance(value, datetime)
            )
    bits = INTEGER_BITS.get(schema.type)
    if bits is not None:
        return (
            isinstance(value, int)
            and not isinstance(value, bool)
            and -(1 << (bits - 1)) <= value < 1 << (bits - 1)
        )
    if schema.type is Type.STRUCT:
        # Structs are made of schemas (`consumers/connect/data/structs.py`).
        return isinstance(getattr(value, "schema", None), Schema) and hasattr(value, "values")
    return isinstance(value, _CLASSES[schema.type])
