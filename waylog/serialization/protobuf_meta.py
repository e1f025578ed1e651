"""Options of Confluent's own in schemas of Protobuf (confluent/meta.proto).

What the text of a schema says of a field, `[(confluent.field_meta) = { ... }]`, is kept as it is.
A descriptor has it as an extension instead; here it is put into words, so that both are the same
schema, and nothing is lost where a schema is kept as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from confluent_kafka.schema_registry.confluent import meta_pb2
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from waylog.serialization.protobuf_tokens import tokens_of

FIELD_META: Final = "confluent.field_meta"
#: Its names are made when it is loaded.
_META: Final[Any] = meta_pb2
#: By the message that it extends.
_EXTENSIONS: Final[Mapping[str, Any]] = {
    each.containing_type.full_name: each
    for each in (
        *(_META.file_meta, _META.message_meta, _META.field_meta),
        *(_META.enum_meta, _META.enum_value_meta),
    )
}


def with_meta_in_words(data: bytes) -> FileDescriptorProto:
    """Return a descriptor in which Confluent's extensions are options as a text has them."""
    file = FileDescriptorProto.FromString(data)
    for options in _all_options(file):
        extension = _EXTENSIONS[options.DESCRIPTOR.full_name]
        if options.HasExtension(extension):
            said = text_format.MessageToString(options.Extensions[extension], as_one_line=True)
            # As the parser of texts joins them.
            words = " ".join(token.text for token in tokens_of(said) if token.kind != "end")
            option = options.uninterpreted_option.add(aggregate_value=words)
            option.name.add(name_part=extension.full_name, is_extension=True)
            options.ClearExtension(extension)
    return file


def _all_options(file: FileDescriptorProto) -> Iterator[Any]:
    yield file.options
    yield from _of_fields(file.extension)
    yield from _of_enums(file.enum_type)
    messages: list[DescriptorProto] = list(file.message_type)
    while messages:
        message = messages.pop()
        yield message.options
        yield from _of_fields(message.field)
        yield from _of_fields(message.extension)
        yield from _of_enums(message.enum_type)
        messages += message.nested_type


def _of_fields(fields: Iterable[FieldDescriptorProto]) -> Iterator[Any]:
    for field in fields:
        yield field.options


def _of_enums(enums: Iterable[EnumDescriptorProto]) -> Iterator[Any]:
    for enum in enums:
        yield enum.options
        for value in enum.value:
            yield value.options


def field_parameters(field: FieldDescriptorProto) -> Mapping[str, str]:
    """Return the parameters that the option `confluent.field_meta` of a field has."""
    meta = _META.Meta()
    for option in field.options.uninterpreted_option:
        first, *others = option.name
        if not first.is_extension or first.name_part.strip(".") != FIELD_META:
            continue
        text = option.aggregate_value
        for each in reversed(others):
            text = f"{each.name_part} {{ {text} }}"
        try:
            text_format.Merge(text, meta)
        except text_format.ParseError:
            continue  # whoever has written it may mean anything
    return dict(meta.params)
