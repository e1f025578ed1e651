"""Copies of topics in other formats, with a real registry; and one on a broker."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer

from consumers.streams.convert.topology import Convert
from consumers.streams.properties import Properties
from consumers.streams.store import RECORD_BYTES_MAX
from consumers.worker.records import OutputRecord
from consumers.worker.results import SessionFailed
from tests.consumers.running import Process
from tests.consumers.streams.convert.copies import Copies, copied
from tests.consumers.streams.harness import Record, make_fix
from tests.registry_process import Registry
from waylog.config import ConfigError
from waylog.kafka.clients import ensure_topics, producer_config
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.messages import Fix, Rejected, decode_fix, decode_rejected, encode
from waylog.serialization.avro_schema import AvroSchema
from waylog.serialization.message_schemas import MessageSchema
from waylog.serialization.registry_client import RegistryClient
from waylog.serialization.registry_serializer import RegistryDeserializer, RegistrySerializer
from waylog.serialization.serializer import RecordPart

FIX = make_fix(1, accuracy=5.0, attributes={"mode": "car", "legs": [1, {"a": None}]})


@pytest.fixture
def client(registry: Registry) -> Iterator[RegistryClient]:
    client = RegistryClient(registry.url)
    yield client
    client.close()


@pytest.fixture
def copy_of(registry: Registry) -> Iterator[Copies]:
    copies = Copies(registry.url)
    yield copies
    copies.close()


def read(client: RegistryClient, record: OutputRecord, **more: Any) -> Any:
    deserializer = RegistryDeserializer(client, RecordPart.VALUE, **more)
    return deserializer.deserialize(record.topic, record.value, record.headers or ())


def test_fixes_are_copied_to_avro_and_back(copy_of: Copies, client: RegistryClient) -> None:
    there = copy_of("location", "location-avro")
    trace = ("traceparent", b"00-1-2-03")
    (record,) = copied(there, Record(encode(FIX), b"ann/phone", headers=[trace, ("own", b"x")]))
    assert (record.topic, record.key, record.partition) == ("location-avro", b"ann/phone", None)
    assert record.headers == [trace, ("own", b"x")]
    value = read(client, record)
    assert value["accuracy"] == 5.0 and json.loads(value["attributes"]) == FIX.attributes
    # Its subject has the schema of the platform's message.
    assert json.loads(MessageSchema(Fix).text)["name"] == "Fix"
    back = copy_of("location-avro", "location", value_format="json")
    (again,) = copied(back, Record(record.value, record.key))
    assert again.topic == "location" and decode_fix(again.value or b"") == FIX


def test_a_topic_that_changed_its_format_is_read_as_it_was_written(
    copy_of: Copies, client: RegistryClient
) -> None:
    """JSON, Avro with the id in front, Avro with the GUID in a header, and a tombstone."""
    message = MessageSchema(Fix)
    records = [Record(encode(FIX))]
    for in_header in (False, True):
        writer = RegistrySerializer(client, RecordPart.VALUE, message.text, in_header=in_header)
        data, headers = writer.serialize("mixed", message.to_avro(FIX))
        records.append(Record(data, headers=list(headers)))
    records.append(Record(None, b"ann/phone"))
    outputs = copied(copy_of("mixed", "location", value_format="json"), *records)
    assert [each.value and decode_fix(each.value) for each in outputs] == [FIX, FIX, FIX, None]
    # What named the old schema is not handed on.
    assert [each.headers for each in outputs] == [None] * 4


def test_a_reader_that_is_older_than_the_writer_reads_the_copy(
    copy_of: Copies, client: RegistryClient
) -> None:
    (record,) = copied(copy_of("location", "location-avro"), Record(encode(FIX)))
    schema = json.loads(MessageSchema(Fix).text)
    schema["fields"] = [each for each in schema["fields"] if each["name"] in ("id", "lat", "lon")]
    older = AvroSchema(json.dumps(schema))
    assert read(client, record, reader=older) == {"id": FIX.id, "lat": FIX.lat, "lon": FIX.lon}
    schema["fields"].append({"name": "later", "type": "int", "default": 7})
    assert read(client, record, reader=AvroSchema(json.dumps(schema)))["later"] == 7


def test_what_no_record_can_hold_in_the_other_format_is_refused(copy_of: Copies) -> None:
    there = copy_of("texts", "texts-json", value_format="json")
    half = RECORD_BYTES_MAX // 2
    value = json.dumps("x" * (half - 2)).encode()
    fits, beyond, next_one = copied(
        there, Record(value, b"k" * half), Record(value, b"k" * (half + 1)), Record(b"1", b"k")
    )
    assert [each.topic for each in (fits, beyond, next_one)] == [
        "texts-json",
        "error",
        "texts-json",
    ]
    assert "larger than a record may be" in decode_rejected(beyond.value or b"").reason


def test_bytes_are_bytes(copy_of: Copies, client: RegistryClient) -> None:
    rejected = Rejected(reason="r", source="s", time=1, raw=b"\0\xff")
    (record,) = copied(copy_of("error", "error-avro"), Record(encode(rejected)))
    assert read(client, record)["raw"] == b"\0\xff"
    (again,) = copied(copy_of("error-avro", "error", value_format="json"), Record(record.value))
    assert decode_rejected(again.value or b"") == rejected


def test_another_topic_has_a_schema_of_its_own(
    copy_of: Copies, client: RegistryClient, tmp_path: Path
) -> None:
    trip = {"type": "record", "name": "Trip", "fields": [{"name": "km", "type": "double"}]}
    (tmp_path / "trip.avsc").write_text(json.dumps(trip))
    task = copy_of("trips", "trips-avro", value_schema=str(tmp_path / "trip.avsc"))
    good, bad, junk = copied(task, Record(b'{"km":2.5}'), Record(b'{"km":"x"}'), Record(b"\0\0"))
    assert read(client, good) == {"km": 2.5}
    # What cannot be converted is kept, and those behind it go on.
    assert [decode_rejected(each.value or b"").reason for each in (bad, junk)] == [
        *("the value is no Trip: Trip.km is <x> of type <class 'str'> expected double",),
        "the value ends within the id of its schema",
    ]


def test_protobuf_is_written_too(copy_of: Copies, client: RegistryClient, tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf", reason="needs pip install 'waylog[protobuf]'")
    (tmp_path / "fix.proto").write_text(
        'syntax = "proto3"; message Other {} message Fix { string id = 1; double lat = 2; '
        "double lon = 3; string device = 4; string user = 5; int64 time = 6; "
        "int64 received = 7; optional double accuracy = 8; string attributes = 9; "
        "optional double speed = 10; }"
    )
    task = copy_of(
        *("location", "location-proto"), value_format="protobuf",
        value_schema=str(tmp_path / "fix.proto"), value_message="Fix",
    )  # fmt: skip
    fix = make_fix(1, accuracy=5.0)
    (record,) = copied(task, Record(encode(fix)))
    if record.topic == "error":
        pytest.fail(decode_rejected(record.value or b"").reason)
    assert read(client, record)["time"] == str(fix.time)


def test_keys_are_converted_too(copy_of: Copies, client: RegistryClient) -> None:
    there = copy_of("location", "location-keys", key_format="avro")
    (record,) = copied(there, Record(encode(FIX), b"ann/phone"))
    keys = RegistryDeserializer(client, RecordPart.KEY)
    assert keys.deserialize(record.topic, record.key, record.headers or ()) == "ann/phone"
    assert read(client, record)["id"] == FIX.id
    back = copy_of("location-keys", "location", key_format="string", value_format="json")
    (again,) = copied(back, Record(record.value, record.key, headers=record.headers))
    assert (again.key, decode_fix(again.value or b"")) == (b"ann/phone", FIX)


def test_keys_and_values_of_other_formats_are_converted(
    copy_of: Copies, client: RegistryClient
) -> None:
    """The first byte of a long is zero, as that of a schema's id is."""
    to_json = {"value_format": "json", "key_from_format": "long", "value_from_format": "string"}
    task = copy_of("numbers", "texts", key_format="json", **to_json)
    good, bad, none = copied(
        task,
        Record("ö".encode(), (258).to_bytes(8, "big")),
        Record(b"x", b"short"),
        Record(b"x", None),
    )
    assert (good.key, good.value) == (b"258", '"ö"'.encode())
    assert decode_rejected(bad.value or b"").reason.startswith("key: the number takes 8 bytes")
    assert (none.key, none.value) == (None, b'"x"')


def test_each_part_names_its_schema_where_properties_say(
    copy_of: Copies, client: RegistryClient, tmp_path: Path
) -> None:
    config = tmp_path / "registry.properties"
    config.write_text("key.schema.id.serializer=HeaderSchemaIdSerializer\n")
    task = copy_of(
        *("location", "location-heads"), key_format="avro", schema_registry_config=str(config)
    )
    # What named the schema of a former key is not handed on.
    stale = [("__key_schema_id", b"\1" + bytes(16)), ("own", b"x")]
    records = [Record(encode(FIX), b"ann/phone"), Record(encode(FIX), b"ann/phone", headers=stale)]
    record, refused = copied(task, *records)
    assert [name for name, _ in record.headers or ()] == ["__key_schema_id"]
    assert (record.value or b"").startswith(b"\0")
    assert decode_rejected(refused.value or b"").reason.startswith("key: ")
    keys = RegistryDeserializer(client, RecordPart.KEY)
    assert keys.deserialize(record.topic, record.key, record.headers or ()) == "ann/phone"
    again = copy_of("location-heads", "location", key_format="string", value_format="json")
    (back,) = copied(again, Record(record.value, record.key, headers=record.headers))
    assert (back.key, back.headers) == (b"ann/phone", None)


def test_while_the_registry_is_away_records_wait(copy_of: Copies) -> None:
    task = copy_of("location", "x", schema_registry_url="http://127.0.0.1:1")
    with pytest.raises(SessionFailed, match="does not answer"):
        copied(task, Record(encode(FIX)))


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({"to": "b"}, "from=TOPIC is needed"),
        ({"from": "a", "to": "a"}, "another topic"),
        ({"from": "a", "to": "b"}, "schema.registry.url=http://HOST:8081 is needed"),
        ({"from": "a", "to": "b", "value.format": "xml"}, "one of json, string, .* avro"),
        ({"from": "a", "to": "b", "value.format": "auto"}, "one of json"),
        (
            {"from": "a", "to": "b", "schema.registry.url": "http://x", "key.schema": "k.avsc"},
            "key.schema: key.format=FORMAT is needed",
        ),
        (
            {"from": "a", "to": "b", "schema.registry.url": "http://x", "key.format": "xml"},
            "key.format=xml: one of json",
        ),
        (
            {"from": "a", "to": "b", "schema.registry.url": "http://x", "value.schema": "/no/file"},
            "value.schema",
        ),
    ],
)
def test_mistakes_are_named(texts: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Convert(Properties(texts))


def test_the_command_copies_a_topic(registry: Registry, client: RegistryClient) -> None:
    servers = registry.bootstrap_servers
    ensure_topics(servers)
    # Other tests of this broker have fixes of their own in the topic.
    fixes = [make_fix(number, device=f"of-the-command/{number % 3}") for number in range(20)]
    keys = {fix.device.encode() for fix in fixes}
    # Younger than what the topic's retention takes.
    sent = [time.time_ns() // 1_000_000 - number * 1000 for number in range(20)]
    producer = Producer(producer_config(servers, "test"))
    for fix, sent_ms in zip(fixes, sent, strict=True):
        key = fix.device.encode()
        producer.produce("location", encode(fix), key, timestamp=sent_ms)
        producer.produce("location", None, key, timestamp=sent_ms)
    assert producer.flush(60) == 0
    words = {"from": "location", "to": "copied", "schema.registry.url": registry.url}
    properties = [word for pair in words.items() for word in ("--property", "=".join(pair))]
    process = Process("streams", "run", "convert", "--bootstrap-servers", servers, *properties)
    try:
        deadline = time.monotonic() + 60
        while len(found := _of_keys(keys, read_topic(servers, "copied"))) < 2 * len(fixes):
            assert time.monotonic() < deadline, process.output
    finally:
        process.stop()
    reader = RegistryDeserializer(client, RecordPart.VALUE)
    values = [(each, reader.deserialize("copied", each.value())) for each in found]
    ids = {value["id"] for _, value in values if value is not None}
    assert ids == {fix.id for fix in fixes}
    # Searches by time and retention by time see the copy as they see the topic; so do tombstones.
    times = Counter(each.timestamp()[1] for each in found)
    assert times == dict.fromkeys(sent, 2)


def _of_keys(keys: set[bytes], messages: Iterable[Message]) -> list[Message]:
    return [each for each in messages if each.key() in keys]
