"""Schemas and values of Connect as messages of Protobuf, as Confluent's ProtobufConverter does it.

Each struct is a message inside of the message that has it as a field, an array a repeated field,
and a map a repeated message of key and value. What a message cannot tell is lost, as it is there:
versions, documentation, defaults, and the difference between null and nothing in fields that are
neither optional nor messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, time
from decimal import Decimal
from typing import Any, Final, NamedTuple
from urllib.parse import quote_plus

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    UninterpretedOption,
)
from google.protobuf.message import Message

from consumers.connect.converters import protobuf_names
from consumers.connect.converters.protobuf_names import ProtobufOptions
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.logical_types import (
    date_to_days,
    decimal_to_bytes,
    logical_type_of,
    scale_of,
    time_to_ms,
    timestamp_to_ms,
)
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
from waylog.serialization.protobuf_meta import FIELD_META

#: Puts a value that is not null into a field of a message.
Put = Callable[[Message, Any], None]

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_]")
_FIELD_MAX: Final = (1 << 29) - 1
_KINDS: Final = {
    **{Type.INT8: "int32", Type.INT16: "int32", Type.INT32: "int32", Type.INT64: "int64"},
    **{Type.FLOAT32: "float", Type.FLOAT64: "double", Type.BOOLEAN: "bool"},
    **{Type.STRING: "string", Type.BYTES: "bytes"},
}
#: Other types of integers, which a parameter may name, with what Connect has them as.
_OTHER_KINDS: Final = {
    **dict.fromkeys(("sint32", "sfixed32"), Type.INT32),
    **dict.fromkeys(("uint32", "fixed32", "uint64", "fixed64"), Type.INT64),
    **dict.fromkeys(("sint64", "sfixed64"), Type.INT64),
}
_WRAPPERS: Final = {
    **{"int32": "Int32Value", "sint32": "Int32Value", "sfixed32": "Int32Value"},
    **dict.fromkeys(("int64", "sint64", "sfixed64"), "Int64Value"),
    **dict.fromkeys(("uint32", "fixed32"), "UInt32Value"),
    **dict.fromkeys(("uint64", "fixed64"), "UInt64Value"),
    **{"float": "FloatValue", "double": "DoubleValue", "bool": "BoolValue"},
    **{"string": "StringValue", "bytes": "BytesValue"},
}
_CLASSES: Final[dict[Type, type]] = {
    **{Type.FLOAT32: float, Type.FLOAT64: float, Type.BOOLEAN: bool},
    **{Type.STRING: str, Type.BYTES: bytes},
}
_LOGICAL: Final = {
    DECIMAL_NAME: protobuf_names.DECIMAL,
    DATE_NAME: protobuf_names.DATE,
    TIME_NAME: protobuf_names.TIME,
    TIMESTAMP_NAME: protobuf_names.TIMESTAMP,
}
_LABEL: Final = FieldDescriptorProto


class ProtobufWriting(NamedTuple):
    """A file of Protobuf, the message of it that is written, and what fills one."""

    file: FileDescriptorProto
    message: str
    put: Put


def protobuf_writing(schema: Schema, options: ProtobufOptions) -> ProtobufWriting:
    """Return how a schema is written; raises DataException for what Protobuf cannot name.

    The file has no wrapper of a single value: those are in google/protobuf/wrappers.proto, to whose
    message `raw_wrapper` leads.
    """
    return _Writer(options).of_root(schema)


def raw_wrapper(schema: Schema) -> ProtobufWriting | None:
    """Return how a single value is written as a whole record, None for a struct.

    Its file is empty: it is google/protobuf/wrappers.proto. Raises DataException for arrays, maps
    and logical types.
    """
    if schema.type is Type.STRUCT:
        return None
    if schema.type not in _KINDS or logical_type_of(schema) is not None:
        name = schema.name if schema.name is not None else str(schema.type)
        raise DataException(f"A whole record cannot be a {name} in Protobuf; a struct can")
    kind, check = _scalar(schema)
    message = f"google.protobuf.{_WRAPPERS[kind]}"

    def put(message: Any, value: Any) -> None:
        message.value = check(value)

    return ProtobufWriting(FileDescriptorProto(), message, put)


class _Scope:
    """A message that is being defined, and the types within it."""

    def __init__(self, message: DescriptorProto, full_name: str, schema: Schema) -> None:
        self.message: Final = message
        self.full_name: Final = full_name
        self.structs: Final[dict[str, tuple[Schema, Put]]] = {}
        self.enums: Final[dict[str, Schema]] = {}
        tags = [_tag_of(field.schema) for field in _all_fields(schema)]
        self._given: Final = {tag for tag in tags if tag is not None}
        self._next = 1

    def number(self, schema: Schema) -> int:
        """Return the number that a field's schema names, else the next one that none names."""
        tag = _tag_of(schema)
        if tag is not None:
            return tag
        while self._next in self._given:
            self._next += 1
        self._next += 1
        return self._next - 1


def _all_fields(schema: Schema) -> list[Any]:
    found: list[Any] = []
    for field in schema.fields:
        found += _all_fields(field.schema) if _is_union(field.schema) else [field]
    return found


def _tag_of(schema: Schema) -> int | None:
    text = (schema.parameters or {}).get(protobuf_names.TAG, "")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    return number if 0 < number <= _FIELD_MAX else None


def _is_union(schema: Schema) -> bool:
    return schema.type is Type.STRUCT and (schema.name or "").startswith(protobuf_names.UNION)


class _Writer:
    def __init__(self, options: ProtobufOptions) -> None:
        self._options: Final = options
        self._file: Final = FileDescriptorProto(syntax="proto3")
        self._unnamed = 0

    def of_root(self, schema: Schema) -> ProtobufWriting:
        package, _, name = (schema.name or self._default_name()).rpartition(".")
        names = [self._name(each) for each in package.split(".") if each]
        self._file.package = ".".join(names)
        message = self._file.message_type.add(name=self._name(name))
        full_name = ".".join((*names, message.name))
        put = self._struct(_Scope(message, full_name, schema), schema)
        return ProtobufWriting(self._file, full_name, put)

    def _default_name(self) -> str:
        self._unnamed += 1
        return f"{protobuf_names.DEFAULT}{self._unnamed}"

    def _name(self, name: str) -> str:
        """Return a name of Protobuf; raises DataException if it is none and must not be changed."""
        if self._options.scrub_names and (not _NAME.fullmatch(name) or name.startswith("_")):
            encoded = quote_plus(name)
            prefix = "x" if not encoded[:1].isalpha() else ""
            return prefix + _NOT_IN_NAMES.sub("_", encoded)
        if not _NAME.fullmatch(name):
            raise DataException(
                f"{name} cannot be a name in Protobuf (scrub.invalid.names makes it one)"
            )
        return name

    def _simple_name(self, schema: Schema) -> str:
        return self._name((schema.name or self._default_name()).rpartition(".")[2])

    def _import(self, file: str) -> None:
        if file not in self._file.dependency:
            self._file.dependency.append(file)

    def _struct(self, scope: _Scope, schema: Schema) -> Put:
        puts: list[tuple[Put, Any, bool]] = []
        for field in schema.fields:
            if _is_union(field.schema):
                put = self._union(scope, field.schema)
            else:
                put = self._field(scope, field.name, field.schema)
            default = None if self._options.ignore_default else field.schema.default
            is_required = not field.schema.optional and default is None
            puts.append((put, default, is_required))

        def put_struct(message: Message, value: Any) -> None:
            if not isinstance(value, Struct) or not schema.is_same_struct(value.schema):
                raise _mismatch(schema, value)
            for (put, default, is_required), each in zip(puts, value.values, strict=True):
                member = default if each is None else each
                if member is not None:
                    put(message, member)
                elif is_required:
                    raise DataException("Found null value for a field that is not optional")

        return put_struct

    def _union(self, scope: _Scope, schema: Schema) -> Put:
        name = (schema.name or "").removeprefix(protobuf_names.UNION).rpartition(".")[2]
        index = len(scope.message.oneof_decl)
        scope.message.oneof_decl.add(name=self._name(name))
        puts = [
            self._field(scope, field.name, field.schema, oneof=index) for field in schema.fields
        ]

        def put_union(message: Message, value: Any) -> None:
            if not isinstance(value, Struct) or not schema.is_same_struct(value.schema):
                raise _mismatch(schema, value)
            given = [(put, each) for put, each in zip(puts, value.values, strict=True)
                     if each is not None]  # fmt: skip
            if len(given) != 1:
                raise DataException(f"{len(given)} fields of the oneof {name} are set, not one")
            put, member = given[0]
            put(message, member)

        return put_union

    def _field(
        self, scope: _Scope, field_name: str, schema: Schema, *, oneof: int | None = None
    ) -> Put:
        """Add a field to a message; return what puts a value into it."""
        name = self._name(field_name)
        field = scope.message.field.add(
            name=name, number=scope.number(schema), label=_LABEL.LABEL_OPTIONAL
        )
        if schema.type is Type.ARRAY:
            return self._array(scope, field, schema)
        if schema.type is Type.MAP:
            return self._map(scope, field, schema)
        if oneof is not None:
            field.oneof_index = oneof
        elif self._options.optional_for_nullables and schema.optional:
            field.proto3_optional = True
        wraps = (
            self._options.wrapper_for_nullables
            and schema.optional
            and (oneof is None or (schema.parameters or {}).get(protobuf_names.WRAPPER) == "true")
        )
        return self._single(scope, field, schema, wraps=wraps)

    def _single(
        self, scope: _Scope, field: FieldDescriptorProto, schema: Schema, *, wraps: bool
    ) -> Put:
        name = field.name
        if logical_type_of(schema) is not None or schema.type is Type.STRUCT:
            fill = self._message(scope, field, schema)
            return lambda message, value: fill(_present(message, name), value)
        if protobuf_names.ENUM in (schema.parameters or {}):
            number = self._enum(scope, field, schema)
            return lambda message, value: setattr(message, name, number(value))
        kind, check = _scalar(schema)
        if wraps:
            self._import(protobuf_names.WRAPPERS_FILE)
            _set_message(field, f".google.protobuf.{_WRAPPERS[kind]}")

            def put_wrapped(message: Message, value: Any) -> None:
                _present(message, name).value = check(value)

            self._tell_small(field, schema)
            return put_wrapped
        field.type = getattr(_LABEL, f"TYPE_{kind.upper()}")
        self._tell_small(field, schema)
        return lambda message, value: setattr(message, name, check(value))

    def _tell_small(self, field: FieldDescriptorProto, schema: Schema) -> None:
        if schema.type in (Type.INT8, Type.INT16):
            self._tell(field, {protobuf_names.CONNECT_TYPE: schema.type.value})

    def _tell(self, field: FieldDescriptorProto, parameters: dict[str, str]) -> None:
        """Add an option with what only Connect knows."""
        if not parameters:
            return
        self._import(protobuf_names.META_FILE)
        entries = " , ".join(
            f'{{ key : "{key}" value : "{value}" }}' for key, value in parameters.items()
        )
        option = field.options.uninterpreted_option.add(aggregate_value=f"params : [ {entries} ]")
        option.name.append(UninterpretedOption.NamePart(name_part=FIELD_META, is_extension=True))

    def _message(self, scope: _Scope, field: FieldDescriptorProto, schema: Schema) -> Put:
        """Give a field the type of a message; return what fills one."""
        logical = None if logical_type_of(schema) is None else _LOGICAL[schema.name or ""]
        if logical is not None:
            self._import(protobuf_names.FILES[logical])
            _set_message(field, f".{logical}")
            if logical == protobuf_names.DECIMAL:
                parameters = schema.parameters or {}
                precision = parameters.get(protobuf_names.CONNECT_PRECISION, "")
                told = {protobuf_names.PRECISION: precision} if precision.isdigit() else {}
                self._tell(field, told | {protobuf_names.SCALE: str(scale_of(schema))})
            fill = _FILLED[logical]
            return lambda message, value: fill(schema, message, value)
        name = self._simple_name(schema)
        while name in {each.name for each in scope.message.field}:
            name += "Message"  # types and fields share their names
        _set_message(field, f".{scope.full_name}.{name}")
        return self._nested(scope, name, schema)

    def _nested(self, scope: _Scope, name: str, schema: Schema) -> Put:
        required = schema.replace(optional=False, default=None, parameters=None)
        known = scope.structs.get(name)
        if known is not None:
            if known[0] != required:
                raise DataException(f"Two schemas have the same name {name}")
            return known[1]
        message = scope.message.nested_type.add(name=name)
        inner = _Scope(message, f"{scope.full_name}.{name}", schema)
        put = self._struct(inner, schema)
        scope.structs[name] = required, put
        return put

    def _enum(
        self, scope: _Scope, field: FieldDescriptorProto, schema: Schema
    ) -> Callable[[Any], int]:
        parameters = schema.parameters or {}
        prefix = f"{protobuf_names.ENUM}."
        numbers = {
            key.removeprefix(prefix): _enum_number(text)
            for key, text in parameters.items()
            if key.startswith(prefix)
        }
        name = self._name(parameters[protobuf_names.ENUM].rpartition(".")[2])
        plain = schema.replace(optional=False, default=None, parameters={
            key: text for key, text in parameters.items() if key != protobuf_names.TAG
        })  # fmt: skip
        known = scope.enums.setdefault(name, plain)
        if known is plain:
            enum: EnumDescriptorProto = scope.message.enum_type.add(name=name)
            # The first one of proto3 is 0.
            for symbol, number in sorted(numbers.items(), key=lambda each: each[1] != 0):
                enum.value.add(name=self._name(symbol), number=number)
            if len(set(numbers.values())) < len(numbers):
                enum.options.allow_alias = True
        elif known != plain:
            raise DataException(f"Two enums have the same name {name}")
        field.type = _LABEL.TYPE_ENUM
        field.type_name = f".{scope.full_name}.{name}"

        def number_of(value: Any) -> int:
            if schema.type is Type.STRING and isinstance(value, str) and value in numbers:
                return numbers[value]
            if schema.type is Type.INT32 and value in numbers.values():
                return int(value)
            raise DataException(f"{str(value)[:100]!r} is no value of the enum {name}")

        return number_of

    def _array(self, scope: _Scope, field: FieldDescriptorProto, schema: Schema) -> Put:
        items = schema.value_schema
        if items is None:
            raise DataException("An array without a schema of its items has no Protobuf")
        if items.type in (Type.ARRAY, Type.MAP):
            raise DataException(f"An array of {items.type}s has no Protobuf; one of structs has")
        field.label = _LABEL.LABEL_REPEATED
        name = field.name
        append = self._appending(scope, field, items)

        def put_array(message: Message, value: Any) -> None:
            if not isinstance(value, list):
                raise _mismatch(schema, value)
            repeated = getattr(message, name)
            for each in value:
                if each is None:
                    raise DataException("Protobuf has no null within an array")
                append(repeated, each)

        return put_array

    def _appending(
        self, scope: _Scope, field: FieldDescriptorProto, items: Schema
    ) -> Callable[[Any, Any], None]:
        if logical_type_of(items) is not None or items.type is Type.STRUCT:
            fill = self._message(scope, field, items)
            return lambda repeated, each: fill(repeated.add(), each)
        if protobuf_names.ENUM in (items.parameters or {}):
            number = self._enum(scope, field, items)
            return lambda repeated, each: repeated.append(number(each))
        kind, check = _scalar(items)
        field.type = getattr(_LABEL, f"TYPE_{kind.upper()}")
        self._tell_small(field, items)
        return lambda repeated, each: repeated.append(check(each))

    def _map(self, scope: _Scope, field: FieldDescriptorProto, schema: Schema) -> Put:
        keys, values = schema.key_schema, schema.value_schema
        if keys is None or values is None:
            raise DataException("A map without schemas of its keys and values has no Protobuf")
        if keys.type in (Type.ARRAY, Type.MAP) or values.type in (Type.ARRAY, Type.MAP):
            raise DataException("A map of arrays or maps has no Protobuf; one of structs has")
        entry_name = _entry_name(self._simple_name(schema))
        while entry_name in scope.structs:
            entry_name = _entry_name(self._default_name())
        field.label = _LABEL.LABEL_REPEATED
        _set_message(field, f".{scope.full_name}.{entry_name}")
        entry = Schema(Type.STRUCT, fields=[("key", keys), ("value", values)])
        message = scope.message.nested_type.add(name=entry_name)
        inner = _Scope(message, f"{scope.full_name}.{entry_name}", entry)
        put_key, put_value = (self._field(inner, each.name, each.schema) for each in entry.fields)
        scope.structs[entry_name] = entry, put_key
        name = field.name

        def put_map(message: Message, value: Any) -> None:
            if not isinstance(value, dict):
                raise _mismatch(schema, value)
            repeated = getattr(message, name)
            for key, each in value.items():
                added = repeated.add()
                for put, member, of in ((put_key, key, keys), (put_value, each, values)):
                    if member is not None:
                        put(added, member)
                    elif not of.optional:
                        raise DataException("Found null value in a map of what is not optional")

        return put_map


def _entry_name(name: str) -> str:
    """Return the name of an entry of a map: PlacesEntry for my_places, as protoc's are called."""
    if "_" in name:
        name = "".join(each[:1].upper() + each[1:] for each in name.split("_"))
    return name + protobuf_names.ENTRY


def _set_message(field: FieldDescriptorProto, full_name: str) -> None:
    field.type = _LABEL.TYPE_MESSAGE
    field.type_name = full_name


def _present(message: Message, name: str) -> Any:
    """Return a message in a field, which has been set even if it stays empty."""
    inner = getattr(message, name)
    inner.SetInParent()
    return inner


def _enum_number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise DataException(f"{text[:100]!r} is no number of an enum's value") from error


def _scalar(schema: Schema) -> tuple[str, Callable[[Any], Any]]:
    """Return the type of a field for single values, and what checks them."""
    kind = _KINDS.get(schema.type)
    if kind is None:
        raise DataException(f"{schema.type} has no Protobuf here")
    other = (schema.parameters or {}).get(protobuf_names.TYPE, "")
    if _OTHER_KINDS.get(other) is schema.type:
        kind = other
    bits = INTEGER_BITS.get(schema.type)
    if bits is None:
        return kind, _checked(schema, _CLASSES[schema.type])
    low, high = -(1 << (bits - 1)), 1 << (bits - 1)
    if kind in ("uint32", "fixed32"):
        low, high = 0, 1 << 32
    wraps = kind in ("uint64", "fixed64")

    def check(value: Any) -> Any:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value < high:
            raise _mismatch(schema, value)
        return value & 0xFFFF_FFFF_FFFF_FFFF if wraps else value

    return kind, check


def _checked(schema: Schema, class_: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, class_):
            raise _mismatch(schema, value)
        return value

    return check


def _fill_decimal(schema: Schema, message: Any, value: Any) -> None:
    message.value = decimal_to_bytes(schema, value)
    message.scale = scale_of(schema)
    assert isinstance(value, Decimal), "it has been converted"
    message.precision = len(value.as_tuple().digits)


def _fill_date(schema: Schema, message: Any, value: Any) -> None:
    date_to_days(schema, value)  # it says what is wrong
    day: date = value
    message.year, message.month, message.day = day.year, day.month, day.day


def _fill_time(schema: Schema, message: Any, value: Any) -> None:
    milliseconds = time_to_ms(schema, value) % 1000
    of_day: time = value
    message.hours, message.minutes, message.seconds = of_day.hour, of_day.minute, of_day.second
    message.nanos = milliseconds * 1_000_000


def _fill_timestamp(schema: Schema, message: Any, value: Any) -> None:
    seconds, milliseconds = divmod(timestamp_to_ms(schema, value), 1000)
    message.seconds, message.nanos = seconds, milliseconds * 1_000_000


_FILLED: Final[dict[str, Callable[[Schema, Any, Any], None]]] = {
    protobuf_names.DECIMAL: _fill_decimal,
    protobuf_names.DATE: _fill_date,
    protobuf_names.TIME: _fill_time,
    protobuf_names.TIMESTAMP: _fill_timestamp,
}


def _mismatch(schema: Schema, value: Any) -> DataException:
    return DataException(f"Invalid type for {schema.type}: {type(value).__name__}")
