"""Reads and writes the definitions in topic `geofence`."""

from __future__ import annotations

from collections.abc import Mapping

from consumers.streams.definitions import write_definitions
from waylog.geofences.definition import Geofence, encode_geofence
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import GEOFENCE, GEOFENCE_TOPIC
from waylog.sealing.sealing import opener


def read_definitions(bootstrap_servers: str) -> dict[str, bytes]:
    """Return the values of all definitions by their keys, as they are in the log.

    Raises LogUnreachable.
    """
    opened = opener(bootstrap_servers)
    found: dict[str, bytes] = {}
    for message in opened(list(read_topic(bootstrap_servers, GEOFENCE))):
        key, value = (message.key() or b"").decode("utf-8", "replace"), message.value()
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found


def write_fences(bootstrap_servers: str, fences: Mapping[str, Geofence | None]) -> None:
    """Write definitions by their keys, None removes one; raises LogUnreachable."""
    encoded = {
        key: None if fence is None else encode_geofence(fence) for key, fence in fences.items()
    }
    write_definitions(bootstrap_servers, GEOFENCE_TOPIC, encoded, "a geofence")
