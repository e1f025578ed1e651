"""Messages of Protobuf as Connect's schemas and values, as Confluent's ProtobufConverter has them.

Keys of maps are required here: Protobuf has no others. A number of an enum that the schema does not
name is the text that Java has for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, time
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto
from google.protobuf.message import Message

from consumers.connect.converters import protobuf_names
from consumers.connect.converters.protobuf_names import ProtobufOptions
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.logical_types import (
    DATE,
    TIME,
    TIMESTAMP,
    decimal_of,
    decimal_schema,
    timestamp_from_ms,
)
from consumers.connect.data.schemas import Schema, Type
from consumers.connect.data.structs import Struct
from waylog.serialization.protobuf_meta import field_parameters

Read = Callable[[Any], Any]

_SCALARS: Final = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), Type.INT32),
    **dict.fromkeys(("uint32", "fixed32", "int64", "uint64"), Type.INT64),
    **dict.fromkeys(("sint64", "fixed64", "sfixed64"), Type.INT64),
    **{"float": Type.FLOAT32, "double": Type.FLOAT64, "bool": Type.BOOLEAN},
    **{"string": Type.STRING, "bytes": Type.BYTES},
}
#: The types that Connect's have by themselves.
_PLAIN: Final = frozenset(("int32", "int64", "float", "double", "bool", "string", "bytes"))
_SMALL: Final = {"int8": Type.INT8, "int16": Type.INT16}
_UNSIGNED: Final = frozenset(("uint64", "fixed64"))
_WRAPPERS: Final = {
    f"google.protobuf.{name}Value": kind
    for name, kind in {
        "Double": "double", "Float": "float", "Int64": "int64", "UInt64": "uint64",
        "Int32": "int32", "UInt32": "uint32", "Bool": "bool", "String": "string", "Bytes": "bytes",
    }.items()
}  # fmt: skip
_NAMES: Final = {
    number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()
}
_SECOND_MS: Final = 1000
_MILLISECOND_NS: Final = 1_000_000
_NO_UTF8: Final = "A text of the message is not UTF-8"
_RECURSIVE: Final = "Connect has no schemas that contain themselves, as {} does"


class ProtobufReading(NamedTuple):
    """A schema of Connect, and what makes its values of Protobuf's."""

    schema: Schema
    read: Read


def protobuf_reading(descriptor: Descriptor, options: ProtobufOptions) -> ProtobufReading:
    """Return how a message is read; raises DataException for what Connect has no word for."""
    wrapped = _WRAPPERS.get(descriptor.full_name)
    if wrapped is not None and options.wrapper_for_raw_primitives:
        schema, read = _scalar(wrapped)
        return ProtobufReading(schema, lambda message: read(message.value))
    return _Reader(options).of_message(descriptor)


class _Field(NamedTuple):
    name: str
    schema: Schema
    read: Read  # of the message around it


class _Reader:
    def __init__(self, options: ProtobufOptions) -> None:
        self._options: Final = options
        self._open: Final[list[str]] = []
        self._known: Final[dict[str, ProtobufReading]] = {}

    def of_message(self, descriptor: Descriptor) -> ProtobufReading:
        name = str(descriptor.full_name)
        if name in self._open:
            raise DataException(_RECURSIVE.format(name))
        if name not in self._known:
            self._open.append(name)
            self._known[name] = self._struct(descriptor)
            self._open.pop()
        return self._known[name]

    def _struct(self, descriptor: Descriptor) -> ProtobufReading:
        proto = DescriptorProto()
        descriptor.CopyToProto(proto)
        fields: list[_Field] = []
        others: list[_Field] = []
        members: dict[int, list[_Field]] = {}
        for field, each in zip(descriptor.fields, proto.field, strict=True):
            if each.HasField("oneof_index") and not each.proto3_optional:
                found = self._field(field, each, in_oneof=True)
                members.setdefault(each.oneof_index, []).append(found)
            else:
                others.append(self._field(field, each, in_oneof=False))
        for index, oneof in enumerate(proto.oneof_decl):
            if index not in members:
                continue  # it stands for the label `optional`
            if self._options.flatten_unions:
                fields += members[index]
            else:
                full_name = f"{descriptor.full_name}.{oneof.name}"
                fields.append(self._union(oneof.name, index, full_name, members[index]))
        fields += others
        schema = Schema(
            Type.STRUCT,
            name=self._name_of(descriptor),
            fields=[(field.name, field.schema) for field in fields],
        )
        reads = [field.read for field in fields]
        return ProtobufReading(
            schema, lambda message: Struct.of(schema, [read(message) for read in reads])
        )

    def _name_of(self, descriptor: Descriptor | EnumDescriptor) -> str:
        return str(descriptor.full_name if self._options.full_names else descriptor.name)

    def _union(self, oneof: str, index: int, full_name: str, members: list[_Field]) -> _Field:
        own = full_name if self._options.full_names else oneof
        schema = Schema(
            Type.STRUCT,
            name=f"{protobuf_names.UNION}.{own}",
            fields=[(member.name, member.schema) for member in members],
            optional=True,
        )
        reads = [member.read for member in members]

        def read(message: Message) -> Struct | None:
            if message.WhichOneof(oneof) is None:
                return None
            return Struct.of(schema, [each(message) for each in reads])

        return _Field(f"{oneof}_{index}" if self._options.index_for_unions else oneof, schema, read)

    def _field(
        self, field: FieldDescriptor, proto: FieldDescriptorProto, *, in_oneof: bool
    ) -> _Field:
        is_repeated = proto.label == FieldDescriptorProto.LABEL_REPEATED
        if is_repeated and _is_entry(field.message_type):
            schema, read = self._map(field)
        else:
            schema, read = self._value(field, proto)
            if is_repeated:
                schema, read = self._array(schema, read)
        if self._is_optional(field, proto, in_oneof=in_oneof) or is_repeated:
            schema = schema.replace(optional=True)
        parameters = {**(schema.parameters or {}), protobuf_names.TAG: str(field.number)}
        if (
            in_oneof
            and self._options.wrapper_for_nullables
            and field.message_type is not None
            and field.message_type.full_name in _WRAPPERS
        ):
            parameters[protobuf_names.WRAPPER] = "true"
        schema = schema.replace(parameters=parameters)
        return _Field(field.name, schema, self._member(field, proto, read, in_oneof=in_oneof))

    def _member(
        self,
        field: FieldDescriptor,
        proto: FieldDescriptorProto,
        read: Read,
        *,
        in_oneof: bool,
    ) -> Read:
        """Return what reads a field of a message, None where it has none."""
        name = field.name
        if in_oneof or proto.label != FieldDescriptorProto.LABEL_REPEATED:
            in_proto2 = self._options.optional_for_proto2
            if (
                in_oneof
                or field.message_type is not None
                or self._has_keyword(field, proto, in_proto2=in_proto2)
            ):
                return lambda message: (
                    read(getattr(message, name)) if message.HasField(name) else None
                )
        return lambda message: read(getattr(message, name))

    @staticmethod
    def _has_keyword(
        field: FieldDescriptor, proto: FieldDescriptorProto, *, in_proto2: bool
    ) -> bool:
        """Tell whether a field has the label `optional`."""
        if proto.proto3_optional:
            return True
        return (
            in_proto2
            and field.has_presence
            and field.message_type is None
            and proto.label == FieldDescriptorProto.LABEL_OPTIONAL
            and not proto.HasField("oneof_index")
        )

    def _is_optional(
        self, field: FieldDescriptor, proto: FieldDescriptorProto, *, in_oneof: bool
    ) -> bool:
        if in_oneof or field.message_type is not None or field.enum_type is not None:
            return True
        if self._options.optional_for_nullables or self._options.wrapper_for_nullables:
            # It has to be so where it is read as null. Confluent's class says otherwise for fields
            # that are `optional` beside wrappers, and refuses records without them.
            return self._has_keyword(field, proto, in_proto2=True)
        return True

    def _value(self, field: FieldDescriptor, proto: FieldDescriptorProto) -> ProtobufReading:
        """Return how one value of a field is read, repeated or not."""
        if field.enum_type is not None:
            return self._enum(field.enum_type)
        if field.message_type is not None:
            return self._message(field.message_type, proto)
        kind = _NAMES[field.type]
        schema, read = _scalar(kind)
        small = _SMALL.get(field_parameters(proto).get(protobuf_names.CONNECT_TYPE, ""))
        if schema.type is Type.INT32 and small is not None:
            return ProtobufReading(Schema(small), _small(small))
        if kind not in _PLAIN:
            schema = schema.replace(parameters={protobuf_names.TYPE: kind})
        return ProtobufReading(schema, read)

    def _enum(self, enum: EnumDescriptor) -> ProtobufReading:
        # Of several names of a number the first one is read.
        names = {each.number: each.name for each in reversed(enum.values)}
        parameters = {protobuf_names.ENUM: enum.name} | {
            f"{protobuf_names.ENUM}.{each.name}": str(each.number) for each in enum.values
        }
        as_number = self._options.int_for_enums
        schema = Schema(
            Type.INT32 if as_number else Type.STRING,
            name=self._name_of(enum),
            parameters=parameters,
        )
        if as_number:
            return ProtobufReading(schema, _as_it_is)
        unknown = f"UNKNOWN_ENUM_VALUE_{enum.name}_"
        return ProtobufReading(schema, lambda number: names.get(number) or f"{unknown}{number}")

    def _message(self, descriptor: Descriptor, proto: FieldDescriptorProto) -> ProtobufReading:
        name = descriptor.full_name
        if name == protobuf_names.DECIMAL:
            return _decimal(field_parameters(proto))
        if name in _LOGICAL:
            return _LOGICAL[name]
        if name in _WRAPPERS and self._options.wrapper_for_nullables:
            schema, read = _scalar(_WRAPPERS[name])
            return ProtobufReading(schema, lambda message: read(message.value))
        return self.of_message(descriptor)

    @staticmethod
    def _array(schema: Schema, read: Read) -> ProtobufReading:
        found = Schema(Type.ARRAY, value_schema=schema.replace(optional=True))
        return ProtobufReading(found, lambda values: [read(each) for each in values])

    def _map(self, field: FieldDescriptor) -> ProtobufReading:
        entry = field.message_type
        proto = DescriptorProto()
        entry.CopyToProto(proto)
        key, value = (
            self._field(each, of_proto, in_oneof=False)
            for each, of_proto in zip(entry.fields, proto.field, strict=True)
        )
        schema = Schema(
            Type.MAP,
            name=_map_name(self._name_of(entry)),
            key_schema=key.schema.replace(optional=False),
            value_schema=value.schema,
        )
        if not entry.GetOptions().map_entry:
            return ProtobufReading(schema, lambda entries: _entries(entries, key.read, value.read))
        # Its values are no messages: keys and values are handed out as they are.
        _, read_key = self._value(entry.fields[0], proto.field[0])
        _, read_value = self._value(entry.fields[1], proto.field[1])

        def read_map(entries: Any) -> dict[Any, Any]:
            try:
                return {read_key(name): read_value(each) for name, each in entries.items()}
            except UnicodeDecodeError as error:
                raise DataException(_NO_UTF8) from error

        return ProtobufReading(schema, read_map)


def _entries(entries: Any, read_key: Read, read_value: Read) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for entry in entries:
        key = read_key(entry)
        if isinstance(key, (list, dict, Struct)):
            raise DataException("Arrays, maps and structs as keys of maps are not supported")
        found[key] = read_value(entry)
    return found


def _is_entry(message: Descriptor | None) -> bool:
    """Tell whether a repeated message is an entry of a map, as Confluent's converter decides."""
    if message is None:
        return False
    fields = message.fields
    return (
        message.name.endswith(protobuf_names.ENTRY)
        and [each.name for each in fields] == ["key", "value"]
        and not any(each.is_repeated for each in fields)
    )


def _map_name(entry: str) -> str:
    """Return the name of a map whose entry is called so: PlacesEntry is one of places."""
    around, dot, name = entry.rpartition(".")
    words = name.removesuffix(protobuf_names.ENTRY)
    under = "".join(f"_{each.lower()}" if each.isupper() else each for each in words)
    return f"{around}{dot}{under.removeprefix('_')}"


def _scalar(kind: str) -> ProtobufReading:
    read = _signed if kind in _UNSIGNED else _text if kind == "string" else _as_it_is
    return ProtobufReading(Schema(_SCALARS[kind]), read)


def _text(value: Any) -> str:
    if not isinstance(value, str):  # of proto2, whose texts may be any bytes
        raise DataException(_NO_UTF8)
    return value


def _signed(number: int) -> int:
    """Return what Java's 64 bits are for an unsigned number."""
    return number - (1 << 64) if number >= 1 << 63 else number


def _small(type_: Type) -> Read:
    limit = 1 << (7 if type_ is Type.INT8 else 15)

    def read(number: int) -> int:
        if not -limit <= number < limit:
            raise DataException(f"Number is out of range for {type_}")
        return number

    return read


def _decimal(parameters: Mapping[str, str]) -> ProtobufReading:
    text = parameters.get(protobuf_names.SCALE, "")
    schema = decimal_schema(int(text) if text.isascii() and text.isdigit() else 0)
    precision = parameters.get(protobuf_names.PRECISION, "")
    if precision.isascii() and precision.isdigit():
        more = {**(schema.parameters or {}), protobuf_names.CONNECT_PRECISION: precision}
        schema = schema.replace(parameters=more)
    return ProtobufReading(
        schema, lambda message: decimal_of(message.value or b"\0", message.scale)
    )


def _date(message: Any) -> date:
    try:
        return date(message.year, message.month, message.day)
    except ValueError as error:
        raise DataException(f"Invalid Date: {error}") from error


def _time(message: Any) -> time:
    try:
        milliseconds, _ = divmod(message.nanos, _MILLISECOND_NS)
        return time(message.hours, message.minutes, message.seconds, milliseconds * 1000)
    except ValueError as error:
        raise DataException(f"Invalid Time: {error}") from error


_LOGICAL: Final = {
    protobuf_names.DATE: ProtobufReading(DATE, _date),
    protobuf_names.TIME: ProtobufReading(TIME, _time),
    protobuf_names.TIMESTAMP: ProtobufReading(
        TIMESTAMP,
        lambda message: timestamp_from_ms(
            TIMESTAMP, message.seconds * _SECOND_MS + message.nanos // _MILLISECOND_NS
        ),
    ),
}


def _as_it_is(value: Any) -> Any:
    return value
