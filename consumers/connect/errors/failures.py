"""A record that has failed in a task."""

from __future__ import annotations

from typing import NamedTuple

from consumers.connect.data.records import SourceRecord
from consumers.connect.errors.stages import Stage


class ConsumedRecord(NamedTuple):
    """A record as a sink connector's task has consumed it, before any converter."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int | None = None  # ms since 1970-01-01 UTC
    timestamp_type: str = "CREATE_TIME"
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Failure(NamedTuple):
    """What failed, where, and by which error."""

    record: ConsumedRecord | SourceRecord | None  # None: no single record, such as a poll
    stage: Stage
    class_name: str  # of the converter, transform or connector, as Kafka Connect names it
    error: Exception
