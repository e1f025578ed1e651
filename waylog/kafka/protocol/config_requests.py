"""DescribeConfigs 1, which Apache Kafka 1.1 to 4.x and broker_core serve: settings of topics."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from waylog.kafka.protocol.requests import INT16, INT32, Reader, text

_TOPIC: Final = struct.pack(">b", 2)
_NO_SYNONYMS: Final = b"\0"
_INT8: Final = struct.Struct(">b")


def describe_topics(topics: Sequence[str], names: Sequence[str]) -> list[bytes]:
    """Ask for settings of topics."""
    parts = [INT32.pack(len(topics))]
    for topic in topics:
        parts += [_TOPIC, text(topic), INT32.pack(len(names)), *map(text, names)]
    return [*parts, _NO_SYNONYMS]


def read_topics(data: bytes) -> dict[str, dict[str, str]]:
    """Parse the response: settings by topic; raises MalformedAnswer.

    Topics whose settings the broker does not tell, for whatever reason, are left out.
    """
    reader = Reader(data)
    reader.unpack(INT32)  # throttle time
    topics: dict[str, dict[str, str]] = {}
    for _ in range(reader.count()):
        (error,) = reader.unpack(INT16)
        reader.text()  # message
        reader.unpack(_INT8)  # type
        topic = reader.text()
        settings: dict[str, str] = {}
        for _ in range(reader.count()):
            name = reader.text()
            settings[name] = reader.text()
            for _ in range(3):  # read only, source, sensitive
                reader.unpack(_INT8)
            for _ in range(reader.count()):
                reader.text()
                reader.text()
                reader.unpack(_INT8)
        if not error:
            topics[topic] = settings
    return topics
