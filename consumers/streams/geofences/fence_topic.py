"""Reads and writes the definitions in topic `geofence`."""

from __future__ import annotations

from collections.abc import Mapping

from consumers.streams.geofences.definition import Geofence, encode_geofence
from waylog.history.erasures import append_records
from waylog.kafka.clients import ensure_topics
from waylog.kafka.topic_reader import read_topic
from waylog.kafka.topics import GEOFENCE, GEOFENCE_TOPIC
from waylog.sealing.sealing import opener, shared_key_ring


def read_definitions(bootstrap_servers: str) -> dict[str, bytes]:
    """Return the values of all definitions by their keys, as they are in the log.

    Raises LogUnreachable.
    """
    opened = opener(bootstrap_servers) or list
    found: dict[str, bytes] = {}
    for message in opened(list(read_topic(bootstrap_servers, GEOFENCE))):
        key, value = (message.key() or b"").decode("utf-8", "replace"), message.value()
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found


def write_definitions(bootstrap_servers: str, fences: Mapping[str, Geofence | None]) -> None:
    """Write definitions by their keys, None removes one; raises LogUnreachable."""
    ensure_topics(bootstrap_servers, [GEOFENCE_TOPIC], timeout_s=10.0)
    ring = shared_key_ring(bootstrap_servers)
    if ring is not None:
        ring.catch_up()
    records: list[tuple[str, bytes, bytes | None]] = []
    for key, fence in fences.items():
        name = key.encode()
        value = None if fence is None else encode_geofence(fence)
        if ring is not None and value is not None:
            value = ring.seal_value(GEOFENCE, value, name)
        records.append((GEOFENCE, name, value))
    append_records(bootstrap_servers, records, "a geofence")
