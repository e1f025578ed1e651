"""Converts keys and values: text, JSON, hexadecimal, base64, serializers; kcat's format strings."""

from __future__ import annotations

import argparse
import base64
import binascii
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waylog.cli import CommandError
from waylog.config import http_url, load_properties
from waylog.console.avro_files import avro_decoder, avro_encoder, schema_text
from waylog.kafka.record_headers import headers_of
from waylog.malformed import MALFORMED
from waylog.serialization.by_name import AVRO, URL, make_serde
from waylog.serialization.serializer import (
    RecordPart,
    SchemaRegistryUnavailable,
    SerializationError,
    Serialized,
)

if TYPE_CHECKING:
    from confluent_kafka import Message

#: Formats of texts. The others are serializers (waylog/serialization/by_name.py).
_TEXTS: Final = ("text", "json", "hex", "base64")

#: From the bytes of a key or value, and the record, to a value that JSON can represent; raises
#: SerializationError for bytes of another format.
Decode = Callable[[bytes, "Message"], Any]
#: From a user's text to the bytes of a key or value, with the headers that go with them; raises
#: CommandError.
Encode = Callable[[bytes], Serialized]


def add_formats(parser: argparse.ArgumentParser) -> None:
    """Add the options for the formats of keys and values."""
    group = parser.add_argument_group("formats")
    for what in ("key", "value"):
        group.add_argument(
            f"--{what}-format",
            default="text",
            metavar="FORMAT",
            help=f"of the {what}: {', '.join(_TEXTS)}, avro, protobuf, json-schema, auto (what "
            "each record names, else JSON), short, integer, long, float, double, or one that "
            "another package has (default text)",
        )
        group.add_argument(
            f"--{what}-schema",
            type=Path,
            metavar="FILE",
            help=f"schema (.avsc, .proto) with which the {what} is written, or is shown",
        )
    group.add_argument(
        "--schema-registry", metavar="URL", help="has the schemas; records name them"
    )
    group.add_argument(
        "--schema-registry-config",
        type=Path,
        metavar="FILE",
        help="properties for it, in the names of Confluent's clients: basic.auth.user.info, "
        "ssl.ca.location, auto.register.schemas, value.subject.name.strategy, ...",
    )
    group.add_argument(
        "--schema-id",
        type=int,
        metavar="N",
        help="Avro without a registry, but with its header: written with this number, skipped on "
        "reading",
    )


def decoder(arguments: argparse.Namespace, what: str) -> Decode:
    """Return how a part of records is read; raises CommandError and ConfigError."""
    kind = getattr(arguments, f"{what}_format")
    texts: dict[str, Callable[[bytes], Any]] = {
        "text": _text, "json": _json, "hex": bytes.hex, "base64": _base64,
    }  # fmt: skip
    if kind in texts:
        decode = texts[kind]
        return lambda data, _message: decode(data)
    if kind == AVRO and arguments.schema_registry is None:
        read = avro_decoder(arguments, what)
        return lambda data, _message: read(data)
    serde = make_serde(kind, RecordPart(what), _properties(arguments, what))
    topic: str = arguments.topic

    def deserialize(data: bytes, message: Message) -> Any:
        try:
            return serde.deserialize(topic, data, headers_of(message))
        except SchemaRegistryUnavailable as error:
            raise CommandError(str(error)) from None

    return deserialize


def encoder(arguments: argparse.Namespace, what: str) -> Encode:
    """Return how a part of records is written; raises CommandError and ConfigError."""
    kind = getattr(arguments, f"{what}_format")
    texts: dict[str, Callable[[bytes], bytes]] = {
        "json": _check_json, "hex": _unhex, "base64": _unbase64,
    }  # fmt: skip
    if kind == "text":
        return as_text
    if kind in texts:
        encode = texts[kind]
        return lambda text: Serialized(encode(text))
    write = _writer(arguments, what, kind)

    def serialize(text: bytes) -> Serialized:
        try:
            return write(_json(text))
        except (SerializationError, SchemaRegistryUnavailable) as error:
            raise CommandError(f"{_text(text[:60])!r}: {error}") from None

    return serialize


def as_text(text: bytes) -> Serialized:
    """Return a user's text as it is: the encoder of format text."""
    return Serialized(text)


def _writer(arguments: argparse.Namespace, what: str, kind: str) -> Callable[[Any], Serialized]:
    if kind == AVRO and arguments.schema_registry is None:
        return avro_encoder(arguments, what)
    serde = make_serde(kind, RecordPart(what), _properties(arguments, what))
    topic: str = arguments.topic
    return lambda value: serde.serialize(topic, value)


def _properties(arguments: argparse.Namespace, what: str) -> dict[str, str]:
    """Return the properties of a serializer; raises ConfigError and CommandError."""
    config = arguments.schema_registry_config
    properties = load_properties(config) if config is not None else {}
    if arguments.schema_registry is not None:
        properties[URL] = http_url(arguments.schema_registry)
    text = schema_text(arguments, what)
    return properties if text is None else properties | {"schema": text}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except MALFORMED:
        raise SerializationError(f"a record is not JSON: {_text(data[:60])}") from None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _check_json(text: bytes) -> bytes:
    try:
        _json(text)
    except SerializationError as error:
        raise CommandError(str(error)) from None
    return text


def _unhex(text: bytes) -> bytes:
    try:
        return bytes.fromhex(text.decode())
    except ValueError:
        raise CommandError(f"a record is not hexadecimal: {_text(text[:60])}") from None


def _unbase64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise CommandError(f"{text[:60]!r} is not base64") from None


# ---------------------------------------------------------------------------------- format strings

_TOKEN: Final = re.compile(r"%(.)|\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


def line_format(text: str) -> Callable[[Message], bytes]:
    r"""Return a function that writes a record as a format string says; raises CommandError.

    %t topic, %p partition, %o offset, %T timestamp (ms), %k key, %s value, %h headers (a=b,c=d),
    %K and %S length of key and value (-1: null), %% a percent sign; \n \r \t \0 \xHH.
    """
    parts: list[Callable[[Any], bytes]] = []
    position = 0
    for match in _TOKEN.finditer(text):
        if match.start() > position:
            parts.append(_constant(text[position : match.start()].encode()))
        position = match.end()
        if match[1] is not None:
            if match[1] not in _FIELDS:
                known = " ".join(f"%{letter}" for letter in _FIELDS)
                raise CommandError(f"--format: %{match[1]} is unknown; there are {known}")
            parts.append(_FIELDS[match[1]])
        elif len(match[2]) == 3:
            parts.append(_constant(bytes([int(match[2][1:], 16)])))
        elif match[2] in _ESCAPES:
            parts.append(_constant(_ESCAPES[match[2]]))
        else:
            raise CommandError(f"--format: \\{match[2]} is unknown")
    if position < len(text):
        parts.append(_constant(text[position:].encode()))
    return lambda message: b"".join(part(message) for part in parts)


def _constant(text: bytes) -> Callable[[Any], bytes]:
    return lambda _: text


def _headers(message: Any) -> bytes:
    return b",".join(
        name.encode() + b"=" + (b"" if value is None else value)
        for name, value in headers_of(message)
    )


def _length(data: bytes | None) -> bytes:
    return b"-1" if data is None else str(len(data)).encode()


_FIELDS: Final[dict[str, Callable[[Any], bytes]]] = {
    "t": lambda message: message.topic().encode(),
    "p": lambda message: str(message.partition()).encode(),
    "o": lambda message: str(message.offset()).encode(),
    "T": lambda message: str(message.timestamp()[1]).encode(),
    "k": lambda message: message.key() or b"",
    "s": lambda message: message.value() or b"",
    "h": _headers,
    "K": lambda message: _length(message.key()),
    "S": lambda message: _length(message.value()),
    "%": _constant(b"%"),
}
