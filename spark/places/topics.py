"""Places in the log: topic `place` has the computed places, `place-edit` the edits of users."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Message

from spark.places.schema import FILE
from waylog.history.place_edits import PlaceEdit
from waylog.history.storage import Storage
from waylog.kafka.clients import LogUnreachable, ensure_topics, producer_config
from waylog.kafka.errors import not_stored_text
from waylog.kafka.librdkafka_producer import LibrdkafkaProducer
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import PLACE, PLACE_EDIT, TOPICS
from waylog.malformed import MALFORMED
from waylog.sealing.sealing import key_ring_of_writer, opener

logger = logging.getLogger(__name__)


class DevicePlacesRecord(msgspec.Struct, kw_only=True):
    """The favourite places of one device: a record of topic `place`, key = device."""

    device: str
    user: str
    computed: int  # ms since 1970
    # As returned by `GET /v1/devices/{device}/places`, with more members.
    places: list[dict[str, Any]]


def read_edits(servers: str) -> list[PlaceEdit]:
    """Return the newest edit of each place, without unreadable ones; raises LogUnreachable."""
    newest: dict[bytes, PlaceEdit] = {}
    opened = opener(servers)
    for record in opened(list(read_topic(servers, PLACE_EDIT))):
        key, value = record.key(), record.value()
        if key is None:
            continue
        if value is None:
            newest.pop(key, None)
            continue
        try:
            newest[key] = msgspec.json.decode(value, type=PlaceEdit)
        except MALFORMED as error:
            logger.warning("a record of %s is no edit: %s", PLACE_EDIT, error)
    return list(newest.values())


def append_edit(servers: str, edit: PlaceEdit) -> None:
    """Write a user's edit to the log; raises LogUnreachable, and ConfigError without its key."""
    _append(servers, PLACE_EDIT, [(edit.key, msgspec.json.encode(edit))])


def publish_places(servers: str, places: str, devices: Sequence[str]) -> None:
    """Append the places of some devices to topic `place`; raises LogUnreachable.

    A device without places gets a tombstone.
    """
    if not devices:
        return
    table = Storage(places).read_parquet(FILE)
    table = table.filter(pc.is_in(table["device"], pa.array(devices, pa.string())))
    by_device: dict[str, list[dict[str, Any]]] = {device: [] for device in devices}
    for row in table.to_pylist():
        by_device[row["device"]].append(row)
    now = time.time_ns() // 1_000_000
    records: list[tuple[bytes, bytes | None]] = []
    for device, rows in by_device.items():
        record = DevicePlacesRecord(
            device=device, user=device.partition("/")[0], computed=now, places=rows
        )
        records.append((device.encode(), msgspec.json.encode(record) if rows else None))
    _append(servers, PLACE, records)


def _append(servers: str, topic: str, records: Sequence[tuple[bytes, bytes | None]]) -> None:
    # A log that was created by an older version lacks this topic.
    ensure_topics(servers, [each for each in TOPICS if each.name == topic], timeout_s=10.0)
    keys = key_ring_of_writer(servers)
    producer = LibrdkafkaProducer(producer_config(servers, "waylog-places"))
    failures: list[str] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(not_stored_text(error, topic))

    for key, value in records:
        sealed = value
        if keys is not None and value is not None:
            sealed = keys.seal_value(topic, value, key)
        while True:
            try:
                producer.produce(topic, sealed, key, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.1)
            except KafkaException as error:
                failures.append(not_stored_text(error, topic))
                break
        producer.poll(0)
    waiting = producer.finish(30.0, topic)
    if waiting or failures:
        raise LogUnreachable(f"topic {topic} did not take everything: {waiting or failures[0]}")
