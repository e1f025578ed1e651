"""The types of schemas that are kept and compared: Avro, JSON Schema, Protobuf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.schema_registry.avro_type import parse_avro
from gateway.schema_registry.errors import RegistryError, invalid_schema
from gateway.schema_registry.json_type import parse_json
from gateway.schema_registry.parsed import ParsedSchema, Referenced, difference
from gateway.schema_registry.records import Reference
from waylog.extras import install_command, is_installed
from waylog.serialization.schema_types import AVRO, JSON, PROTOBUF

#: In the order of Confluent's registry.
SCHEMA_TYPES: Final = (JSON, PROTOBUF, AVRO)


def parse(
    schema_type: str,
    text: str,
    references: Sequence[Reference],
    referenced: Sequence[Referenced],
    *,
    normalize: bool = False,
) -> ParsedSchema:
    """Return a schema; `referenced` are the texts of all that it needs, the innermost first.

    `normalize` orders what has no order, so that schemas that differ in it alone are the same.
    Raises RegistryError.
    """
    if not text.strip():
        raise RegistryError(42201, "Empty schema")
    if schema_type == AVRO:
        return parse_avro(text, references, referenced, normalize=normalize)
    if schema_type == JSON:
        return parse_json(text, references, referenced, normalize=normalize)
    if schema_type == PROTOBUF:
        if not is_installed("protobuf"):
            raise RegistryError(
                422, f"this registry has no Protobuf: {install_command('protobuf')} brings it"
            )
        from gateway.schema_registry.protobuf_type import parse_protobuf

        return parse_protobuf(text, references, referenced, normalize=normalize)
    raise RegistryError(
        422, f"Invalid schema type {schema_type[:100]}; supported are {', '.join(SCHEMA_TYPES)}"
    )


def incompatibilities(reader: ParsedSchema, writer: ParsedSchema) -> list[str]:
    """Return why a reader cannot read what a writer may write; empty if it always can.

    Raises RegistryError for schemas that cannot be compared.
    """
    if reader.type != writer.type:
        return [
            difference(
                "TYPE_MISMATCH",
                f"a schema of type {reader.type} cannot read what one of type {writer.type} has "
                "written",
            )
        ]
    try:
        return reader.compare(reader.comparable, writer.comparable)
    except RecursionError as error:
        raise invalid_schema("it is nested too deeply to be compared") from error
