"""How far source connectors have read: an offset for each of their source partitions.

A source partition and its offset are JSON objects whose members are texts, numbers, booleans or
null. Partitions are compared by their members, in whatever order they are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
from confluent_kafka import Producer

from consumers.connect.data.exceptions import DataException

Partition = Mapping[str, Any]
Offset = Mapping[str, Any]

_encode: Final = msgspec.json.Encoder(order="sorted").encode
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode
_PRIMITIVES: Final = (str, bool, int, float, type(None))


def partition_key(partition: Partition) -> bytes:
    """Return the JSON by which partitions are compared."""
    return _encode(partition)


def partition_of(key: bytes) -> dict[str, Any]:
    """Return the partition of a key."""
    return _decode(key)


def check_offset(value: object) -> None:
    """Raise DataException for what is neither None nor an object with primitive members."""
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise DataException("Offsets must be specified as a Map")
    for name, member in value.items():
        if not isinstance(name, str):
            raise DataException("Offsets may only use String keys")
        if not isinstance(member, _PRIMITIVES):
            raise DataException(
                "Offsets may only contain primitive types as values, but field "
                f"{name} contains {type(member).__name__}"
            )


class OffsetTable:
    """Offsets by connector and source partition."""

    def __init__(self) -> None:
        self._offsets: Final[dict[str, dict[bytes, dict[str, Any]]]] = {}

    def get(self, connector: str, partition: Partition) -> dict[str, Any] | None:
        """Return the offset of a partition, None if there is none."""
        found = self._offsets.get(connector, {}).get(partition_key(partition))
        return None if found is None else dict(found)

    def all(self, connector: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return the partitions of a connector that have an offset, with it."""
        found = self._offsets.get(connector, {})
        return [(partition_of(key), dict(offset)) for key, offset in found.items()]

    def connectors(self) -> list[str]:
        """Return the connectors that have offsets."""
        return list(self._offsets)

    def put(self, connector: str, offsets: Iterable[tuple[Partition, Offset | None]]) -> None:
        """Set offsets; None removes one."""
        table = self._offsets.setdefault(connector, {})
        for partition, offset in offsets:
            key = partition_key(partition)
            if offset is None:
                table.pop(key, None)
            else:
                table[key] = dict(offset)
        if not table:
            del self._offsets[connector]


class OffsetStore(Protocol):
    """Keeps offsets. Methods may be called in any thread, and may block."""

    def refresh(self) -> None:
        """Read what other workers have stored; raises ConnectException."""

    def get(self, connector: str, partition: Partition) -> dict[str, Any] | None:
        """Return the offset of a partition, None if there is none."""

    def all(self, connector: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return the partitions of a connector that have an offset, with it."""

    def put(self, connector: str, offsets: Sequence[tuple[Partition, Offset | None]]) -> None:
        """Store offsets, None for a partition to be forgotten; they are durable when it returns.

        Raises ConnectException; then none of them counts.
        """

    def produce(
        self,
        producer: Producer,
        connector: str,
        offsets: Sequence[tuple[Partition, Offset | None]],
    ) -> None:
        """Add offsets to the transaction of a producer; raises ConnectException."""


class StoredOffsetReader:
    """Reads the offsets of one connector (`OffsetReader` of plugins)."""

    def __init__(self, store: OffsetStore, connector: str) -> None:
        self._store: Final = store
        self._connector: Final = connector

    def offset(self, partition: Partition) -> dict[str, Any] | None:
        """Return the offset of a source partition, None if there is none."""
        self._store.refresh()
        return self._store.get(self._connector, partition)

    def offsets(
        self, partitions: Sequence[Partition]
    ) -> list[tuple[Partition, dict[str, Any] | None]]:
        """Return the partitions, each with its offset."""
        self._store.refresh()
        return [(each, self._store.get(self._connector, each)) for each in partitions]
