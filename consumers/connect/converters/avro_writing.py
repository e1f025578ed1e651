"""Schemas and values of Connect as Avro, as Confluent's AvroConverter writes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from consumers.connect.converters import avro_names
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.logical_types import logical_type_of, scale_of
from consumers.connect.data.schemas import (
    DATE_NAME,
    DECIMAL_NAME,
    INTEGER_BITS,
    TIME_NAME,
    TIMESTAMP_NAME,
    Schema,
    Type,
)
from consumers.connect.data.structs import Struct

Write = Callable[[Any], Any]

_AVRO: Final = {
    **{Type.INT8: "int", Type.INT16: "int", Type.INT32: "int", Type.INT64: "long"},
    **{Type.FLOAT32: "float", Type.FLOAT64: "double", Type.BOOLEAN: "boolean"},
    **{Type.STRING: "string", Type.BYTES: "bytes"},
}
_LOGICAL: Final = {
    DATE_NAME: "date",
    TIME_NAME: "time-millis",
    TIMESTAMP_NAME: "timestamp-millis",
}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_FIELD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CLASSES: Final[dict[Type, tuple[type, ...]]] = {
    Type.FLOAT32: (float,),
    Type.FLOAT64: (float,),
    Type.BOOLEAN: (bool,),
    Type.STRING: (str,),
    Type.BYTES: (bytes,),
}


class AvroWriting(NamedTuple):
    """An Avro schema as JSON, and what makes its values of Connect's."""

    schema: Any
    write: Write


def avro_writing(schema: Schema, *, with_metadata: bool) -> AvroWriting:
    """Return how a schema is written; raises DataException for what Avro cannot name.

    `with_metadata` (`connect.meta.data`) adds what only Connect knows: names, versions, types.
    """
    return _Writer(with_metadata=with_metadata).of(schema)


class _Writer:
    def __init__(self, *, with_metadata: bool) -> None:
        self._with_metadata: Final = with_metadata
        #: Named types that have been written in full.
        self._defined: Final[dict[str, Schema]] = {}

    def of(self, schema: Schema) -> AvroWriting:
        avro, write = self._required(schema)
        if not schema.optional:
            return AvroWriting(avro, _refusing_null(write, schema))
        # A default has to be of the first branch.
        null_first = schema.default is None
        return AvroWriting(
            ["null", avro] if null_first else [avro, "null"],
            lambda value: None if value is None else write(value),
        )

    def _required(self, schema: Schema) -> AvroWriting:
        if schema.type is Type.STRUCT:
            return self._struct(schema)
        if schema.type is Type.ARRAY:
            return self._array(schema)
        if schema.type is Type.MAP:
            return self._map(schema)
        return self._scalar(schema)

    def _scalar(self, schema: Schema) -> AvroWriting:
        attributes: dict[str, Any] = {}
        logical = logical_type_of(schema)
        if schema.type in (Type.INT8, Type.INT16) and self._with_metadata:
            attributes[avro_names.TYPE] = schema.type.value
        if logical is not None and schema.name == DECIMAL_NAME:
            text = (schema.parameters or {}).get(avro_names.PRECISION, "")
            precision = int(text) if text.isdigit() else avro_names.PRECISION_DEFAULT
            attributes |= {
                "logicalType": "decimal", "precision": precision, "scale": scale_of(schema),
            }  # fmt: skip
        elif logical is not None and schema.name is not None:
            attributes["logicalType"] = _LOGICAL[schema.name]
        attributes |= self._metadata(schema)
        name = _AVRO[schema.type]
        avro: Any = {"type": name, **attributes} if attributes else name
        if logical is not None:
            to_plain = logical.to_plain
            return AvroWriting(avro, lambda value: to_plain(schema, value))
        return AvroWriting(avro, _checked(schema))

    def _metadata(self, schema: Schema) -> dict[str, Any]:
        if not self._with_metadata:
            return {}
        found: dict[str, Any] = {}
        if schema.doc is not None:
            found[avro_names.DOC] = schema.doc
        if schema.version is not None:
            found[avro_names.VERSION] = schema.version
        if schema.parameters:
            found[avro_names.PARAMETERS] = dict(schema.parameters)
        if schema.name is not None:
            found[avro_names.NAME] = schema.name
        return found

    def _array(self, schema: Schema) -> AvroWriting:
        if schema.value_schema is None:
            raise DataException("An array without a schema of its items has no Avro")
        items, write = self.of(schema.value_schema)
        avro = {"type": "array", "items": items, **self._metadata(schema)}

        def write_array(value: Any) -> Any:
            if not isinstance(value, list):
                raise _mismatch(schema, value)
            return [write(each) for each in value]

        return AvroWriting(avro, write_array)

    def _map(self, schema: Schema) -> AvroWriting:
        keys, values = schema.key_schema, schema.value_schema
        if keys is None or values is None:
            raise DataException("A map without schemas of its keys and values has no Avro")
        if keys.type is Type.STRING and not keys.optional:
            avro_values, write = self.of(values)
            avro = {"type": "map", "values": avro_values, **self._metadata(schema)}

            def write_map(value: Any) -> Any:
                if not isinstance(value, dict):
                    raise _mismatch(schema, value)
                return {key: write(each) for key, each in value.items()}

            return AvroWriting(avro, write_map)
        return self._entries(schema, keys, values)

    def _entries(self, schema: Schema, keys: Schema, values: Schema) -> AvroWriting:
        name = schema.name or avro_names.MAP_ENTRY
        self._define(name, schema)
        (key, write_key), (value, write_value) = self.of(keys), self.of(values)
        entry: dict[str, Any] = {
            "type": "record",
            **_full_name(name),
            "fields": [{"name": "key", "type": key}, {"name": "value", "type": value}],
        }
        if schema.name is not None:
            entry["connect.internal.type"] = "MapEntry"
        avro = {"type": "array", "items": entry, **self._metadata(schema)}

        def write_entries(value: Any) -> Any:
            if not isinstance(value, dict):
                raise _mismatch(schema, value)
            return [
                {"key": write_key(key), "value": write_value(each)} for key, each in value.items()
            ]

        return AvroWriting(avro, write_entries)

    def _define(self, name: str, schema: Schema) -> None:
        if not _NAME.fullmatch(name):
            raise DataException(f"{name} cannot be the name of a record in Avro")
        if name in self._defined:
            raise DataException(f"Two schemas have the same name {name}")
        self._defined[name] = schema

    def _struct(self, schema: Schema) -> AvroWriting:
        name = schema.name or avro_names.DEFAULT_RECORD
        known = self._defined.get(name)
        if known is not None and known.is_same_struct(schema):
            # Its definition stands in front; how it is written is found out anew.
            return AvroWriting(name, _Writer(with_metadata=self._with_metadata).of(
                schema.replace(optional=False, default=None)).write)  # fmt: skip
        self._define(name, schema)
        fields: list[dict[str, Any]] = []
        writes: list[tuple[str, Write]] = []
        for field in schema.fields:
            if not _FIELD.fullmatch(field.name):
                raise DataException(f"{field.name} cannot be the name of a field in Avro")
            avro, write = self.of(field.schema)
            fields.append({"name": field.name, "type": avro} | _default(field.schema, write))
            if field.schema.default is not None and not field.schema.optional:
                write = _with_default(write, field.schema.default)
            writes.append((field.name, write))
        avro_record = {
            "type": "record",
            **_full_name(name),
            "fields": fields,
            **self._metadata(schema),
        }

        def write_struct(value: Any) -> Any:
            if not isinstance(value, Struct) or not schema.is_same_struct(value.schema):
                raise _mismatch(schema, value)
            return {
                field: write(each)
                for (field, write), each in zip(writes, value.values, strict=True)
            }

        return AvroWriting(avro_record, write_struct)


def _default(schema: Schema, write: Write) -> dict[str, Any]:
    if schema.default is None:
        return {"default": None} if schema.optional else {}
    default = write(schema.default)
    # Avro writes the bytes of a default as characters of ISO 8859-1.
    return {"default": default.decode("iso-8859-1") if isinstance(default, bytes) else default}


def _with_default(write: Write, default: Any) -> Write:
    return lambda value: write(default if value is None else value)


def _full_name(name: str) -> dict[str, str]:
    namespace, _, simple = name.rpartition(".")
    return {"name": simple} | ({"namespace": namespace} if namespace else {})


def _refusing_null(write: Write, schema: Schema) -> Write:
    def write_required(value: Any) -> Any:
        if value is None:
            if schema.default is None:
                raise DataException(
                    "Found null value for non-optional schema of type " + str(schema.type)
                )
            return write(schema.default)
        return write(value)

    return write_required


def _checked(schema: Schema) -> Write:
    bits = INTEGER_BITS.get(schema.type)
    if bits is not None:
        limit = 1 << (bits - 1)

        def write_integer(value: Any) -> Any:
            if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
                raise _mismatch(schema, value)
            return value

        return write_integer
    classes = _CLASSES[schema.type]

    def write_scalar(value: Any) -> Any:
        if not isinstance(value, classes):
            raise _mismatch(schema, value)
        return value

    return write_scalar


def _mismatch(schema: Schema, value: Any) -> DataException:
    return DataException(f"Invalid type for {schema.type}: {type(value).__name__}")
