"""Values as JSON and back, by their schema.

A schema is looked at once: `reader` and `writer` return functions that are made for it and kept
with it. Kafka's converter turns a text where a number is due into 0, and too large a number into
another one; here both are DataException.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from consumers.connect.data.exceptions import DataException
from consumers.connect.data.logical_types import logical_type_of
from consumers.connect.data.schemas import DECIMAL_NAME, INTEGER_BITS, Schema, Type
from consumers.connect.data.structs import Struct
from consumers.connect.java.number_text import INT64_MAX, INT64_MIN, to_float32
from waylog.serialization.json_numbers import NON_FINITE, non_finite_text

Convert = Callable[[Any], Any]
#: Of JSON, whatever the value.
_AS_THEY_ARE: Final = frozenset((str, bool, type(None)))
_JSON_NAMES: Final[dict[type, str]] = {
    dict: "OBJECT",
    list: "ARRAY",
    str: "STRING",
    bool: "BOOLEAN",
    int: "NUMBER",
    float: "NUMBER",
    Decimal: "NUMBER",
    type(None): "NULL",
}


def _kind(json: Any) -> str:
    return _JSON_NAMES.get(type(json), type(json).__name__)


class JsonValues:
    """Makes the functions that read and write values."""

    def __init__(self, *, numeric_decimals: bool, replace_null_with_default: bool) -> None:
        """`numeric_decimals` writes decimals as numbers (`decimal.format`), else as Base64."""
        self._numeric_decimals: Final = numeric_decimals
        self._replace_null: Final = replace_null_with_default

    def writer(self, schema: Schema) -> Convert:
        """Return the function from values of the schema to JSON; it raises DataException."""
        write = self._plain_writer(schema)
        default = schema.default if self._replace_null else None
        of_null = None if default is None else write(default)
        optional = schema.optional

        def write_optional(value: Any) -> Any:
            if value is not None:
                return write(value)
            if of_null is None and not optional:
                raise DataException(
                    "Conversion error: null value for field that is required and has no default "
                    "value"
                )
            return of_null

        return write_optional

    def _plain_writer(self, schema: Schema) -> Convert:
        logical = logical_type_of(schema)
        if schema.name == DECIMAL_NAME and logical is not None:
            to_bytes = logical.to_plain

            def write_decimal(value: Any) -> Any:
                data = to_bytes(schema, value) if not self._numeric_decimals else None
                if data is not None:
                    return base64.b64encode(data).decode()
                if not isinstance(value, Decimal) or not value.is_finite():
                    raise DataException(
                        f"Invalid type for Decimal, expected Decimal but was {type(value).__name__}"
                    )
                return value

            return write_decimal
        if logical is not None:
            to_plain = logical.to_plain
            return lambda value: to_plain(schema, value)
        if schema.type is Type.ARRAY:
            return self._array_writer(schema)
        if schema.type is Type.MAP:
            return self._map_writer(schema)
        if schema.type is Type.STRUCT:
            return self._struct_writer(schema)
        return _scalar_writer(schema)

    def _array_writer(self, schema: Schema) -> Convert:
        write = (
            write_schemaless if schema.value_schema is None else self.writer(schema.value_schema)
        )

        def write_array(value: Any) -> Any:
            if not isinstance(value, list):
                raise DataException(f"Invalid type for ARRAY: {type(value).__name__}")
            return [write(each) for each in value]

        return write_array

    def _map_writer(self, schema: Schema) -> Convert:
        keys, values = schema.key_schema, schema.value_schema
        write_key = write_schemaless if keys is None else self.writer(keys)
        write_value = write_schemaless if values is None else self.writer(values)
        as_object = keys is not None and keys.type is Type.STRING

        def write_map(value: Any) -> Any:
            if not isinstance(value, dict):
                raise DataException(f"Invalid type for MAP: {type(value).__name__}")
            if as_object:
                return {_text(write_key(key)): write_value(each) for key, each in value.items()}
            return [[write_key(key), write_value(each)] for key, each in value.items()]

        return write_map

    def _struct_writer(self, schema: Schema) -> Convert:
        fields = [(field.name, self.writer(field.schema)) for field in schema.fields]

        def write_struct(value: Any) -> Any:
            if not isinstance(value, Struct):
                raise DataException(f"Invalid type for STRUCT: {type(value).__name__}")
            if not schema.is_same_struct(value.schema):
                raise DataException("Mismatching schema.")
            return {
                name: write(each) for (name, write), each in zip(fields, value.values, strict=True)
            }

        return write_struct

    def reader(self, schema: Schema) -> Convert:
        """Return the function from JSON to values of the schema; it raises DataException."""
        read = self._plain_reader(schema)
        default = schema.default if self._replace_null else None
        optional, type_ = schema.optional, schema.type

        def read_optional(json: Any) -> Any:
            if json is not None:
                return read(json)
            if default is None and not optional:
                raise DataException(f"Invalid null value for required {type_} field")
            return default

        return read_optional

    def _plain_reader(self, schema: Schema) -> Convert:
        logical = logical_type_of(schema)
        if schema.name == DECIMAL_NAME and logical is not None:
            from_bytes = logical.from_plain

            def read_decimal(json: Any) -> Any:
                if isinstance(json, str):
                    return from_bytes(schema, _bytes(json))
                if isinstance(json, (int, float, Decimal)) and not isinstance(json, bool):
                    return Decimal(repr(json)) if isinstance(json, float) else Decimal(json)
                raise DataException(
                    "Invalid type for Decimal, underlying representation should be numeric or "
                    f"bytes but was {_kind(json)}"
                )

            return read_decimal
        if schema.type in INTEGER_BITS:
            read_integer = _integer_reader(schema)
            if logical is None:
                return read_integer
            from_plain = logical.from_plain
            return lambda json: from_plain(schema, read_integer(json))
        if schema.type is Type.ARRAY:
            return self._array_reader(schema)
        if schema.type is Type.MAP:
            return self._map_reader(schema)
        if schema.type is Type.STRUCT:
            return self._struct_reader(schema)
        return _scalar_reader(schema)

    def _array_reader(self, schema: Schema) -> Convert:
        read = read_schemaless if schema.value_schema is None else self.reader(schema.value_schema)

        def read_array(json: Any) -> Any:
            if not isinstance(json, list):
                raise DataException(
                    f"Arrays should be encoded as JSON array, but found {_kind(json)}"
                )
            return [read(each) for each in json]

        return read_array

    def _map_reader(self, schema: Schema) -> Convert:
        keys, values = schema.key_schema, schema.value_schema
        read_key = read_schemaless if keys is None else self.reader(keys)
        read_value = read_schemaless if values is None else self.reader(values)
        as_object = keys is not None and keys.type is Type.STRING

        def read_object(json: Any) -> Any:
            if not isinstance(json, dict):
                raise DataException(
                    "Maps with string fields should be encoded as JSON objects, but found "
                    + _kind(json)
                )
            return {key: read_value(each) for key, each in json.items()}

        def read_pairs(json: Any) -> Any:
            if not isinstance(json, list):
                raise DataException(
                    "Maps with non-string fields should be encoded as JSON array of tuples, but "
                    "found " + _kind(json)
                )
            found: dict[Any, Any] = {}
            for entry in json:
                if not isinstance(entry, list):
                    raise DataException(
                        f"Found invalid map entry instead of array tuple: {_kind(entry)}"
                    )
                if len(entry) != 2:
                    raise DataException(
                        f"Found invalid map entry, expected length 2 but found :{len(entry)}"
                    )
                key = read_key(entry[0])
                if isinstance(key, (list, dict)):
                    raise DataException("Arrays and maps as keys of maps are not supported")
                found[key] = read_value(entry[1])
            return found

        return read_object if as_object else read_pairs

    def _struct_reader(self, schema: Schema) -> Convert:
        fields = [(field.name, self.reader(field.schema)) for field in schema.fields]

        def read_struct(json: Any) -> Any:
            if not isinstance(json, dict):
                raise DataException(
                    f"Structs should be encoded as JSON objects, but found {_kind(json)}"
                )
            get = json.get
            return Struct.of(schema, [read(get(name)) for name, read in fields])

        return read_struct


def _text(key: Any) -> str:
    return key if isinstance(key, str) else "null"


def _unchanged(kind: type, refuse: Callable[[Any], DataException]) -> Convert:
    """Return the function for values that JSON has as they are."""

    def convert(value: Any) -> Any:
        if not isinstance(value, kind):
            raise refuse(value)
        return value

    return convert


def _scalar_writer(schema: Schema) -> Convert:
    type_ = schema.type
    bits = INTEGER_BITS.get(type_)

    def refuse(value: Any) -> DataException:
        return DataException(f"Invalid type for {type_}: {type(value).__name__}")

    if bits is not None:
        limit = 1 << (bits - 1)

        def write_integer(value: Any) -> Any:
            if not isinstance(value, int) or isinstance(value, bool):
                raise refuse(value)
            if not -limit <= value < limit:
                raise DataException(f"Number is out of range for {type_}")
            return value

        return write_integer

    def write_float(value: Any) -> Any:
        if not isinstance(value, float):
            raise refuse(value)
        return value if math.isfinite(value) else non_finite_text(value)

    def write_bytes(value: Any) -> Any:
        if not isinstance(value, bytes):
            raise DataException(f"Invalid type for bytes type: {type(value).__name__}")
        return base64.b64encode(value).decode()

    writers = {
        Type.FLOAT32: lambda value: _shortest(write_float(value)),
        Type.FLOAT64: write_float,
        Type.BYTES: write_bytes,
        Type.BOOLEAN: _unchanged(bool, refuse),
        Type.STRING: _unchanged(str, refuse),
    }
    return writers[type_]


def _shortest(value: Any) -> Any:
    """Return the float with the fewest digits that is the same in 32 bits."""
    if isinstance(value, float):
        narrow = to_float32(value)
        if not math.isfinite(narrow):
            return non_finite_text(narrow)
        for digits in range(6, 10):
            short = float(f"{narrow:.{digits}g}")
            if to_float32(short) == narrow:
                return short
    return value


def _integer_reader(schema: Schema) -> Convert:
    type_ = schema.type
    limit = 1 << (INTEGER_BITS[type_] - 1)

    def read_integer(json: Any) -> Any:
        if isinstance(json, (float, Decimal)) and -limit <= json < limit and json == int(json):
            json = int(json)  # languages without integers write 1.0
        if not isinstance(json, int) or isinstance(json, bool):
            raise DataException(
                f"Invalid type for {type_}, underlying representation should be integer but was "
                + _kind(json)
            )
        if not -limit <= json < limit:
            raise DataException(f"Number is out of range for {type_}")
        return json

    return read_integer


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataException("Invalid bytes field") from error


def _scalar_reader(schema: Schema) -> Convert:
    type_ = schema.type

    def refuse(json: Any) -> DataException:
        return DataException(f"Invalid type for {type_}, found {_kind(json)}")

    def read_float(json: Any) -> Any:
        if isinstance(json, (int, float, Decimal)) and not isinstance(json, bool):
            try:
                return float(json)
            except OverflowError:
                return math.inf if json > 0 else -math.inf
        if isinstance(json, str) and json in NON_FINITE:
            return NON_FINITE[json]
        raise refuse(json)

    def read_bytes(json: Any) -> Any:
        if not isinstance(json, str):
            raise DataException("Invalid bytes field")
        return _bytes(json)

    readers = {
        Type.FLOAT32: lambda json: to_float32(read_float(json)),
        Type.FLOAT64: read_float,
        Type.BYTES: read_bytes,
        Type.BOOLEAN: _unchanged(bool, refuse),
        Type.STRING: _unchanged(str, refuse),
    }
    return readers[type_]


def write_schemaless(value: Any) -> Any:
    """Return the JSON of a value without a schema; raises DataException."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        if not INT64_MIN <= value <= INT64_MAX:
            raise DataException("Number is out of range for INT64")
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else non_finite_text(value)
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {
                key: each if type(each) in _AS_THEY_ARE else write_schemaless(each)
                for key, each in value.items()
            }
        return [[write_schemaless(key), write_schemaless(each)] for key, each in value.items()]
    if isinstance(value, list):
        return [write_schemaless(each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Struct):
        raise DataException("Mismatching schema.")
    kind = type(value).__name__
    raise DataException(f"Class {kind} does not have corresponding schema type.")


def read_schemaless(json: Any) -> Any:
    """Return the value of JSON without a schema; raises DataException.

    Whole numbers have to fit 64 bits. The JSON itself is returned where nothing has to change.
    """
    if isinstance(json, int):
        if not INT64_MIN <= json <= INT64_MAX:
            raise DataException("Number is out of range for INT64")
    elif isinstance(json, dict):
        for each in json.values():
            if not isinstance(each, (str, float)):
                read_schemaless(each)
    elif isinstance(json, list):
        for each in json:
            if not isinstance(each, (str, float)):
                read_schemaless(each)
    return json


def has_decimal(schema: Schema | None) -> bool:
    """Tell whether values may have decimals, whose digits a float would lose."""
    if schema is None:
        return False
    return (
        schema.name == DECIMAL_NAME
        or has_decimal(schema.key_schema)
        or has_decimal(schema.value_schema)
        or any(has_decimal(field.schema) for field in schema.fields)
    )
