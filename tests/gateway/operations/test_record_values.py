"""Keys and values as administrators are shown them."""

from __future__ import annotations

import json
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gateway.operations.record_values import ValueReader
from tests.consumers.running import Broker
from tests.registry_process import registry_on
from waylog.kafka.topics import VALUE_KEY
from waylog.serialization.by_name import AVRO, URL, close_serde, make_serde
from waylog.serialization.serializer import RecordPart

TRIP = {
    "type": "record",
    "name": "Trip",
    "fields": [{"name": "city", "type": "string"}, {"name": "raw", "type": "bytes"}],
}


def test_a_value_is_decoded_by_its_schema_of_the_registry(
    gateway_broker: Broker, tmp_path: Path
) -> None:
    with registry_on(gateway_broker.address, tmp_path) as registry:
        properties = {URL: registry.url}
        writer = make_serde(AVRO, RecordPart.VALUE, properties | {"schema": json.dumps(TRIP)})
        written = writer.serialize("trips", {"city": "Vaduz", "raw": b"\xff"}).data
        assert written is not None
        close_serde(writer)
        reader = ValueReader(properties)
        shown = reader.shown("trips", written, 2048)
        assert shown.kind == "schema" and json.loads(shown.text)["city"] == "Vaduz"
        assert reader.shown("trips", written, 5).cut
        # A schema that the registry lacks, bytes that are not the schema's.
        unknown = reader.shown("trips", b"\0\0\0\xff\xff" + written[5:], 2048)
        assert unknown.kind == "bytes" and unknown.note
        broken = reader.shown("trips", written[:6], 2048)
        assert broken.kind == "bytes" and broken.note
        assert reader.shown("trips", b'{"city":"Wien"}', 2048).kind == "json"
    # The registry is away, and is asked about the first of many records alone.
    fresh = ValueReader(properties)
    began = time.monotonic()
    notes = {fresh.shown("trips", written, 2048).note for _ in range(50)}
    assert all(notes) and len(notes) <= 2
    assert time.monotonic() - began < 60
    reader.close()
    fresh.close()


def test_without_a_registry_a_value_with_a_schema_is_bytes() -> None:
    shown = ValueReader().shown("trips", b"\0\0\0\0\1abc", 2048)
    assert shown.kind == "bytes" and "--schema-registry" in shown.note


def test_keys_of_sealed_values_are_not_shown() -> None:
    shown = ValueReader().shown(VALUE_KEY, b"wrapped key", 2048)
    assert (shown.kind, shown.text) == ("sealed", "")


@given(st.binary(max_size=300), st.integers(min_value=0, max_value=100))
def test_whatever_bytes_come_are_shown_within_bounds(data: bytes, bytes_max: int) -> None:
    shown = ValueReader().shown("any", data, bytes_max)
    assert shown.bytes == len(data)
    # A line of a dump has five letters for a byte.
    assert len(shown.text) <= 2 * bytes_max + 80
    if shown.kind in ("json", "text") and not shown.cut:
        assert shown.text.encode() == data
