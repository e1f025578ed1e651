"""A copy of a copy is what a direct copy is, whichever formats it has been through."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from consumers.streams.convert.conversion import MESSAGES
from consumers.streams.heat_map.messages import CellCount
from consumers.streams.stream_task import StreamTask
from consumers.streams.trips.messages import Trip, TripDay
from consumers.worker.records import OutputRecord
from tests.consumers.streams.convert.copies import Copies, copied
from tests.consumers.streams.harness import Record, make_fix
from tests.registry_process import Registry
from waylog.kafka.topics import ADDRESS, ERROR, EVENT, HEAT_MAP, LOCATION, TRIP, TRIP_DAY
from waylog.messages import Address, Event, Rejected
from waylog.serialization.message_schemas import MessageSchema

FORMATS = ("json", "avro", "protobuf", "json-schema")
ATTRIBUTES = {"mode": "car", "legs": [1, {"a": None}], "text": '{"b":1}', "empty": {}}
_TIME = 1_700_000_000_123
_OF_DEVICE: dict[str, Any] = {"device": "ann/phone", "user": "ann"}
#: Each message with all members, and with no more than it needs.
EXAMPLES: dict[str, tuple[msgspec.Struct, msgspec.Struct]] = {
    LOCATION: (
        make_fix(
            1, accuracy=5.0, altitude=-3.5, vertical_accuracy=2.0, speed=0.0, course=359.5,
            battery=80.0, charging=False, trigger="p", source="owntracks", attributes=ATTRIBUTES,
        ),
        make_fix(2, attributes={}),
    ),
    ADDRESS: (
        Address(
            device="ann/phone", fix_id="1", time=_TIME, lat=47.1, lon=9.5, display_name="Vaduz",
            address={"city": "Vaduz"}, distance=1.5, resolved=_TIME, index_version="7",
        ),
        Address(
            device="ann/phone", fix_id="1", time=_TIME, lat=0.0, lon=0.0, display_name="",
            address={},
        ),
    ),
    EVENT: (
        Event(
            id="1", type="visit", time=_TIME, received=_TIME, source="x", attributes=ATTRIBUTES,
            **_OF_DEVICE,
        ),
        Event(id="1", type="visit", time=_TIME, received=_TIME, **_OF_DEVICE),
    ),
    ERROR: (
        Rejected(
            reason="r", source="s", time=_TIME, raw=b"\0\xff{}AAAA", headers={"User-Agent": "x"},
            **_OF_DEVICE,
        ),
        Rejected(reason="", source="", time=0, raw=b"AAAA"),
    ),
    TRIP: (
        Trip(
            start=_TIME, end=_TIME + 1, ended=True, origin_lat=1.0, origin_lon=2.0, lat=3.0,
            lon=4.0, distance_m=5.5, moving_s=6.0, fastest=7.0, **_OF_DEVICE,
        ),
        Trip(
            start=0, end=0, ended=False, origin_lat=0.0, origin_lon=0.0, lat=0.0, lon=0.0,
            distance_m=0.0, moving_s=0.0, fastest=0.0, **_OF_DEVICE,
        ),
    ),
    TRIP_DAY: (
        TripDay(
            date="2026-11-28", time_zone="Europe/Vaduz", trips=2, distance_m=1.5, moving_s=2.0,
            fastest=3.0, unseen_m=4.0, **_OF_DEVICE,
        ),
        TripDay(
            date="", time_zone="", trips=0, distance_m=0.0, moving_s=0.0, fastest=0.0,
            unseen_m=0.0, **_OF_DEVICE,
        ),
    ),
    HEAT_MAP: (
        CellCount(cell="8a", window_s=60, start=_TIME, fixes=1 << 60, devices=3),
        CellCount(cell="8a", window_s=60, start=0, fixes=0, devices=0),
    ),
}  # fmt: skip


def schema_text(topic: str, format_: str) -> str | None:
    """Return the text of a schema of a topic's messages, as an operator may have it."""
    messages = MessageSchema(MESSAGES[topic])
    if format_ == "protobuf":
        fields = json.loads(messages.text)["fields"]
        lines = [f"{_proto_type(each['type'])} {each['name']} = {number};" for number, each in
                 enumerate(fields, 1)]  # fmt: skip
        name = MESSAGES[topic].__name__
        return f'syntax = "proto3"; package waylog; message {name} {{ {" ".join(lines)} }}'
    if format_ == "json-schema":
        return json.dumps({"title": messages.name, "type": "object"})
    text: str = messages.text
    return text if format_ == "avro" else None


def _proto_type(avro: Any) -> str:
    if isinstance(avro, list):
        found = _proto_type(avro[1])
        return found if found.startswith("map") else f"optional {found}"
    if isinstance(avro, dict):
        return "map<string, string>" if avro["type"] == "map" else "int64"
    assert isinstance(avro, str)
    return {"long": "int64", "boolean": "bool"}.get(avro, avro)


class Chains:
    """Copies of topics of the platform, each made once: clients of a registry take their time."""

    def __init__(self, url: str, folder: Path) -> None:
        self._copies = Copies(url)
        self._folder = folder
        self._found: dict[tuple[str, ...], list[Record]] = {}

    def close(self) -> None:
        self._copies.close()

    def copied(self, topic: str, *formats: str) -> list[Record]:
        """Return the examples of a topic after copies through these formats."""
        if not formats:
            return [Record(msgspec.json.encode(each), b"ann/phone") for each in EXAMPLES[topic]]
        key = (topic, *formats)
        if key not in self._found:
            *before, format_ = formats
            # The same name each time: a subject takes the registry half a second.
            target = f"{topic}-{format_}" + ("-again" if before == [format_] else "")
            task = self._task("-".join((topic, *before)), target, topic, formats)
            self._found[key] = records_of(copied(task, *self.copied(topic, *before)), format_)
        return self._found[key]

    def copied_back(self, topic: str, format_: str) -> list[Record]:
        """Return what comes back to a topic from a copy."""
        task = self._copies(f"{topic}-{format_}", topic, value_format="json")
        return records_of(copied(task, *self.copied(topic, format_)))

    def _task(
        self, source: str, target: str, topic: str, formats: tuple[str, ...]
    ) -> StreamTask[int]:
        *before, format_ = formats
        more = {"value_format": format_}
        # JSON names no schema: that of its copy in Avro has to be told.
        if format_ != "avro" or before == ["json"]:
            text = schema_text(topic, format_)
            if text is not None:
                path = self._folder / f"{topic}-{format_}.schema"
                path.write_text(text)
                more["value_schema"] = str(path)
        return self._copies(source, target, **more)


def records_of(outputs: Sequence[OutputRecord], format_: str = "json") -> list[Record]:
    """Return outputs as the next copy reads them; those that were refused are JSON, too."""
    for each in outputs:
        names_schema = (each.value or b"").startswith(b"\0")
        assert names_schema == (format_ != "json"), each.value
    return [Record(each.value, each.key, headers=each.headers) for each in outputs]


def values_of(records: Sequence[Record]) -> list[tuple[bytes | None, Any]]:
    return [(each.value(), each.headers()) for each in records]


@pytest.fixture(scope="module")
def chains(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chains]:
    made = Chains(registry.url, tmp_path_factory.mktemp("schemas"))
    yield made
    made.close()


def test_every_class_of_messages_has_examples() -> None:
    assert EXAMPLES.keys() == MESSAGES.keys()
    for topic, (whole, _) in EXAMPLES.items():
        assert type(whole) is MESSAGES[topic]
        assert None not in msgspec.structs.asdict(whole).values()


@pytest.mark.parametrize("topic", EXAMPLES)
@pytest.mark.parametrize("first", FORMATS)
@pytest.mark.parametrize("second", FORMATS)
def test_a_copy_of_a_copy_is_what_a_direct_copy_is(
    chains: Chains, topic: str, first: str, second: str
) -> None:
    direct = values_of(chains.copied(topic, second))
    assert values_of(chains.copied(topic, first, second)) == direct
    if second == "json":
        assert direct == values_of(chains.copied(topic))


@pytest.mark.parametrize("topic", EXAMPLES)
@pytest.mark.parametrize("first", FORMATS)
def test_a_copy_can_be_copied_back(chains: Chains, topic: str, first: str) -> None:
    assert values_of(chains.copied_back(topic, first)) == values_of(chains.copied(topic))


TRIPS_OF_OTHERS = {
    "protobuf": """syntax = "proto3"; package other; message Trip {
        int64 id = 1; bytes seal = 2; repeated uint64 stops = 3; map<string, Trip> legs = 4;
        optional double km = 5; }""",
    "avro": """{"type": "record", "name": "Trip", "namespace": "other", "fields": [
        {"name": "id", "type": "long"}, {"name": "seal", "type": "bytes"},
        {"name": "stops", "type": {"type": "array", "items": "long"}},
        {"name": "legs", "type": {"type": "map", "values": "Trip"}},
        {"name": "km", "type": ["null", "double"], "default": null}]}""",
}


def test_numbers_and_bytes_of_other_topics_stay_such(registry: Registry, tmp_path: Path) -> None:
    """64-bit integers and bytes are texts in Protobuf's JSON, which Avro would refuse."""
    leg = {"id": 2, "seal": "", "stops": [], "legs": {}}
    value = {"id": 1 << 60, "seal": "QUFBQQ==", "stops": [1 << 40], "legs": {"x": leg}, "km": 1.5}
    copies = Copies(registry.url)
    try:
        formats = ("protobuf", "avro", "protobuf", "json")
        record, source = Record(msgspec.json.encode(value)), "trips-of-others"
        for number, format_ in enumerate(formats):
            more = {"value_format": format_}
            if format_ in TRIPS_OF_OTHERS:
                (path := tmp_path / format_).write_text(TRIPS_OF_OTHERS[format_])
                more["value_schema"] = str(path)
            task = copies(source, source := f"trips-{number}", **more)
            (record,) = records_of(copied(task, record), format_)
        assert json.loads(record.value() or b"") == value
    finally:
        copies.close()


def test_what_has_the_name_of_a_message_and_is_none_is_copied_as_it_is(
    registry: Registry, tmp_path: Path
) -> None:
    """Somebody keeps some of the fields alone, or has a record of that name that is another one."""
    schema = json.loads(MessageSchema(MESSAGES[LOCATION]).text)
    schema["fields"] = [each for each in schema["fields"] if each["name"] in ("id", "attributes")]
    (path := tmp_path / "some.avsc").write_text(json.dumps(schema))
    copies = Copies(registry.url)
    try:
        there = copies("some", "some-avro", value_schema=str(path))
        text = b'{"id":"1","attributes":"{}"}'
        (record,) = records_of(copied(there, Record(text)), "avro")
        (again,) = records_of(copied(copies("some-avro", "some-json", value_format="json"), record))
        assert again.value() == text
    finally:
        copies.close()
