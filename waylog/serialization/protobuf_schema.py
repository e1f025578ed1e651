"""Schemas of Protobuf, and values to Protobuf's binary encoding and back.

A value is a dict as Protobuf's JSON mapping has it, with the fields' own names: 64-bit integers are
texts, bytes are base64, timestamps are texts in RFC 3339.

What a registry's record has behind its id begins with the place of the value's message in the file:
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from __future__ import annotations

import base64
import binascii
import importlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError as UnreadableBytes
from google.protobuf.message import EncodeError, Message

from waylog.malformed import MALFORMED
from waylog.serialization.avro_limits import check_size
from waylog.serialization.json_numbers import with_texts
from waylog.serialization.protobuf_parser import NESTING_MAX, parse_proto
from waylog.serialization.protobuf_printer import proto_text
from waylog.serialization.protobuf_values import native_value
from waylog.serialization.schema_types import PROTOBUF
from waylog.serialization.serializer import NamedValue, SerializationError

#: Messages within messages of a value; Protobuf's own limit.
_VALUE_NESTING_MAX: Final = 100
_INDEXES_MAX: Final = NESTING_MAX
#: Has Confluent's options.
_META: Final = "confluent/meta.proto"
#: Where modules of files are that any schema may import, by the beginning of their names.
_KNOWN: Final = {
    "google/protobuf/": "google.protobuf.",
    "google/type/": "google.type.",
    "confluent/type/": "confluent_kafka.schema_registry.confluent.type.",
    "confluent/": "confluent_kafka.schema_registry.confluent.",
}


class ProtobufSchema:
    """A .proto file and what it imports. It never changes."""

    def __init__(
        self,
        text: str,
        referenced: Mapping[str, str] | None = None,
        *,
        message: str | None = None,
    ) -> None:
        """`text` is a .proto file, or base64 of its descriptor; `referenced` those it imports.

        `message` is the full name of the message that `write` writes; None: the file's first one.
        Raises SerializationError for what is no schema.
        """
        #: The descriptor as it was written: names of types are not resolved.
        self.file: Final = _file_of(text, "schema.proto")
        #: The text in the registry's form.
        self.text: Final = proto_text(self.file)
        self._pool: Final = descriptor_pool.DescriptorPool()
        known: dict[str, str] = dict(referenced or {})
        self._descriptor: Final = _built(self._pool, self.file, known, ())
        #: In the order of the file.
        self._messages: Final[list[Descriptor]] = [
            self._descriptor.message_types_by_name[each.name] for each in self.file.message_type
        ]
        self._own: Final = None if message is None else _message_called(self._messages, message)

    @property
    def name(self) -> str:
        """The full name of the message that is written."""
        return str(self._written.full_name)

    @cached_property
    def place(self) -> bytes:
        """The place in the file of the message that is written, which its bytes begin with."""
        return _encoded_indexes(self._place_of(self._written))

    @property
    def resolved(self) -> FileDescriptorProto:
        """The descriptor with the full names of all types."""
        file = FileDescriptorProto()
        self._descriptor.CopyToProto(file)
        return file

    @property
    def pool(self) -> descriptor_pool.DescriptorPool:
        """The file and all that it imports."""
        return self._pool

    @property
    def _written(self) -> Descriptor:
        if self._own is not None:
            return self._own
        if not self._messages:
            raise SerializationError("the schema has no message")
        return self._messages[0]

    def read(self, data: bytes, reader: ProtobufSchema | None = None) -> Any:
        """Return the value of bytes that begin with the place of their message.

        With `reader` it is seen as the message that this one writes. Raises SerializationError.
        """
        return self._json_of(self.read_message(data, reader), reader)

    def read_named(self, data: bytes, reader: ProtobufSchema | None = None) -> NamedValue:
        """Return the same with numbers and bytes as such, and with the name of its message.

        Raises SerializationError.
        """
        message = self.read_message(data, reader)
        value = native_value(self._json_of(message, reader), message.DESCRIPTOR)
        return NamedValue(value, PROTOBUF, message.DESCRIPTOR.full_name)

    def _json_of(self, message: Message, reader: ProtobufSchema | None) -> Any:
        schema = self if reader is None else reader
        try:
            return json_format.MessageToDict(
                message,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                descriptor_pool=schema._pool,
            )
        except (json_format.Error, *MALFORMED, TypeError) as error:
            raise _unreadable(message.DESCRIPTOR, error) from error

    def read_message(self, data: bytes, reader: ProtobufSchema | None = None) -> Message:
        """Return what `read` returns as a message; raises SerializationError."""
        indexes, length = _indexes(data)
        written = _message_at(self._messages, indexes)
        descriptor = written if reader is None else reader._written
        message = message_factory.GetMessageClass(descriptor)()
        try:
            message.ParseFromString(data[length:])
        except (UnreadableBytes, *MALFORMED) as error:
            raise _unreadable(descriptor, error) from error
        return message

    def new_message(self) -> Message:
        """Return an empty one of the messages that are written, which `write` takes as a value."""
        return message_factory.GetMessageClass(self._written)()

    def write(self, value: Any) -> bytes:
        """Return the bytes of a value, or of a message, behind the place of its message.

        Numbers and bytes may be such, or texts as in Protobuf's JSON. Equal values give equal
        bytes, so that a key with a map always goes to the same partition. Raises
        SerializationError if it is not of the message.
        """
        descriptor = self._written
        try:
            message = value if isinstance(value, Message) else self._message_of(value)
            encoded: bytes = message.SerializeToString(deterministic=True)
        except (EncodeError, json_format.Error, *MALFORMED, TypeError, AttributeError) as error:
            raise SerializationError(
                f"the value is no {descriptor.full_name}: {str(error)[:200]}"
            ) from error
        return self.place + encoded

    def _message_of(self, value: Any) -> Message:
        if not isinstance(value, dict):
            raise TypeError("an object is expected")
        plain = msgspec.to_builtins(value)  # bytes as base64, as which they would be taken anyway
        try:
            return self._parsed(plain)
        except json_format.ParseError:
            return self._parsed(with_texts(plain))

    def _parsed(self, value: Any) -> Message:
        message = self.new_message()
        json_format.ParseDict(
            value,
            message,
            descriptor_pool=self._pool,
            max_recursion_depth=_VALUE_NESTING_MAX,
        )
        return message

    def _place_of(self, descriptor: Descriptor) -> list[int]:
        above = descriptor.containing_type
        if above is None:
            return [self._messages.index(descriptor)]
        return [*self._place_of(above), list(above.nested_types).index(descriptor)]


def _unreadable(descriptor: Any, error: Exception) -> SerializationError:
    return SerializationError(f"the bytes are no {descriptor.full_name}: {str(error)[:200]}")


def _file_of(text: str, name: str) -> FileDescriptorProto:
    check_size(text)
    file = _decoded(text)
    if file is None:
        return parse_proto(text, name)
    file.name = name
    file.ClearField("source_code_info")
    return file


def _decoded(text: str) -> FileDescriptorProto | None:
    """Return the descriptor of which a text is base64; Confluent's Python client registers so."""
    try:
        data = base64.b64decode(text, validate=True)
        file = FileDescriptorProto.FromString(data)
    except (binascii.Error, ValueError, UnreadableBytes):
        return None
    _check_nesting(file)
    if _META not in file.dependency:
        return file
    # Its module brings a client of registries, which registries themselves do not need.
    from waylog.serialization.protobuf_meta import with_meta_in_words

    return with_meta_in_words(data)


def _check_nesting(file: FileDescriptorProto) -> None:
    level, below = list(file.message_type), 0
    while level:
        below += 1
        if below > NESTING_MAX:
            raise SerializationError(f"messages are nested more than {NESTING_MAX} levels deep")
        level = [each for message in level for each in message.nested_type]


def _built(
    pool: descriptor_pool.DescriptorPool,
    file: FileDescriptorProto,
    referenced: Mapping[str, str],
    above: tuple[str, ...],
) -> FileDescriptor:
    """Add a file and what it imports to a pool; raises SerializationError."""
    if len(above) > NESTING_MAX:
        raise SerializationError(f"imports are nested more than {NESTING_MAX} levels deep")
    for name in file.dependency:
        if name in above:
            raise SerializationError(f"{name[:100]} imports itself")
        if not _has(pool, name):
            text = referenced.get(name)
            imported = known_file(name) if text is None else _file_of(text, name)
            if imported is None:
                raise SerializationError(f"no reference has the name {name[:100]!r}, an import")
            _built(pool, imported, referenced, (*above, name))
    try:
        pool.AddSerializedFile(file.SerializeToString())
        found: FileDescriptor = pool.FindFileByName(file.name)
    except (TypeError, KeyError, *MALFORMED) as error:
        reason = str(error).rpartition("descriptor pool: ")[2].strip("'\"")
        raise SerializationError(f"no schema of Protobuf: {reason[:300]}") from error
    return found


def _has(pool: descriptor_pool.DescriptorPool, name: str) -> bool:
    try:
        pool.FindFileByName(name)
    except KeyError:
        return False
    return True


def known_file(name: str) -> FileDescriptorProto | None:
    """Return a file that any schema may import, None if it is none of these."""
    for prefix, package in _KNOWN.items():
        stem = name.removeprefix(prefix).removesuffix(".proto")
        if name.startswith(prefix) and name.endswith(".proto") and stem.isidentifier():
            try:
                module = importlib.import_module(f"{package}{stem}_pb2")
            except ImportError:
                continue
            file = FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(file)
            file.name = name
            return file
    return None


def _message_called(messages: Sequence[Descriptor], name: str) -> Descriptor:
    for each in _all(messages):
        if each.full_name == name:
            return each
    raise SerializationError(f"the schema has no message {name}")


def _all(messages: Sequence[Descriptor]) -> Iterator[Descriptor]:
    for each in messages:
        yield each
        yield from _all(each.nested_types)


def _message_at(messages: Sequence[Descriptor], indexes: Sequence[int]) -> Descriptor:
    found: Descriptor | None = None
    for index in indexes:
        if not 0 <= index < len(messages):
            raise SerializationError(f"the schema has no message at {list(indexes)}")
        found = messages[index]
        messages = list(found.nested_types)
    if found is None:
        raise SerializationError("the value does not tell its message")
    return found


def _indexes(data: bytes) -> tuple[list[int], int]:
    """Return the place of a message, and the number of bytes that tell it."""
    count, position = _number(data, 0)
    if count == 0:
        return [0], position  # the first message, in short
    if not 0 < count <= _INDEXES_MAX:
        raise SerializationError(f"{count} is no number of levels of a message")
    found = []
    for _ in range(count):
        index, position = _number(data, position)
        found.append(index)
    return found, position


def _number(data: bytes, position: int) -> tuple[int, int]:
    """Return a zigzag number of at most five bytes, and the place behind it."""
    number = 0
    for shift in range(0, 35, 7):
        if position >= len(data):
            raise SerializationError("the value ends within the place of its message")
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
    raise SerializationError("the place of the message is no number")


def _encoded_indexes(indexes: Sequence[int]) -> bytes:
    if list(indexes) == [0]:
        return b"\0"
    encoded = bytearray()
    for number in (len(indexes), *indexes):
        rest = number << 1
        while rest > 0x7F:
            encoded.append(rest & 0x7F | 0x80)
            rest >>= 7
        encoded.append(rest)
    return bytes(encoded)
