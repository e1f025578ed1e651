"""Avro with a registry, a real one; records are also read by confluent-kafka's own classes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from tests.ports import reserved_ports
from tests.registry_process import Registry, registry_on
from waylog.serialization.avro_schema import AvroSchema
from waylog.serialization.registered_schemas import read_framed, record_schema
from waylog.serialization.registry_client import RegistryClient
from waylog.serialization.registry_serializer import RegistryDeserializer, RegistrySerializer
from waylog.serialization.schema_ids import split
from waylog.serialization.serializer import (
    RecordPart,
    SchemaRegistryUnavailable,
    SerializationError,
)
from waylog.serialization.subject_names import SUBJECT_NAME_STRATEGIES

CITY = {"name": "city", "type": "string"}
KM = {"name": "km", "type": "int"}
VALUE = {"city": "Wien", "km": 12}


def trip(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Trip", "fields": list(fields or (CITY, KM))})


@contextmanager
def client_of(url: str, **properties: Any) -> Iterator[RegistryClient]:
    client = RegistryClient(url, properties)
    yield client
    client.close()


@pytest.fixture
def client(registry: Registry) -> Iterator[RegistryClient]:
    with client_of(registry.url) as client:
        yield client


@pytest.fixture
def theirs(registry: Registry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"trips-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("in_header", [False, True])
def test_a_value_comes_back(client: RegistryClient, topic: str, in_header: bool) -> None:
    serializer = RegistrySerializer(client, RecordPart.VALUE, trip(), in_header=in_header)
    data, headers = serializer.serialize(topic, VALUE)
    assert bool(headers) == in_header
    deserializer = RegistryDeserializer(client, RecordPart.VALUE)
    assert deserializer.deserialize(topic, data, headers) == VALUE
    assert serializer.serialize(topic, None).data is None
    assert deserializer.deserialize(topic, None) is None


JSON_SCHEMA = json.dumps(
    {"title": "Trip", "type": "object", "properties": {"city": {"type": "string"},
     "km": {"type": "integer"}}}
)  # fmt: skip
PROTO = """
syntax = "proto3";
package test;
message Place { string name = 1; }
message Trip { message Leg { string city = 1; int32 km = 2; } Leg leg = 1; }
"""
LEG = "test.Trip.Leg"


@pytest.mark.parametrize("part", list(RecordPart))
@pytest.mark.parametrize("in_header", [False, True])
@pytest.mark.parametrize("schema_type", ["AVRO", "JSON", "PROTOBUF"])
def test_confluents_classes_read_and_write_the_same(
    theirs: SchemaRegistryClient,
    client: RegistryClient,
    topic: str,
    schema_type: str,
    in_header: bool,
    part: RecordPart,
) -> None:
    from confluent_kafka.schema_registry import (
        header_schema_id_serializer,
        prefix_schema_id_serializer,
    )

    text = {"AVRO": trip(), "JSON": JSON_SCHEMA, "PROTOBUF": PROTO}[schema_type]
    message = LEG if schema_type == "PROTOBUF" else None
    ours = RegistrySerializer(
        *(client, part, text),
        schema_type=schema_type,
        message=message,
        in_header=in_header,
    )
    data, headers = ours.serialize(topic, VALUE)
    form = header_schema_id_serializer if in_header else prefix_schema_id_serializer
    their_reader, their_writer, their_value = their_classes(theirs, schema_type, text, form)
    context = context_of(topic, part, list(headers))
    assert their_reader(data, context) == their_value
    context = context_of(topic, part, [])
    written = their_writer(their_value, context)
    assert bool(context.headers) == in_header
    if schema_type != "PROTOBUF":  # of which they register the descriptor, another text
        assert (written, context.headers) == (data, list(headers))
    reader = RegistryDeserializer(client, part)
    assert reader.deserialize(topic, written, context.headers) == VALUE


def context_of(topic: str, part: RecordPart, headers: Any) -> Any:
    """Return what their classes are told of a record."""
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext(topic, MessageField(part.value), headers)


def their_classes(
    theirs: SchemaRegistryClient, schema_type: str, text: str, form: Any
) -> tuple[Any, Any, Any]:
    """Return a deserializer and a serializer of confluent-kafka, and a value of theirs."""
    from confluent_kafka.schema_registry import topic_subject_name_strategy
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

    reading = {"subject.name.strategy": topic_subject_name_strategy}
    writing = reading | {"schema.id.serializer": form}
    if schema_type == "AVRO":
        reader = AvroDeserializer(theirs, conf=reading)
        return reader, AvroSerializer(theirs, text, conf=writing), VALUE
    if schema_type == "JSON":
        json_schema = pytest.importorskip("confluent_kafka.schema_registry.json_schema")
        return (
            json_schema.JSONDeserializer(text, schema_registry_client=theirs, conf=reading),
            json_schema.JSONSerializer(text, theirs, conf=writing),
            VALUE,
        )
    protobuf = pytest.importorskip("confluent_kafka.schema_registry.protobuf")
    schema = record_schema(schema_type, text, message=LEG)
    value = schema.new_message()  # type: ignore[attr-defined]
    value.city, value.km = VALUE["city"], VALUE["km"]
    return (
        protobuf.ProtobufDeserializer(type(value), reading, theirs),
        protobuf.ProtobufSerializer(type(value), theirs, writing),
        value,
    )


GUID = b"\xd18\x14\x8c\xa1\x08M\x0f\xb9ha\xefZ\x83\xb1\xd4"
DESCRIPTOR = (
    "CgxzY2hlbWEucHJvdG8SBHRlc3QiFQoFUGxhY2USDAoEbmFtZRgBIAEoCSJECgRUcmlwEhsKA2xlZxgBIAEoCzIOLnR"
    "lc3QuVHJpcC5MZWcaHwoDTGVnEgwKBGNpdHkYASABKAkSCgoCa20YAiABKAViBnByb3RvMw=="
)


@pytest.mark.parametrize(
    ("schema_type", "text", "data", "header"),
    [
        ("AVRO", trip(), b"\0\0\0\0\1\x08Wien\x18", None),
        ("AVRO", trip(), b"\x08Wien\x18", b"\1" + GUID),
        ("JSON", JSON_SCHEMA, b'\0\0\0\0\2{"city":"Wien","km":12}', None),
        ("JSON", JSON_SCHEMA, b'{"city":"Wien","km":12}', b"\1" + GUID),
        ("PROTOBUF", DESCRIPTOR, b"\0\0\0\0\3\4\2\0\n\4Wien\x10\x0c", None),
        ("PROTOBUF", DESCRIPTOR, b"\n\4Wien\x10\x0c", b"\1" + GUID + b"\4\2\0"),
    ],
)
def test_what_confluents_classes_have_written_is_read(
    schema_type: str, text: str, data: bytes, header: bytes | None
) -> None:
    """Records of confluent-kafka 2.16.1, with the schemas that it registers."""
    headers = [] if header is None else [("__value_schema_id", header)]
    framed = split(RecordPart.VALUE, data, headers)
    assert read_framed(record_schema(schema_type, text), framed) == VALUE


def test_a_header_that_is_too_long_is_told() -> None:
    framed = split(RecordPart.VALUE, b"\x08Wien\x18", [("__value_schema_id", b"\1" + GUID + b"\0")])
    for text, schema_type in ((trip(), "AVRO"), (JSON_SCHEMA, "JSON")):
        with pytest.raises(SerializationError, match="too long"):
            read_framed(record_schema(schema_type, text), framed)


def test_writers_and_readers_of_other_ages_understand_each_other(
    client: RegistryClient, topic: str
) -> None:
    by = {"name": "by", "type": "string", "default": "foot"}
    older = RegistrySerializer(client, RecordPart.VALUE, trip()).serialize(topic, VALUE)
    newer = RegistrySerializer(client, RecordPart.VALUE, trip(CITY, KM, by)).serialize(
        topic, VALUE | {"by": "boat"}
    )
    assert older.data != newer.data
    new_reader = RegistryDeserializer(client, RecordPart.VALUE, AvroSchema(trip(CITY, KM, by)))
    old_reader = RegistryDeserializer(client, RecordPart.VALUE, AvroSchema(trip()))
    assert new_reader.deserialize(topic, older.data) == VALUE | {"by": "foot"}
    assert new_reader.deserialize(topic, newer.data) == VALUE | {"by": "boat"}
    assert old_reader.deserialize(topic, older.data) == VALUE
    assert old_reader.deserialize(topic, newer.data) == VALUE


def test_an_incompatible_schema_is_refused_with_the_registrys_reason(
    client: RegistryClient, topic: str
) -> None:
    RegistrySerializer(client, RecordPart.VALUE, trip()).serialize(topic, VALUE)
    by = {"name": "by", "type": "string"}
    incompatible = RegistrySerializer(client, RecordPart.VALUE, trip(CITY, KM, by))
    with pytest.raises(SerializationError, match=r"READER_FIELD_MISSING_DEFAULT_VALUE.*by"):
        incompatible.serialize(topic, VALUE | {"by": "boat"})


def test_a_schema_is_registered_only_if_that_is_wanted(client: RegistryClient, topic: str) -> None:
    careful = RegistrySerializer(client, RecordPart.VALUE, trip(), auto_register=False)
    with pytest.raises(SerializationError, match="not found"):
        careful.serialize(topic, VALUE)
    data, _ = RegistrySerializer(client, RecordPart.VALUE, trip()).serialize(topic, VALUE)
    assert careful.serialize(topic, VALUE).data == data
    newest = RegistrySerializer(client, RecordPart.VALUE)
    assert newest.serialize(topic, VALUE).data == data
    with pytest.raises(SerializationError, match="not found"):
        newest.serialize(f"{topic}-other", VALUE)


def test_subjects_are_named_as_confluents_classes_name_them(
    client: RegistryClient, registry: Registry, topic: str
) -> None:
    for name, expected in (
        ("TopicNameStrategy", f"{topic}-key"),
        ("RecordNameStrategy", "Trip"),
        ("TopicRecordNameStrategy", f"{topic}-Trip"),
    ):
        strategy = SUBJECT_NAME_STRATEGIES[name]
        RegistrySerializer(client, RecordPart.KEY, trip(), subject_name=strategy).serialize(
            topic, VALUE
        )
        assert client.registered(expected, trip()).schema.name == "Trip"


def test_the_newest_schema_is_that_of_the_strategys_subject(
    client: RegistryClient, topic: str
) -> None:
    by_record = SUBJECT_NAME_STRATEGIES["TopicRecordNameStrategy"]
    protobuf = {"schema_type": "PROTOBUF", "message": LEG, "subject_name": by_record}
    writer = RegistrySerializer(client, RecordPart.VALUE, PROTO, **protobuf)  # type: ignore[arg-type]
    data, _ = writer.serialize(topic, VALUE)
    newest = RegistrySerializer(client, RecordPart.VALUE, **protobuf)  # type: ignore[arg-type]
    assert newest.serialize(topic, VALUE).data == data
    nameless = RegistrySerializer(client, RecordPart.VALUE, subject_name=by_record)
    with pytest.raises(SerializationError, match="a schema is needed"):
        nameless.serialize(topic, VALUE)


def test_an_unknown_id_is_asked_for_once(
    registry: Registry, client: RegistryClient, topic: str
) -> None:
    deserializer = RegistryDeserializer(client, RecordPart.VALUE)
    for number in (2_000_000_000, 0):
        for _ in range(2000):  # each a request, this would take many seconds
            with pytest.raises(SerializationError, match="not found"):
                deserializer.deserialize(topic, b"\0" + number.to_bytes(4, "big") + b"x")


def test_a_registry_that_is_away_is_no_fault_of_the_record(topic: str) -> None:
    url = f"http://127.0.0.1:{reserved_ports(1)[0]}"
    with (
        client_of(url) as away,
        pytest.raises(SchemaRegistryUnavailable, match="does not answer"),
    ):
        RegistryDeserializer(away, RecordPart.VALUE).deserialize(topic, b"\0\0\0\0\1x")


def test_a_registry_that_knows_nobody_is_no_fault_of_the_record(
    registry: Registry, tmp_path: Path, topic: str
) -> None:
    servers, words = registry.bootstrap_servers, ("--replication-factor", "1")
    with (
        registry_on(servers, tmp_path, *words) as closed,
        client_of(closed.url) as client,
        pytest.raises(SchemaRegistryUnavailable, match="401"),
    ):
        RegistryDeserializer(client, RecordPart.VALUE).deserialize(topic, b"\0\0\0\0\1x")


def test_references_are_read(
    registry: Registry, theirs: SchemaRegistryClient, client: RegistryClient, topic: str
) -> None:
    point = json.dumps(
        {"type": "record", "name": "geo.Point", "fields": [{"name": "lat", "type": "double"}]}
    )
    theirs.register_schema(f"{topic}-point", Schema(point, "AVRO"))
    line = json.dumps(
        {"type": "record", "name": "Line", "fields": [{"name": "to", "type": "geo.Point"}]}
    )
    reference = SchemaReference("geo.Point", f"{topic}-point", 1)
    theirs.register_schema(f"{topic}-value", Schema(line, "AVRO", [reference]))
    data, _ = RegistrySerializer(client, RecordPart.VALUE).serialize(topic, {"to": {"lat": 1.5}})
    with client_of(registry.url) as fresh:
        deserializer = RegistryDeserializer(fresh, RecordPart.VALUE)
        assert deserializer.deserialize(topic, data) == {"to": {"lat": 1.5}}
