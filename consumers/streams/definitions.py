"""Writes definitions to compacted topics that a GlobalTable follows."""

from __future__ import annotations

from collections.abc import Mapping

from waylog.kafka.clients import ensure_topics
from waylog.kafka.librdkafka_producer import append_records
from waylog.kafka.topics import Topic
from waylog.sealing.sealing import key_ring_of_writer


def write_definitions(
    bootstrap_servers: str, topic: Topic, definitions: Mapping[str, bytes | None], what: str
) -> None:
    """Write definitions by their keys, sealed where values are; None removes one.

    Creates the topic. Raises LogUnreachable, whose message says `what` one of them is, and
    ConfigError without the master key of a log whose values are sealed.
    """
    ensure_topics(bootstrap_servers, [topic], timeout_s=10.0)
    ring = key_ring_of_writer(bootstrap_servers)
    records: list[tuple[str, bytes, bytes | None]] = []
    for key, value in definitions.items():
        name = key.encode()
        sealed = value
        if ring is not None and value is not None:
            sealed = ring.seal_value(topic.name, value, name)
        records.append((topic.name, name, sealed))
    append_records(bootstrap_servers, records, what, client_id="waylog-streams")
