"""Results in other formats than JSON: what is written, what is refused, and at the start."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from consumers.streams.builder import stream
from consumers.streams.output_formats import OutputFormats, output_formats
from consumers.streams.processor import Topology
from consumers.streams.properties import Properties
from consumers.streams.registry import find
from consumers.streams.store import Store
from consumers.streams.stream_task import StreamTask
from consumers.streams.trips.messages import Trip, encode_trip
from consumers.worker.records import OutputRecord
from consumers.worker.results import SessionFailed
from tests.consumers.running import Process
from tests.consumers.streams.harness import NOW, Driven, make_fix, record_of
from tests.registry_process import Registry
from waylog.config import ConfigError
from waylog.kafka.clients import ensure_topics, producer_config
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import Topic
from waylog.messages import Fix, decode_rejected, encode
from waylog.serialization.registry_client import RegistryClient
from waylog.serialization.registry_serializer import RegistryDeserializer
from waylog.serialization.serializer import RecordPart

FAST = {
    "type": "record",
    "name": "Fast",
    "fields": [{"name": "device", "type": "string"}, {"name": "speed", "type": "double"}],
}
MODULE = """
from consumers.streams.builder import stream
from waylog.messages import Fix

topology = (
    stream("fast-fixes", "location", Fix)
    .map(lambda fix: {"device": fix.device, "speed": fix.speed}, dict)
    .to("fast")
)
"""


def fast() -> Topology:
    return (
        stream("fast-fixes", "location", Fix)
        .map(lambda fix: {"device": fix.device, "speed": fix.speed}, dict)
        .to("fast")
    )


def built_in(name: str) -> Topology:
    return find(name)(Properties({}))


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "fast.avsc"
    path.write_text(json.dumps(FAST))
    return path


@pytest.fixture
def client(registry: Registry) -> Iterator[RegistryClient]:
    client = RegistryClient(registry.url)
    yield client
    client.close()


Formats = Callable[..., OutputFormats]


@pytest.fixture
def formats(registry: Registry) -> Iterator[Formats]:
    made: list[OutputFormats] = []

    def of(
        topology: Topology, formats: dict[str, str], schemas: dict[str, str], **more: str
    ) -> OutputFormats:
        properties = {"schema.registry.url": registry.url}
        properties |= {name.replace("_", "."): text for name, text in more.items()}
        made.append(output_formats(formats, schemas, properties, [topology]))
        return made[-1]

    yield of
    for each in made:
        each.close()


def read(client: RegistryClient, record: Any) -> Any:
    deserializer = RegistryDeserializer(client, RecordPart.VALUE)
    return deserializer.deserialize(record.topic, record.value, record.headers or ())


@pytest.mark.parametrize("serializer", ["PrefixSchemaIdSerializer", "HeaderSchemaIdSerializer"])
def test_results_of_a_topic_have_its_format(
    formats: Formats, client: RegistryClient, schema: Path, serializer: str
) -> None:
    topology = fast()
    (processor,) = topology.processors()
    of = formats(
        *(topology, {"fast": "avro"}, {"fast": str(schema)}), value_schema_id_serializer=serializer
    )
    task: StreamTask[Any] = StreamTask(processor, "changelog", of)
    fixes = [make_fix(1, speed=7.5), make_fix(2), make_fix(3, speed=8.0)]
    outputs = task.process({0: [record_of(each) for each in fixes]}, {0: Store(Any)}, NOW)
    assert [each.topic for each in outputs] == ["fast", "error", "fast"]
    assert read(client, outputs[0]) == {"device": "ann/phone", "speed": 7.5}
    assert [name for name, _ in outputs[0].headers or ()] == (
        ["__value_schema_id"] if serializer.startswith("Header") else []
    )
    # A result that has no form in the format is kept, and those behind it are written.
    rejected = decode_rejected(outputs[1].value)
    assert rejected.reason.startswith("the value is no Fast") and rejected.source == "fast-fixes"
    assert json.loads(rejected.raw) == {"device": "ann/phone", "speed": None}
    assert (rejected.device, rejected.headers) == ("ann/phone", {"topic": "fast"})
    assert read(client, outputs[2])["speed"] == 8.0


def test_a_result_that_is_no_json_is_kept(formats: Formats, schema: Path) -> None:
    of = formats(fast(), {"fast": "avro"}, {"fast": str(schema)})
    for value in (b"\xff", b"null"):
        (output,) = of.encoded([OutputRecord("fast", None, b"\xff", value)], "mine", NOW)
        rejected = decode_rejected(output.value)
        assert (output.topic, rejected.source, rejected.raw) == ("error", "mine", value)


def test_messages_of_a_topology_have_the_schema_of_their_class(
    formats: Formats, client: RegistryClient
) -> None:
    of = formats(built_in("trips"), {"trip": "avro"}, {})
    trip = Trip(
        device="ann/phone", user="ann", start=1, end=2, ended=True, origin_lat=47.0,
        origin_lon=9.0, lat=48.0, lon=10.0, distance_m=5.0, moving_s=6.0, fastest=7.0,
    )  # fmt: skip
    key = b"ann/phone\n1"
    day = OutputRecord("trip-day", None, key, b"{}")
    record, other = of.encoded([OutputRecord("trip", None, key, encode_trip(trip)), day], "t", NOW)
    assert record.key == key and other == day
    assert read(client, record) == json.loads(encode_trip(trip))
    assert client.latest("trip-value").schema.name == "waylog.Trip"


def test_while_the_registry_is_away_records_come_again(schema: Path) -> None:
    topology = fast()
    url = {"schema.registry.url": "http://127.0.0.1:1"}
    of = output_formats({"fast": "avro"}, {"fast": str(schema)}, url, [topology])
    (processor,) = topology.processors()
    task: StreamTask[Any] = StreamTask(processor, "changelog", of)
    with pytest.raises(SessionFailed, match="does not answer"):
        task.process({0: [record_of(make_fix(1, speed=7.5))]}, {0: Store(Any)}, NOW)
    of.close()


def test_without_formats_results_are_json() -> None:
    (processor,) = fast().processors()
    (output,) = Driven(processor).send(make_fix(1, speed=7.5))
    assert json.loads(output.value) == {"device": "ann/phone", "speed": 7.5}


@pytest.mark.parametrize(
    ("formats", "schemas", "reason"),
    [
        ({"fast": "xml"}, {}, "fast=xml: one of json"),
        ({"fast": "auto"}, {}, "fast=auto: one of json"),
        ({"event": "avro"}, {}, "the platform reads this topic as JSON; a copy"),
        ({"slow": "avro"}, {}, r"no topology that is run writes this topic \(.*: fast\)"),
        ({"fast": "avro"}, {"fast": "/no/file"}, "--value-schema fast"),
        ({}, {"fast": "x.avsc"}, "--value-format fast=FORMAT is missing"),
    ],
)
def test_mistakes_are_named(formats: dict[str, str], schemas: dict[str, str], reason: str) -> None:
    url = {"schema.registry.url": "http://127.0.0.1:1"}
    with pytest.raises(ConfigError, match=reason):
        output_formats(formats, schemas, url, [fast()])


def test_a_mistake_closes_what_is_open_already(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[RegistryClient] = []
    close = RegistryClient.close

    def noted(client: RegistryClient) -> None:
        closed.append(client)
        close(client)

    monkeypatch.setattr(RegistryClient, "close", noted)
    url = {"schema.registry.url": "http://127.0.0.1:1"}
    with pytest.raises(ConfigError):
        output_formats({"fast": "avro", "nobody-writes-it": "json"}, {}, url, [fast()])
    assert len(closed) == 1


def test_topics_between_processors_stay_json() -> None:
    with pytest.raises(ConfigError, match=r"may have a format: heat-map\)"):
        output_formats({"streams-heat-map-counts": "json"}, {}, {}, [built_in("heat-map")])


def test_the_command_writes_avro(
    registry: Registry, client: RegistryClient, schema: Path, tmp_path: Path
) -> None:
    servers = registry.bootstrap_servers
    ensure_topics(servers)
    ensure_topics(servers, [Topic("fast", 1, {})])
    module = tmp_path / "fast_fixes.py"
    module.write_text(MODULE)
    producer = Producer(producer_config(servers, "test"))
    fixes = [make_fix(number, device=f"fast/{number}", speed=1.0 * number) for number in range(5)]
    for fix in fixes:
        producer.produce("location", encode(fix), fix.device.encode())
    assert producer.flush(60) == 0
    process = Process(
        *("streams", "run", "--module", str(module), "--bootstrap-servers", servers),
        *("--value-format", "fast=avro", "--value-schema", f"fast={schema}"),
        *("--schema-registry", registry.url),
    )
    try:
        deadline = time.monotonic() + 60
        while len(found := list(read_topic(servers, "fast"))) < len(fixes):
            assert time.monotonic() < deadline, process.output
    finally:
        process.stop()
    reader = RegistryDeserializer(client, RecordPart.VALUE)
    speeds = {
        value["device"]: value["speed"]
        for value in (reader.deserialize("fast", each.value()) for each in found)
    }
    assert {fix.device: fix.speed for fix in fixes}.items() <= speeds.items()
