"""Avro by a file with the schema, without a registry."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from waylog.cli import CommandError
from waylog.extras import install_command, is_installed
from waylog.os_errors import describe_os_error
from waylog.serialization.serializer import SerializationError, Serialized

if TYPE_CHECKING:
    from waylog.serialization.avro_schema import AvroSchema

#: The length of a schema registry's header: a zero byte and the schema's number.
_REGISTRY_HEADER_BYTES: Final = 5


def schema_text(arguments: argparse.Namespace, what: str) -> str | None:
    """Return the text of the schema of keys or values, None if none is given.

    Raises CommandError.
    """
    path = getattr(arguments, f"{what}_schema")
    if path is None:
        return None
    try:
        text: str = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--{what}-schema: {describe_os_error(error)}") from None
    except UnicodeDecodeError:
        raise CommandError(f"--{what}-schema {path}: it is no text in UTF-8") from None
    return text


def _schema(arguments: argparse.Namespace, what: str) -> AvroSchema:
    text = schema_text(arguments, what)
    if text is None:
        raise CommandError(
            f"--{what}-format avro needs --{what}-schema FILE or --schema-registry URL"
        )
    if not is_installed("avro"):
        raise CommandError(f"Avro needs more packages: {install_command('avro')}")
    from waylog.serialization.avro_schema import AvroSchema

    try:
        return AvroSchema(text)
    except SerializationError as error:
        path = getattr(arguments, f"{what}_schema")
        raise CommandError(f"{path} is not an Avro schema: {error}") from None


def avro_decoder(arguments: argparse.Namespace, what: str) -> Callable[[bytes], Any]:
    """Return a function from bytes to a value, which raises SerializationError.

    Raises CommandError.
    """
    schema = _schema(arguments, what)
    skipped = 0 if arguments.schema_id is None else _REGISTRY_HEADER_BYTES
    return lambda data: schema.read(data[skipped:])


def avro_encoder(arguments: argparse.Namespace, what: str) -> Callable[[Any], Serialized]:
    """Return a function from a value to its bytes, which raises SerializationError.

    Raises CommandError.
    """
    schema, number = _schema(arguments, what), arguments.schema_id
    header = b"" if number is None else b"\0" + number.to_bytes(4, "big")
    return lambda value: Serialized(header + schema.write(value))
