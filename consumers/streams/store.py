"""The keyed values of one partition, and their changelog."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from consumers.worker.records import StateRecord
from waylog.malformed import MALFORMED

logger = logging.getLogger(__name__)

ValueT = TypeVar("ValueT")

#: Bytes of a record's key and value together. A topic takes a megabyte unless it is told otherwise,
#: and a record that it refuses would hold up all others.
RECORD_BYTES_MAX: Final = 900_000


class Store(Generic[ValueT]):
    """A dictionary whose changes become records of a changelog topic.

    Whoever gets the partition next restores the values from there, also on another machine. A
    value is written when it was put, not when it was changed in place; of several puts of a key in
    one batch only the last one. Values are msgspec structs or what else msgspec encodes.
    """

    def __init__(self, value_type: type[ValueT]) -> None:
        self._values: dict[str, ValueT] = {}
        # In the order of the first put, which makes the changelog the same for the same batch.
        self._changed: dict[str, None] = {}
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(value_type).decode
        #: The largest event time of the partition, in ms since 1970; Kafka Streams' stream time.
        #: Not restored: after a restart it begins again with the records that come.
        self.stream_time: int = 0
        #: The stream time from which on the store is searched for what is over; not restored.
        self.sweep_at: int = 0

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def get(self, key: str) -> ValueT | None:
        """Return the value of a key, None if there is none."""
        return self._values.get(key)

    def put(self, key: str, value: ValueT) -> None:
        """Set the value of a key."""
        self._values[key] = value
        self._changed[key] = None

    def delete(self, key: str) -> None:
        """Remove a key, if it is there; the changelog gets a tombstone."""
        if self._values.pop(key, None) is not None:
            self._changed[key] = None

    def items(self) -> Iterator[tuple[str, ValueT]]:
        """Yield keys and values; the store must not change meanwhile."""
        return iter(self._values.items())

    def keys(self) -> list[str]:
        """Return all keys; the store may change while they are used."""
        return list(self._values)

    def take_changes(self) -> list[StateRecord]:
        """Return what the changelog has to get, and forget that it has changed.

        A value that is too large for a record is deleted, with a line in the log.
        """
        if not self._changed:
            return []
        records = []
        values, encode = self._values, self._encode
        for key in self._changed:
            name = key.encode()
            value = values.get(key)
            encoded = None if value is None else encode(value)
            if encoded is not None and len(encoded) + len(name) > RECORD_BYTES_MAX:
                logger.error("a state of %d bytes is dropped: no record can hold it", len(encoded))
                del values[key]
                encoded = None
            records.append(StateRecord(name, encoded))
        self._changed.clear()
        return records

    def restore(self, records: Sequence[StateRecord]) -> None:
        """Take records of the changelog; those that are no value of ours are left out."""
        for key, value in records:
            if key is None:
                continue
            try:
                name = key.decode()
                if value is None:
                    self._values.pop(name, None)
                else:
                    self._values[name] = self._decode(value)
            except MALFORMED:
                logger.warning("a record of a changelog is no state of ours and is left out")
