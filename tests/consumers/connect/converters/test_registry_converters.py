"""Converters with a registry, a real one; records are also read by confluent-kafka's classes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("google.protobuf", reason="Protobuf needs pip install 'waylog[protobuf]'")

from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
    topic_subject_name_strategy,
)
from confluent_kafka.serialization import MessageField, SerializationContext

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.converters.avro_converter import AvroConverter
from consumers.connect.converters.converter import AddedHeaders
from consumers.connect.converters.json_schema_converter import JsonSchemaConverter
from consumers.connect.converters.protobuf_converter import ProtobufConverter
from consumers.connect.converters.registry_converter import RegistryConverter
from consumers.connect.data.exceptions import DataException, RetriableException
from consumers.connect.data.logical_types import OPTIONAL_TIMESTAMP, decimal_schema
from consumers.connect.data.schemas import (
    FLOAT64,
    INT8,
    INT32,
    INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    struct_of,
)
from consumers.connect.data.structs import Struct
from tests.consumers.connect.converters.drawn_schemas import plain
from tests.ports import reserved_ports
from tests.registry_process import Registry
from waylog.serialization.registered_schemas import record_schema

CONVERTERS = (AvroConverter, JsonSchemaConverter, ProtobufConverter)
TRIP = struct_of(
    {"city": STRING, "km": INT8, "price": decimal_schema(2), "at": OPTIONAL_TIMESTAMP},
    name="test.Trip",
)
VALUE = Struct(
    TRIP,
    {"city": "Wien", "km": 12, "price": Decimal("2.50"), "at": datetime(2026, 11, 21, tzinfo=UTC)},
)
HEADER = "io.confluent.kafka.serializers.schema.id.HeaderSchemaIdSerializer"

Make = Callable[..., RegistryConverter]


@pytest.fixture
def make(registry: Registry) -> Iterator[Make]:
    made: list[RegistryConverter] = []

    def of(class_: type[RegistryConverter], part: str = "value", **more: str) -> RegistryConverter:
        properties = {"schema.registry.url": registry.url, "converter.type": part}
        properties |= {name.replace("_", "."): text for name, text in more.items()}
        made.append(class_(properties))
        return made[-1]

    yield of
    for each in made:
        each.close()


@pytest.fixture
def theirs(registry: Registry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


def context_of(topic: str, headers: Any) -> Any:
    """Return what confluent-kafka's classes are told of a value."""
    return SerializationContext(topic, MessageField.VALUE, headers)


@pytest.mark.parametrize("in_header", [False, True])
@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("class_", CONVERTERS)
def test_records_go_through_the_registry(
    make: Make, topic: str, class_: type[RegistryConverter], part: str, in_header: bool
) -> None:
    more = {f"{part}_schema_id_serializer": HEADER} if in_header else {}
    converter = make(class_, part, **more)
    headers: AddedHeaders = [("own", b"x"), (f"__{part}_schema_id", b"of another schema")]
    data = converter.from_connect(topic, TRIP, VALUE, headers)
    assert data is not None
    names = [name for name, _ in headers]
    assert names == (["own", f"__{part}_schema_id"] if in_header else ["own"])
    assert data.startswith(b"\0\0") != in_header
    # Another one has to ask the registry.
    fresh = make(class_, part)
    for each in (converter, fresh):
        found = each.to_connect(topic, data, headers)
        assert found.schema is not None
        assert plain(found.schema, found.value) == plain(TRIP, VALUE)
    for schema in (None, TRIP.replace(optional=True)):
        assert converter.from_connect(topic, schema, None) is None
    assert converter.to_connect(topic, None) == (None, None)


@pytest.mark.parametrize("class_", CONVERTERS)
def test_single_values_go_through_the_registry(
    make: Make, topic: str, class_: type[RegistryConverter]
) -> None:
    converter = make(class_, "key")
    for number, (schema, value) in enumerate(
        [(STRING, "Wien"), (INT64, -5), (FLOAT64, 1.5), (OPTIONAL_STRING, "x")]
    ):
        data = converter.from_connect(f"{topic}-{number}", schema, value)
        found = converter.to_connect(topic, data)
        assert found.value == value
        assert found.schema is not None and found.schema.type is schema.type


@pytest.mark.parametrize("class_", CONVERTERS)
def test_a_newer_schema_has_to_be_compatible(
    make: Make, topic: str, class_: type[RegistryConverter]
) -> None:
    converter = make(class_, optional_for_nullables="true", object_additional_properties="false")
    converter.from_connect(topic, TRIP, VALUE)
    fields = {field.name: field.schema for field in TRIP.fields}
    newer = struct_of(fields | {"by": OPTIONAL_STRING}, name="test.Trip")
    values = dict(zip(fields, VALUE.values, strict=True))
    data = converter.from_connect(topic, newer, Struct(newer, values | {"by": "boat"}))
    found = converter.to_connect(topic, data)
    assert found.schema is not None and found.schema.field("by") is not None
    wrong = struct_of(fields | {"km": STRING}, name="test.Trip")
    with pytest.raises(DataException, match="incompatible with an earlier schema"):
        converter.from_connect(topic, wrong, Struct(wrong, values | {"km": "12"}))


@pytest.mark.parametrize("in_header", [False, True])
def test_confluents_protobuf_classes_read_and_write_the_same(
    make: Make, theirs: SchemaRegistryClient, topic: str, in_header: bool
) -> None:
    protobuf = pytest.importorskip("confluent_kafka.schema_registry.protobuf")
    reading = {"subject.name.strategy": topic_subject_name_strategy}
    form = header_schema_id_serializer if in_header else prefix_schema_id_serializer
    text = (
        'syntax = "proto3"; package test; import "google/protobuf/timestamp.proto"; '
        "message Other {} message Trip { message Leg { string city = 1; int32 km = 2; "
        "google.protobuf.Timestamp at = 3; } }"
    )
    message = record_schema("PROTOBUF", text, message="test.Trip.Leg").new_message()  # type: ignore[attr-defined]
    message.city, message.km = "Wien", 12
    message.at.FromSeconds(1_700_000_000)
    writer = protobuf.ProtobufSerializer(
        type(message), theirs, reading | {"schema.id.serializer": form}
    )
    context = context_of(topic, [])
    data = writer(message, context)
    more = {"value_schema_id_serializer": HEADER} if in_header else {}
    converter = make(ProtobufConverter, **more)
    found = converter.to_connect(topic, data, context.headers)
    assert found.schema is not None and found.schema.name == "Leg"
    at = datetime.fromtimestamp(1_700_000_000, UTC)
    assert plain(found.schema, found.value) == {"city": "Wien", "km": 12, "at": at}
    # And what the converter makes of it.
    headers: AddedHeaders = []
    other = f"{topic}-back"
    back = converter.from_connect(other, found.schema, found.value, headers)
    reader = protobuf.ProtobufDeserializer(type(message), reading, theirs)
    assert reader(back, context_of(other, headers)) == message


@pytest.mark.parametrize("in_header", [False, True])
def test_confluents_json_classes_read_and_write_the_same(
    make: Make, theirs: SchemaRegistryClient, topic: str, in_header: bool
) -> None:
    json_schema = pytest.importorskip("confluent_kafka.schema_registry.json_schema")
    reading = {"subject.name.strategy": topic_subject_name_strategy}
    form = header_schema_id_serializer if in_header else prefix_schema_id_serializer
    converter = make(JsonSchemaConverter, decimal_format="NUMERIC",
                     **({"value_schema_id_serializer": HEADER} if in_header else {}))  # fmt: skip
    headers: AddedHeaders = []
    data = converter.from_connect(topic, TRIP, VALUE, headers)
    text = theirs.get_latest_version(f"{topic}-value").schema.schema_str
    # It looks whether the value is valid by the schema.
    reader = json_schema.JSONDeserializer(text, schema_registry_client=theirs, conf=reading)
    value = reader(data, context_of(topic, headers))
    at = int(VALUE.get("at").timestamp() * 1000)
    assert value == {"city": "Wien", "km": 12, "price": 2.5, "at": at}
    writer = json_schema.JSONSerializer(text, theirs, conf=reading | {"schema.id.serializer": form})
    context = context_of(topic, [])
    found = converter.to_connect(topic, writer(value, context), context.headers)
    assert found.schema == TRIP and found.value.get("price") == Decimal("2.5")


@pytest.mark.parametrize("class_", CONVERTERS)
@pytest.mark.parametrize(
    "data", [b"", b"{}", b"\0\0\0", b"\0\x7f\xff\xff\xffx", b"\0\xff\xff\xff\xff"]
)
def test_bytes_of_anybody_are_an_error_of_the_record(
    make: Make, topic: str, class_: type[RegistryConverter], data: bytes
) -> None:
    with pytest.raises(DataException, match="Failed to deserialize data"):
        make(class_).to_connect(topic, data)


@pytest.mark.parametrize("class_", CONVERTERS)
def test_a_value_that_is_cut_off_is_an_error_of_the_record(
    make: Make, topic: str, class_: type[RegistryConverter]
) -> None:
    converter = make(class_)
    data = converter.from_connect(topic, TRIP, VALUE)
    assert data is not None
    for wrong in (data[:-1], data[:5] + b"\xff" + data[5:]):
        with pytest.raises(DataException, match="Failed to deserialize data"):
            converter.to_connect(topic, wrong)


@pytest.mark.parametrize("class_", CONVERTERS)
def test_a_schema_of_another_type_is_told(
    make: Make, topic: str, class_: type[RegistryConverter]
) -> None:
    other = CONVERTERS[CONVERTERS.index(class_) - 1]
    data = make(other).from_connect(topic, TRIP, VALUE)
    with pytest.raises(DataException, match="not of type"):
        make(class_).to_connect(topic, data)


@pytest.mark.parametrize("class_", CONVERTERS)
def test_values_of_another_form_are_refused(
    make: Make, topic: str, class_: type[RegistryConverter]
) -> None:
    converter = make(class_)
    with pytest.raises(DataException, match="has no schema"):
        converter.from_connect(topic, None, {"a": 1})
    for schema, value in ((STRING, None), (INT32, "5"), (STRING, "\ud800"), (STRING, 5)):
        with pytest.raises(DataException):
            converter.from_connect(topic, schema, value)


@pytest.mark.parametrize("class_", CONVERTERS)
def test_a_registry_that_is_away_is_tried_again(
    topic: str, class_: type[RegistryConverter]
) -> None:
    url = f"http://127.0.0.1:{reserved_ports(1)[0]}"
    away = class_({"schema.registry.url": url})
    with pytest.raises(RetriableException, match="does not answer"):
        away.to_connect(topic, b"\0\0\0\0\1x")
    with pytest.raises(RetriableException, match="does not answer"):
        away.from_connect(topic, STRING, "x")
    away.close()


@pytest.mark.parametrize("class_", CONVERTERS)
@pytest.mark.parametrize(
    "more",
    [
        {"schema.registry.url": ""},
        {"use.latest.version": "true"},
        {"value.subject.name.strategy": "com.example.Mine"},
        {"value.schema.id.serializer": "com.example.Mine"},
        {"basic.auth.credentials.source": "SASL_INHERIT"},
        {"schemas.cache.config": "0"},
        {"generalized.sum.type.support": "true"},
        {"generate.struct.for.nulls": "true"},
        {"preserve.additional.properties": "true"},
        {"decimal.format": "TEXT"},
        {"int.for.enums": "perhaps"},
    ],
)
def test_wrong_properties_are_told(class_: type[RegistryConverter], more: dict[str, str]) -> None:
    """Those of another converter are ignored, as Kafka Connect does."""
    known = set(class_.config.keys)
    properties = {"schema.registry.url": "http://127.0.0.1:1", **more}
    if not more.keys() <= known:
        class_(properties).close()
        return
    with pytest.raises(ConfigException):
        class_(properties)


def test_subjects_have_the_name_of_the_record_if_that_is_wanted(
    make: Make, theirs: SchemaRegistryClient, topic: str
) -> None:
    name = f"test.T{uuid.uuid4().hex[:8]}"
    schema = struct_of({"a": INT32}, name=name)
    value = Struct(schema, {"a": 1})
    strategy = "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy"
    for number, class_ in enumerate(CONVERTERS):
        converter = make(class_, value_subject_name_strategy=strategy)
        converter.from_connect(f"{topic}-{number}", schema, value)
        assert theirs.get_latest_version(f"{topic}-{number}-{name}").version == 1


def test_a_schema_that_protobuf_cannot_have_is_an_error_of_the_record(
    make: Make, topic: str
) -> None:
    enum = Schema(
        STRING.type,
        name="E",
        parameters={
            "io.confluent.connect.protobuf.Enum": "E",
            "io.confluent.connect.protobuf.Enum.A": "1",
        },
    )
    schema = struct_of({"e": enum}, name="T")
    with pytest.raises(DataException, match="enum"):
        make(ProtobufConverter).from_connect(topic, schema, Struct(schema, {"e": "A"}))
