"""Converts keys and values: text, JSON, Avro, hexadecimal, base64; kcat's format strings."""

from __future__ import annotations

import argparse
import base64
import binascii
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waylog.cli import CommandError
from waylog.kafka.record_headers import headers_of
from waylog.malformed import MALFORMED

if TYPE_CHECKING:
    from confluent_kafka import Message

FORMATS: Final = ("text", "json", "avro", "hex", "base64")
#: The length of a schema registry's header: a zero byte and the schema's number.
_REGISTRY_HEADER_BYTES: Final = 5

Decode = Callable[[bytes], Any]
Encode = Callable[[bytes], bytes]


def add_formats(parser: argparse.ArgumentParser) -> None:
    """Add the options for the formats of keys and values."""
    group = parser.add_argument_group("formats")
    for what in ("key", "value"):
        group.add_argument(
            f"--{what}-format",
            choices=FORMATS,
            default="text",
            help=f"of the {what} (default text)",
        )
        group.add_argument(
            f"--{what}-schema", type=Path, metavar="FILE", help=f"Avro schema (.avsc) of the {what}"
        )
    group.add_argument(
        "--schema-id",
        type=int,
        metavar="N",
        help="Avro with a schema registry's header; written with this number, skipped on reading",
    )


def decoder(arguments: argparse.Namespace, what: str) -> Decode:
    """Return a function from the bytes of a record to a value that JSON can represent.

    The function raises CommandError for bytes of another format.
    """
    kind = getattr(arguments, f"{what}_format")
    if kind == "avro":
        return _avro_decoder(_schema(arguments, what), has_header=arguments.schema_id is not None)
    decoders: dict[str, Decode] = {
        "text": _text, "json": _json, "hex": bytes.hex, "base64": _base64,
    }  # fmt: skip
    return decoders[kind]


def encoder(arguments: argparse.Namespace, what: str) -> Encode:
    """Return a function from a user's text to the bytes of a record; it raises CommandError."""
    kind = getattr(arguments, f"{what}_format")
    if kind == "avro":
        return _avro_encoder(_schema(arguments, what), arguments.schema_id)
    encoders: dict[str, Encode] = {
        "text": bytes, "json": _check_json, "hex": _unhex, "base64": _unbase64,
    }  # fmt: skip
    return encoders[kind]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except MALFORMED:
        raise CommandError(f"a record is not JSON: {_text(data[:60])}") from None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _check_json(text: bytes) -> bytes:
    _json(text)
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


# -------------------------------------------------------------------------------------------- Avro


def _schema(arguments: argparse.Namespace, what: str) -> Any:
    path = getattr(arguments, f"{what}_schema")
    if path is None:
        raise CommandError(f"--{what}-format avro needs --{what}-schema FILE")
    try:
        import fastavro
    except ImportError:
        raise CommandError("Avro needs the extra `avro`: pip install fastavro") from None
    try:
        return fastavro.schema.load_schema(str(path))
    except Exception as error:  # fastavro also raises errors of its JSON and repository modules
        raise CommandError(f"{path} is not an Avro schema: {error}") from None


def _avro_decoder(schema: Any, *, has_header: bool) -> Decode:
    import fastavro

    def decode(data: bytes) -> Any:
        body = data[_REGISTRY_HEADER_BYTES:] if has_header else data
        try:
            return fastavro.schemaless_reader(io.BytesIO(body), schema, None)
        except Exception as error:  # as above
            raise CommandError(f"a record is not of this Avro schema: {error}") from None

    return decode


def _avro_encoder(schema: Any, schema_id: int | None) -> Encode:
    import fastavro

    header = b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")

    def encode(text: bytes) -> bytes:
        value = _json(text)
        stream = io.BytesIO()
        try:
            fastavro.schemaless_writer(stream, schema, value)
        except Exception as error:  # as above
            raise CommandError(f"{text[:60]!r} is not of the Avro schema: {error}") from None
        return header + stream.getvalue()

    return encode


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
