"""The offsets of a standalone worker in a file: `offset.storage.file.filename`.

The file is JSON. A change is written to a file beside it, which takes its place once it is on the
disk; so the file has all of a change or nothing. A file that cannot be read is left as it is, and
the worker does not start: with no offsets all sources would be read from their beginning. Kafka's
worker writes a form of Java's own here, which is refused, too.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from confluent_kafka import Producer

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.storage.offsets import Offset, OffsetTable, Partition
from waylog.folders import sync_folder
from waylog.malformed import MALFORMED

_VERSION: Final = 1
#: How a stream of java.io.ObjectOutputStream begins.
_JAVA_MAGIC: Final = b"\xac\xed"
_TEMPORARY: Final = ".new"


class OffsetFileDamaged(ConnectException):
    """The file is there, and is none of ours, or not whole."""


class _Entry(msgspec.Struct):
    connector: str
    partition: dict[str, Any]
    offset: dict[str, Any]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    offsets: list[_Entry]


class OffsetFile:
    """Keeps offsets in a file (`OffsetStore`)."""

    def __init__(self, path: Path) -> None:
        """Read the file, if there is one; raises OffsetFileDamaged, OSError."""
        self._path: Final = path
        self._lock: Final = threading.Lock()
        self._table: OffsetTable = OffsetTable()
        with contextlib.suppress(FileNotFoundError):
            self._table = _table_of(path, path.read_bytes())

    def refresh(self) -> None:
        """See OffsetStore; nobody else writes the file."""

    def get(self, connector: str, partition: Partition) -> dict[str, Any] | None:
        """See OffsetStore."""
        with self._lock:
            return self._table.get(connector, partition)

    def all(self, connector: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """See OffsetStore."""
        with self._lock:
            return self._table.all(connector)

    def produce(
        self,
        producer: Producer,
        connector: str,
        offsets: Sequence[tuple[Partition, Offset | None]],
    ) -> None:
        """Refuse: a file has no part in a transaction."""
        raise ConnectException("exactly-once sources need a worker that keeps offsets in a topic")

    def put(self, connector: str, offsets: Sequence[tuple[Partition, Offset | None]]) -> None:
        """See OffsetStore."""
        with self._lock:
            changed = OffsetTable()
            for each in self._table.connectors():
                changed.put(each, self._table.all(each))
            changed.put(connector, offsets)
            try:
                _replace(self._path, _bytes_of(changed))
            except OSError as error:
                raise ConnectException(
                    f"{self._path}: offsets cannot be stored: {error.strerror or error}"
                ) from error
            self._table = changed


def _table_of(path: Path, data: bytes) -> OffsetTable:
    table = OffsetTable()
    if not data:
        # `touch` makes such a file; ours is never empty, since it replaces the former one whole.
        return table
    if data.startswith(_JAVA_MAGIC):
        raise OffsetFileDamaged(
            f"{path} has the offsets of an Apache Kafka worker, in Java's own form: name another "
            "file with offset.storage.file.filename"
        )
    try:
        found = msgspec.json.decode(data, type=_File)
    except MALFORMED as error:
        raise OffsetFileDamaged(
            f"{path} is no file of offsets, or is damaged: {error}; it is left as it is. Move it "
            "away to read all sources from their beginning"
        ) from error
    if found.version != _VERSION:
        raise OffsetFileDamaged(
            f"{path} has version {found.version}, and this program knows {_VERSION} only"
        )
    for each in found.offsets:
        table.put(each.connector, [(each.partition, each.offset)])
    return table


def _bytes_of(table: OffsetTable) -> bytes:
    entries = [
        _Entry(connector, partition, offset)
        for connector in table.connectors()
        for partition, offset in table.all(connector)
    ]
    return msgspec.json.format(msgspec.json.encode(_File(_VERSION, entries)), indent=2) + b"\n"


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + _TEMPORARY)
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    # The new name has to outlast a power cut, too.
    sync_folder(path.parent)
