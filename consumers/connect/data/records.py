"""Records between the log, transforms and connectors.

They never change; `changed` makes another one. Values come with a schema or without (None). A
record of plain strings costs well under a microsecond.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from consumers.connect.data.schemas import Schema


class Header(NamedTuple):
    """A header of a record; several may have the same key."""

    key: str
    value: Any
    schema: Schema | None = None


class ConnectRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A record as transforms see it, `org.apache.kafka.connect.connector.ConnectRecord`."""

    topic: str
    partition: int | None = None  # of the topic; None: chosen by the key
    key: Any = None
    key_schema: Schema | None = None
    value: Any = None
    value_schema: Schema | None = None
    timestamp: int | None = None  # ms since 1970-01-01 UTC
    headers: tuple[Header, ...] = ()


class SourceRecord(ConnectRecord, frozen=True, kw_only=True, gc=False):
    """A record that a source connector has read from another system."""

    source_partition: Mapping[str, Any] | None = None  # which part of that system, as JSON
    source_offset: Mapping[str, Any] | None = None  # where in that part, as JSON


#: Topic, partition and offset.
Place = tuple[str, int | None, int]


class SinkRecord(ConnectRecord, frozen=True, kw_only=True, gc=False):
    """A record that a sink connector writes to another system."""

    offset: int
    timestamp_type: str = "CREATE_TIME"  # or LOG_APPEND_TIME, NO_TIMESTAMP_TYPE
    # Where the log has it, whatever transforms have made of topic and partition (KIP-793).
    original_topic: str
    original_partition: int | None
    original_offset: int

    @property
    def place(self) -> Place:
        """Where the log has the record."""
        return (self.original_topic, self.original_partition, self.original_offset)


Record = TypeVar("Record", bound=ConnectRecord)


def changed(record: Record, **changes: Any) -> Record:
    """Return the record with some members changed."""
    return msgspec.structs.replace(record, **changes)
