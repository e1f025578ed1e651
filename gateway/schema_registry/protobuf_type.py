"""Schemas of Protobuf: texts of .proto files, or base64 of their descriptors.

What a message of the new file must understand is said by fields' numbers, never by their names:
https://docs.confluent.io/platform/current/schema-registry/fundamentals/schema-evolution.html
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from gateway.schema_registry.errors import invalid_schema
from gateway.schema_registry.parsed import ParsedSchema, Referenced, difference
from gateway.schema_registry.records import Reference
from waylog.serialization.protobuf_printer import proto_text
from waylog.serialization.protobuf_schema import ProtobufSchema
from waylog.serialization.schema_types import PROTOBUF
from waylog.serialization.serializer import SerializationError

_F: Final = FieldDescriptorProto
#: Types whose values are written alike, so that a reader may have another one of them.
_ALIKE: Final = (
    frozenset((_F.TYPE_INT32, _F.TYPE_UINT32, _F.TYPE_INT64, _F.TYPE_UINT64, _F.TYPE_BOOL,
               _F.TYPE_ENUM)),
    frozenset((_F.TYPE_SINT32, _F.TYPE_SINT64)),
    frozenset((_F.TYPE_STRING, _F.TYPE_BYTES)),
    frozenset((_F.TYPE_FIXED32, _F.TYPE_SFIXED32)),
    frozenset((_F.TYPE_FIXED64, _F.TYPE_SFIXED64)),
)  # fmt: skip
#: Of several values of a field the last one is taken; other types are packed if they are repeated.
_LAST_COUNTS: Final = frozenset(
    (_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE, _F.TYPE_GROUP),
)
_MESSAGES: Final = frozenset((_F.TYPE_MESSAGE, _F.TYPE_GROUP))


class _File(NamedTuple):
    """A file with the full names of its types, and all types by these."""

    package: str
    messages: Sequence[DescriptorProto]
    by_name: Mapping[str, DescriptorProto]


def parse_protobuf(
    text: str, references: Sequence[Reference], referenced: Sequence[Referenced], *, normalize: bool
) -> ParsedSchema:
    """Return a schema; `normalize` orders it and writes the full names of types.

    Raises RegistryError.
    """
    try:
        schema = ProtobufSchema(text, {each.name: each.text for each in referenced})
        resolved = schema.resolved
        kept = proto_text(_normal(resolved)) if normalize else schema.text
    except SerializationError as error:
        raise invalid_schema(str(error)) from error
    by_name = dict(_types(resolved.package, resolved.message_type))
    for each in resolved.dependency:
        imported = FileDescriptorProto()
        schema.pool.FindFileByName(each).CopyToProto(imported)
        by_name.update(_types(imported.package, imported.message_type))
    file = _File(resolved.package, list(resolved.message_type), by_name)
    return ParsedSchema(PROTOBUF, kept, tuple(references), file, _incompatibilities)


def serialized(text: str, referenced: Sequence[Referenced]) -> str:
    """Return base64 of the descriptor of a file; raises RegistryError."""
    try:
        file = ProtobufSchema(text, {each.name: each.text for each in referenced}).resolved
    except SerializationError as error:
        raise invalid_schema(str(error)) from error
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()


def _types(
    package: str, messages: Sequence[DescriptorProto]
) -> Iterator[tuple[str, DescriptorProto]]:
    for each in messages:
        name = f"{package}.{each.name}" if package else each.name
        yield name, each
        yield from _types(name, each.nested_type)


def _normal(file: FileDescriptorProto) -> FileDescriptorProto:
    """Return a file in which nothing but what it means matters."""
    normal = FileDescriptorProto()
    normal.CopyFrom(file)
    del normal.dependency[:], normal.message_type[:], normal.enum_type[:]
    public = {file.dependency[index] for index in file.public_dependency}
    del normal.public_dependency[:], normal.weak_dependency[:]
    normal.dependency.extend(sorted(file.dependency))
    normal.public_dependency.extend(
        index for index, name in enumerate(normal.dependency) if name in public
    )
    # The order of messages is not free: records tell their message by its place.
    normal.message_type.extend(_normal_message(each) for each in file.message_type)
    normal.enum_type.extend(_normal_enum(each) for each in sorted(file.enum_type, key=_name))
    return normal


def _normal_message(message: DescriptorProto) -> DescriptorProto:
    normal = DescriptorProto()
    normal.CopyFrom(message)
    del normal.field[:], normal.nested_type[:], normal.enum_type[:]
    normal.field.extend(sorted(message.field, key=lambda each: each.number))
    normal.nested_type.extend(_normal_message(each) for each in message.nested_type)
    normal.enum_type.extend(_normal_enum(each) for each in sorted(message.enum_type, key=_name))
    return normal


def _normal_enum(enum: EnumDescriptorProto) -> EnumDescriptorProto:
    normal = EnumDescriptorProto()
    normal.CopyFrom(enum)
    del normal.value[:]
    # The first value is the default one.
    normal.value.extend(
        [*enum.value[:1], *sorted(enum.value[1:], key=lambda each: (each.number, each.name))]
    )
    return normal


def _name(enum: EnumDescriptorProto) -> str:
    return str(enum.name)


def _incompatibilities(reader: _File, writer: _File) -> list[str]:
    return list(dict.fromkeys(_Comparison(reader, writer).differences()))


class _Comparison:
    """Compares the messages of two files, each pair once."""

    def __init__(self, reader: _File, writer: _File) -> None:
        self._reader: Final = reader
        self._writer: Final = writer
        self._compared: Final[set[tuple[str, str]]] = set()

    def differences(self) -> Iterator[str]:
        yield from self._all(
            self._reader.messages, self._writer.messages, self._reader.package, self._writer.package
        )

    def _all(
        self,
        reader: Sequence[DescriptorProto],
        writer: Sequence[DescriptorProto],
        reader_scope: str,
        writer_scope: str,
    ) -> Iterator[str]:
        own = {each.name: each for each in reader}
        for each in writer:
            if each.options.map_entry:
                continue
            path = _joined(writer_scope, each.name)
            if each.name not in own:
                yield difference("MESSAGE_REMOVED", f"the reader lacks message {path}")
            else:
                yield from self._message(
                    own[each.name], each, _joined(reader_scope, each.name), path
                )

    def _message(
        self, reader: DescriptorProto, writer: DescriptorProto, reader_name: str, path: str
    ) -> Iterator[str]:
        if (reader_name, path) in self._compared:
            return
        self._compared.add((reader_name, path))
        yield from self._all(reader.nested_type, writer.nested_type, reader_name, path)
        own = {each.number: each for each in reader.field}
        others = {each.number: each for each in writer.field}
        oneofs = {each.name for each in reader.oneof_decl}
        for number, field in others.items():
            where = f"{path}.{field.name} ({number})"
            if number in own:
                yield from self._field(own[number], field, where)
            elif field.label == _F.LABEL_REQUIRED:
                yield difference("REQUIRED_FIELD_REMOVED", f"the reader lacks {where}")
            elif _real_oneof(writer, field) in oneofs:
                yield difference("ONEOF_FIELD_REMOVED", f"the reader's oneof lacks {where}")
        for number, field in own.items():
            if number not in others and field.label == _F.LABEL_REQUIRED:
                yield difference(
                    "REQUIRED_FIELD_ADDED", f"the writer lacks {path}.{field.name} ({number})"
                )
        yield from self._oneofs(reader, writer, others, path)

    @staticmethod
    def _oneofs(
        reader: DescriptorProto,
        writer: DescriptorProto,
        written: Mapping[int, FieldDescriptorProto],
        path: str,
    ) -> Iterator[str]:
        """Of the fields of a oneof a reader keeps the last one only."""
        former = {name for each in writer.field if (name := _real_oneof(writer, each)) is not None}
        moved_to: dict[str, list[FieldDescriptorProto]] = {}
        for each in reader.field:
            name = _real_oneof(reader, each)
            was = written.get(each.number)
            if name is not None and was is not None and _real_oneof(writer, was) is None:
                moved_to.setdefault(name, []).append(each)
        for name, moved in moved_to.items():
            if name in former:
                yield difference(
                    "FIELD_MOVED_TO_EXISTING_ONEOF",
                    f"{path}.{moved[0].name} is in no oneof of the writer",
                )
            elif len(moved) > 1:
                yield difference(
                    "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
                    f"{len(moved)} fields of {path} are in no oneof of the writer",
                )

    def _field(
        self, reader: FieldDescriptorProto, writer: FieldDescriptorProto, where: str
    ) -> Iterator[str]:
        if reader.type != writer.type and not any(
            reader.type in alike and writer.type in alike for alike in _ALIKE
        ):
            is_scalar = reader.type not in _MESSAGES and writer.type not in _MESSAGES
            kind = "FIELD_SCALAR_KIND_CHANGED" if is_scalar else "FIELD_KIND_CHANGED"
            yield difference(kind, f"the types of {where} differ")
            return
        is_repeated = reader.label == _F.LABEL_REPEATED
        if is_repeated != (writer.label == _F.LABEL_REPEATED) and reader.type not in _LAST_COUNTS:
            yield difference("FIELD_NUMERIC_LABEL_CHANGED", f"{where} is repeated in one alone")
        if (reader.label == _F.LABEL_REQUIRED) and writer.label != _F.LABEL_REQUIRED:
            yield difference("REQUIRED_FIELD_ADDED", f"{where} is required by the reader")
        if reader.type in _MESSAGES:
            yield from self._types_of(reader, writer, where)

    def _types_of(
        self, reader: FieldDescriptorProto, writer: FieldDescriptorProto, where: str
    ) -> Iterator[str]:
        names = reader.type_name.lstrip("."), writer.type_name.lstrip(".")
        own, other = self._reader.by_name.get(names[0]), self._writer.by_name.get(names[1])
        is_map = [each is not None and each.options.map_entry for each in (own, other)]
        if is_map[0] != is_map[1]:
            yield difference("FIELD_KIND_CHANGED", f"{where} is a map in one alone")
        elif not is_map[0] and (
            _within(names[0], self._reader.package) != _within(names[1], self._writer.package)
        ):
            yield difference("FIELD_NAMED_TYPE_CHANGED", f"the messages of {where} differ")
        elif own is not None and other is not None:
            yield from self._message(own, other, *names)


def _real_oneof(message: DescriptorProto, field: FieldDescriptorProto) -> str | None:
    if not field.HasField("oneof_index") or field.proto3_optional:
        return None
    return str(message.oneof_decl[field.oneof_index].name)


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _within(name: str, package: str) -> str:
    return name.removeprefix(f"{package}.") if package else name
