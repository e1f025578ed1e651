"""Writes the descriptor of a .proto file as text: the form in which the registry keeps it.

Equal descriptors have equal texts. Comments are not kept. Names of types are written as the
descriptor has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
    UninterpretedOption,
)

_LABELS: Final = {
    FieldDescriptorProto.LABEL_OPTIONAL: "optional",
    FieldDescriptorProto.LABEL_REQUIRED: "required",
    FieldDescriptorProto.LABEL_REPEATED: "repeated",
}
_FIELD_MAX: Final = (1 << 29) - 1
_ENUM_MAX: Final = (1 << 31) - 1


def proto_text(file: FileDescriptorProto) -> str:
    """Return the text of a file, ending with a line feed."""
    return "\n".join(_Printer(file.syntax == "proto3").file(file)) + "\n"


class _Printer:
    def __init__(self, is_proto3: bool) -> None:
        self._is_proto3: Final = is_proto3

    def file(self, file: FileDescriptorProto) -> Iterator[str]:
        yield f'syntax = "{"proto3" if self._is_proto3 else "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        if file.dependency:
            yield ""
        for index, name in enumerate(file.dependency):
            kind = (
                "public "
                if index in file.public_dependency
                else "weak "
                if index in file.weak_dependency
                else ""
            )
            yield f"import {kind}{_quoted(name.encode())};"
        options = [f"option {each};" for each in _options(file.options)]
        if options:
            yield ""
            yield from options
        for message in file.message_type:
            yield ""
            yield from self._message(message, "")
        for enum in file.enum_type:
            yield ""
            yield from _enum(enum, "")
        yield from self._extensions(file.extension, file.message_type, "")
        for service in file.service:
            yield ""
            yield from _service(service)

    def _message(
        self, message: DescriptorProto, indent: str, head: str | None = None
    ) -> Iterator[str]:
        inner = indent + "  "
        yield f"{indent}{head or f'message {message.name}'} {{"
        for option in _options(message.options):
            yield f"{inner}option {option};"
        yield from _reserved(message.reserved_range, message.reserved_name, _FIELD_MAX, inner, 1)
        for each in message.extension_range:
            yield f"{inner}extensions {_range(each.start, each.end - 1, _FIELD_MAX)};"
        nested = {each.name: each for each in message.nested_type}
        hidden = {
            each.type_name.rpartition(".")[2]
            for each in [*message.field, *message.extension]
            if each.type == FieldDescriptorProto.TYPE_GROUP
        } | {each.name for each in message.nested_type if each.options.map_entry}
        written: set[int] = set()
        for field in message.field:
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield from self._field(field, nested, inner)
            elif field.oneof_index not in written:
                written.add(field.oneof_index)
                oneof = message.oneof_decl[field.oneof_index]
                yield f"{inner}oneof {oneof.name} {{"
                for option in _options(oneof.options):
                    yield f"{inner}  option {option};"
                for each in message.field:
                    if each.HasField("oneof_index") and each.oneof_index == field.oneof_index:
                        yield from self._field(each, nested, inner + "  ", in_oneof=True)
                yield f"{inner}}}"
        yield from self._extensions(message.extension, message.nested_type, inner)
        for each in message.nested_type:
            if each.name not in hidden:
                yield from self._message(each, inner)
        for enum in message.enum_type:
            yield from _enum(enum, inner)
        yield f"{indent}}}"

    def _field(
        self,
        field: FieldDescriptorProto,
        nested: dict[str, DescriptorProto],
        indent: str,
        *,
        in_oneof: bool = False,
    ) -> Iterator[str]:
        entry = nested.get(field.type_name.rpartition(".")[2])
        if entry is not None and entry.options.map_entry and field.type != field.TYPE_GROUP:
            kind = f"map<{_type(entry.field[0])}, {_type(entry.field[1])}>"
            label = ""
        else:
            kind = _type(field)
            label = "" if in_oneof else self._label(field)
        options = [f"default = {_default(field)}"] if field.HasField("default_value") else []
        if field.HasField("json_name") and field.json_name != _json_name(field.name):
            options.append(f"json_name = {_quoted(field.json_name.encode())}")
        options += _options(field.options)
        tail = f" = {field.number}" + (f" [{', '.join(options)}]" if options else "")
        if field.type == FieldDescriptorProto.TYPE_GROUP:
            name = field.type_name.rpartition(".")[2]
            yield from self._message(nested[name], indent, f"{label}group {name}{tail}")
        else:
            yield f"{indent}{label}{kind} {field.name}{tail};"

    def _label(self, field: FieldDescriptorProto) -> str:
        if self._is_proto3 and field.label == FieldDescriptorProto.LABEL_OPTIONAL:
            return "optional " if field.proto3_optional else ""
        return f"{_LABELS[field.label]} "

    def _extensions(
        self, fields: Sequence[FieldDescriptorProto], nested: Iterable[DescriptorProto], indent: str
    ) -> Iterator[str]:
        names = {each.name: each for each in nested}
        for extendee in dict.fromkeys(each.extendee for each in fields):
            yield f"{indent}extend {extendee} {{"
            for each in fields:
                if each.extendee == extendee:
                    yield from self._field(each, names, indent + "  ")
            yield f"{indent}}}"


def _type(field: FieldDescriptorProto) -> str:
    if field.type_name:
        return str(field.type_name)
    return str(FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower())


def _default(field: FieldDescriptorProto) -> str:
    if field.type == FieldDescriptorProto.TYPE_STRING:
        return _quoted(field.default_value.encode())
    if field.type == FieldDescriptorProto.TYPE_BYTES:
        return f'"{field.default_value}"'  # it is escaped in the descriptor
    return str(field.default_value)


def _json_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in others)


def _enum(enum: EnumDescriptorProto, indent: str) -> Iterator[str]:
    yield f"{indent}enum {enum.name} {{"
    for option in _options(enum.options):
        yield f"{indent}  option {option};"
    yield from _reserved(enum.reserved_range, enum.reserved_name, _ENUM_MAX, indent + "  ", 0)
    for value in enum.value:
        options = list(_options(value.options))
        tail = f" [{', '.join(options)}]" if options else ""
        yield f"{indent}  {value.name} = {value.number}{tail};"
    yield f"{indent}}}"


def _service(service: ServiceDescriptorProto) -> Iterator[str]:
    yield f"service {service.name} {{"
    for option in _options(service.options):
        yield f"  option {option};"
    for method in service.method:
        asked = ("stream " if method.client_streaming else "") + method.input_type
        answered = ("stream " if method.server_streaming else "") + method.output_type
        options = list(_options(method.options))
        head = f"  rpc {method.name} ({asked}) returns ({answered})"
        if not options:
            yield f"{head};"
            continue
        yield f"{head} {{"
        for option in options:
            yield f"    option {option};"
        yield "  }"
    yield "}"


def _reserved(
    ranges: Iterable[Any], names: Sequence[str], most: int, indent: str, beyond: int
) -> Iterator[str]:
    """Write what is reserved; `beyond`: how far the end of a range is behind its last number."""
    numbers = [_range(each.start, each.end - beyond, most) for each in ranges]
    if numbers:
        yield f"{indent}reserved {', '.join(numbers)};"
    if names:
        yield f"{indent}reserved {', '.join(_quoted(each.encode()) for each in names)};"


def _range(first: int, last: int, most: int) -> str:
    if first == last:
        return str(first)
    return f"{first} to {'max' if last >= most else last}"


def _options(options: Any) -> Iterator[str]:
    for field, value in options.ListFields():
        if field.name == "uninterpreted_option":
            for each in value:
                yield f"{_option_name(each)} = {_option_value(each)}"
        elif field.name == "map_entry" or field.is_extension or field.message_type is not None:
            continue
        else:
            for each in value if field.is_repeated else [value]:
                yield f"{field.name} = {_standard(field, each)}"


def _standard(field: Any, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value.encode()) if isinstance(value, str) else str(value)


def _option_name(option: UninterpretedOption) -> str:
    return ".".join(
        f"({each.name_part})" if each.is_extension else each.name_part for each in option.name
    )


def _option_value(option: UninterpretedOption) -> str:
    if option.HasField("string_value"):
        return _quoted(option.string_value)
    if option.HasField("aggregate_value"):
        return f"{{ {option.aggregate_value} }}"
    for name in (
        *("identifier_value", "positive_int_value", "negative_int_value"),
        "double_value",
    ):
        if option.HasField(name):
            return str(getattr(option, name))
    return '""'


def _quoted(text: bytes) -> str:
    parts = []
    for character in text.decode("utf-8", "surrogateescape"):
        if character in '"\\':
            parts.append(f"\\{character}")
        elif character.isprintable():
            parts.append(character)
        else:
            parts += [f"\\{each:03o}" for each in character.encode("utf-8", "surrogateescape")]
    return f'"{"".join(parts)}"'
