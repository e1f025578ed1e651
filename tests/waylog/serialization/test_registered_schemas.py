"""How large a schema may be that is read, whatever its type."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from waylog.serialization.avro_limits import NESTING_MAX, SCHEMA_BYTES_MAX
from waylog.serialization.registered_schemas import (
    read_framed,
    read_framed_named,
    record_schema,
)
from waylog.serialization.schema_ids import Framed, SchemaId
from waylog.serialization.schema_types import AVRO, JSON, PROTOBUF
from waylog.serialization.serializer import SerializationError


def _json(comment: str) -> str:
    return json.dumps({"type": "string", "description": comment}, ensure_ascii=False)


def _avro(comment: str) -> str:
    return json.dumps({"type": "string", "doc": comment}, ensure_ascii=False)


def _protobuf(comment: str) -> str:
    return f'syntax = "proto3"; message A {{ int32 a = 1; }} // {comment}'


def _of_size(size: int, write: Callable[[str], str], character: str) -> str:
    """Return a schema of exactly so many bytes; most of it is a comment of one character."""
    left = size - len(write("").encode())
    width = len(character.encode())
    text = write("x" * (left % width) + character * (left // width))
    assert len(text.encode()) == size
    return text


@pytest.mark.parametrize("character", ["x", "ä", "日"])
@pytest.mark.parametrize(
    ("schema_type", "write"), [(JSON, _json), (AVRO, _avro), (PROTOBUF, _protobuf)]
)
def test_a_schema_of_a_mebibyte_is_read_and_one_of_a_byte_more_is_not(
    schema_type: str, write: Callable[[str], str], character: str
) -> None:
    if schema_type == PROTOBUF:
        pytest.importorskip("google.protobuf", reason="needs pip install 'waylog[protobuf]'")
    record_schema(schema_type, _of_size(SCHEMA_BYTES_MAX, write, character))
    large = _of_size(SCHEMA_BYTES_MAX + 1, write, character)
    with pytest.raises(SerializationError, match="longer than 1048576 bytes"):
        record_schema(schema_type, large)


@pytest.mark.parametrize(("schema_type", "write"), [(JSON, _json), (AVRO, _avro)])
def test_so_it_is_for_a_schema_that_another_one_refers_to(
    schema_type: str, write: Callable[[str], str]
) -> None:
    record_schema(schema_type, write(""), {"other": write("y")})
    with pytest.raises(SerializationError, match="longer than 1048576 bytes"):
        record_schema(schema_type, write(""), {"other": _of_size(SCHEMA_BYTES_MAX + 1, write, "x")})


def test_json_schemas_have_so_many_levels_and_no_more() -> None:
    def nested(levels: int) -> str:
        return '{"items":' * levels + "1" + "}" * levels

    record_schema(JSON, nested(NESTING_MAX))
    with pytest.raises(SerializationError, match="more than 100 levels"):
        record_schema(JSON, nested(NESTING_MAX + 1))
    with pytest.raises(SerializationError, match="more than 100 levels"):
        record_schema(JSON, "true", {"other": nested(NESTING_MAX + 1)})


def test_a_value_is_not_read_with_a_schema_of_another_type() -> None:
    framed = Framed(SchemaId(1), b"", b"\x04ab")
    avro = record_schema(AVRO, '"string"')
    assert read_framed(avro, framed, record_schema(AVRO, '"string"')) == "ab"
    for schema, reader in ((avro, record_schema(JSON, "{}")), (record_schema(JSON, "{}"), avro)):
        for read in (read_framed, read_framed_named):
            with pytest.raises(SerializationError, match="of another type than"):
                read(schema, framed, reader)
