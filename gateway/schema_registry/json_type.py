"""JSON Schema: what is kept, with which schemas it refers to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from gateway.schema_registry.errors import invalid_schema
from gateway.schema_registry.json_compatibility import json_incompatibilities
from gateway.schema_registry.parsed import ParsedSchema, Referenced
from gateway.schema_registry.records import Reference
from waylog.serialization.avro_schema import decoded_schema
from waylog.serialization.json_document import JsonDocument
from waylog.serialization.schema_types import JSON
from waylog.serialization.serializer import SerializationError

_encode: Final = msgspec.json.Encoder().encode
_sorted_encode: Final = msgspec.json.Encoder(order="sorted").encode


def parse_json(
    text: str, references: Sequence[Reference], referenced: Sequence[Referenced], *, normalize: bool
) -> ParsedSchema:
    """Return a schema; raises RegistryError."""
    try:
        json = decoded_schema(text)
        others = {each.name: decoded_schema(each.text) for each in referenced}
    except SerializationError as error:
        raise invalid_schema(str(error)) from error
    if not isinstance(json, (dict, bool)):
        raise invalid_schema("a JSON Schema is an object, true or false")
    kept = (_sorted_encode if normalize else _encode)(json).decode()
    return ParsedSchema(
        JSON, kept, tuple(references), JsonDocument(json, others), json_incompatibilities
    )
