"""The records of the topic of offsets, `offset.storage.topic`, in Kafka Connect's form.

A key is the JSON array of a connector and its source partition, a value the JSON of the offset.
Java writes the members of a partition in an order of its own. A key that was read is written again
byte for byte: another one for the same partition would be a second record for compaction, perhaps
in another partition of the topic.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from consumers.connect.storage.offsets import Offset, OffsetTable, Partition, partition_key
from waylog.malformed import MALFORMED

logger = logging.getLogger(__name__)

_encode: Final = msgspec.json.Encoder().encode


class OffsetRecord(NamedTuple):
    """A record to write; a value of None forgets the offset."""

    key: bytes
    value: bytes | None


class OffsetTopic:
    """The offsets of all records so far."""

    def __init__(self) -> None:
        self.table: Final = OffsetTable()
        self._keys: Final[dict[tuple[str, bytes], bytes]] = {}

    def read(self, key: bytes | None, value: bytes | None) -> None:
        """Take a record; a damaged one is left out with a line in the log."""
        try:
            connector, partition = _parsed_key(key or b"")
            offset = None if value is None else msgspec.json.decode(value)
            if offset is not None and not isinstance(offset, dict):
                raise ValueError("an offset is a JSON object")
        except MALFORMED as error:
            logger.error("offsets: the record with key %r is left out: %s", key, error)
            return
        self._keys[connector, partition_key(partition)] = key or b""
        self.table.put(connector, [(partition, offset)])

    def records(
        self, connector: str, offsets: Sequence[tuple[Partition, Offset | None]]
    ) -> list[OffsetRecord]:
        """Return the records that store offsets."""
        return [
            OffsetRecord(
                self._keys.get((connector, partition_key(partition)))
                or _encode([connector, dict(partition)]),
                None if offset is None else _encode(dict(offset)),
            )
            for partition, offset in offsets
        ]


def _parsed_key(key: bytes) -> tuple[str, dict[str, Any]]:
    parsed: Any = msgspec.json.decode(key)
    match parsed:
        case [str() as connector, dict() as partition]:
            return connector, partition
    raise ValueError("a key is a JSON array of a connector and a source partition")
