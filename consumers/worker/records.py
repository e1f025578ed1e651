"""Records as the logic of a consumer reads and writes them."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, cast

import msgspec
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE


class InputRecord(Protocol):
    """A record of the log; confluent_kafka.Message is one."""

    def topic(self) -> str | None:
        """Return the topic that the record was read from."""

    def partition(self) -> int | None:
        """Return the partition that the record was read from."""

    def offset(self) -> int | None:
        """Return the record's offset in the partition."""

    def key(self) -> bytes | None:
        """Return the key, None if there is none."""

    def value(self) -> bytes | None:
        """Return the value, None for a tombstone."""

    def headers(self) -> Any:
        """Return the headers as pairs of name and bytes, None if there are none."""

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of the record's timestamp, and the timestamp, in ms since 1970."""


class StateRecord(NamedTuple):
    """A record of a state topic. Without a value it is a tombstone, which deletes its key."""

    key: bytes | None
    value: bytes | None


class OutputRecord(msgspec.Struct, frozen=True, gc=False):
    """A record to be written. One is made of each fix: a named tuple would cost four times this."""

    topic: str
    partition: int | None  # None: chosen by the key
    key: bytes | None
    value: bytes  # a copy of a topic has None for tombstones, see `copied`
    headers: list[tuple[str, bytes]] | None = None
    timestamp: int | None = None  # ms since 1970; None: when it is written


def copied(
    record: InputRecord,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes]] | None,
) -> OutputRecord:
    """Return the copy of a record in another topic, with the record's timestamp.

    A tombstone stays one.
    """
    kind, timestamp = record.timestamp()
    known = kind != TIMESTAMP_NOT_AVAILABLE and timestamp >= 0
    return OutputRecord(topic, None, key, cast(bytes, value), headers, timestamp if known else None)
