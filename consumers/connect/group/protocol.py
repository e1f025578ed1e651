"""The bytes that workers tell each other through their group's coordinator (KIP-415, KIP-507).

A worker joins with its URL, the offset up to which it has read the configurations, and the work
that it has. The leader answers with what each worker is to start and to stop. Version 1 is that of
sub-protocol `compatible`, version 2 that of `sessioned`, where requests between workers are signed;
the bytes are the same. Version 0, `eager`, is that of workers before Kafka 2.3: all stop their work
before they join, so that nobody says what it has, and the leader assigns all anew. Numbers are
big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from consumers.connect.group.work import Work
from consumers.connect.storage.states import TaskId

#: The type of the group.
PROTOCOL_TYPE: Final = "connect"
#: Its name in the group; in `connect.protocol` it is `eager`.
EAGER: Final = "default"
COMPATIBLE: Final = "compatible"
SESSIONED: Final = "sessioned"
VERSIONS: Final = {EAGER: 0, COMPATIBLE: 1, SESSIONED: 2}

NO_ERROR: Final = 0
#: The leader has not read all configurations that some worker knows: all join again.
CONFIG_MISMATCH: Final = 1

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
#: The number of a task that stands for the connector itself.
_CONNECTOR: Final = -1


class MalformedBytes(Exception):
    """What another worker has sent is not of this protocol."""


class Assignment(NamedTuple):
    """What a worker is to do, as the leader says; `work` is what it starts.

    In a worker's metadata `work` is what it has.
    """

    error: int
    leader: str  # its id in the group
    leader_url: str
    offset: int  # of the configurations for which it counts
    work: Work = Work()
    revoked: Work = Work()
    delay_ms: int = 0  # until the next rebalance, 0 for none

    @property
    def failed(self) -> bool:
        """Tell whether the leader could not assign anything."""
        return self.error != NO_ERROR


class Metadata(NamedTuple):
    """What a worker says of itself."""

    url: str
    offset: int
    assignment: Assignment | None  # None: it has none

    @property
    def work(self) -> Work:
        """What the worker runs."""
        return self.assignment.work if self.assignment is not None else Work()


def encode_metadata(metadata: Metadata, version: int) -> bytes:
    """Return the bytes with which a worker joins."""
    if version == VERSIONS[EAGER]:
        return _INT16.pack(version) + _text(metadata.url) + _INT64.pack(metadata.offset)
    allocation = metadata.assignment and encode_assignment(metadata.assignment, version)
    return b"".join(
        (
            _INT16.pack(version),
            _text(metadata.url),
            _INT64.pack(metadata.offset),
            _INT32.pack(-1) if allocation is None else _INT32.pack(len(allocation)) + allocation,
        )
    )


def decode_metadata(data: bytes) -> Metadata:
    """Parse them; raises MalformedBytes."""
    reader = _Reader(data)
    reader.version()
    url = reader.text()
    offset = reader.number(_INT64)
    size = reader.number(_INT32) if reader.left else -1
    return Metadata(url, offset, decode_assignment(reader.take(size)) if size >= 0 else None)


def encode_assignment(assignment: Assignment, version: int) -> bytes:
    """Return the bytes with which a leader assigns."""
    return b"".join(
        (
            _INT16.pack(version),
            _INT16.pack(assignment.error),
            _text(assignment.leader),
            _text(assignment.leader_url),
            _INT64.pack(assignment.offset),
            _work(assignment.work),
            *(
                ()
                if version == VERSIONS[EAGER]
                else (_work(assignment.revoked), _INT32.pack(assignment.delay_ms))
            ),
        )
    )


def decode_assignment(data: bytes) -> Assignment:
    """Parse them; raises MalformedBytes. Lists that are missing at the end are empty."""
    reader = _Reader(data)
    reader.version()
    return Assignment(
        error=reader.number(_INT16),
        leader=reader.text(),
        leader_url=reader.text(),
        offset=reader.number(_INT64),
        work=reader.work() if reader.left else Work(),
        revoked=reader.work() if reader.left else Work(),
        delay_ms=reader.number(_INT32) if reader.left else 0,
    )


def protocols(metadata: Metadata, best: str) -> Sequence[tuple[str, bytes]]:
    """Return the sub-protocols that a worker offers with `connect.protocol`, the best one first."""
    names = [name for name in (SESSIONED, COMPATIBLE, EAGER) if VERSIONS[name] <= VERSIONS[best]]
    return [(name, encode_metadata(metadata, VERSIONS[name])) for name in names]


def _text(value: str) -> bytes:
    data = value.encode()
    return _INT16.pack(len(data)) + data


def _work(work: Work) -> bytes:
    numbers: dict[str, list[int]] = {each: [_CONNECTOR] for each in sorted(work.connectors)}
    for task in sorted(work.tasks):
        numbers.setdefault(task.connector, []).append(task.task)
    return _INT32.pack(len(numbers)) + b"".join(_entries(numbers))


def _entries(numbers: Mapping[str, Sequence[int]]) -> list[bytes]:
    return [
        _text(connector) + struct.pack(f">i{len(each)}i", len(each), *each)
        for connector, each in numbers.items()
    ]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data: Final = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise MalformedBytes("the bytes of a worker end too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, form: struct.Struct) -> int:
        number: int
        (number,) = form.unpack(self.take(form.size))
        return number

    def text(self) -> str:
        try:
            return self.take(self.number(_INT16)).decode()
        except UnicodeDecodeError as error:
            raise MalformedBytes(f"a worker's text is not UTF-8: {error}") from error

    def version(self) -> None:
        version = self.number(_INT16)
        if version < 0:
            raise MalformedBytes(f"a worker speaks version {version}, which does not exist")

    def work(self) -> Work:
        connectors: set[str] = set()
        tasks: set[TaskId] = set()
        for _ in range(self._count(6)):
            connector = self.text()
            for _ in range(self._count(4)):
                number = self.number(_INT32)
                if number == _CONNECTOR:
                    connectors.add(connector)
                else:
                    tasks.add(TaskId(connector, number))
        return Work.of(connectors, tasks)

    def _count(self, item_bytes: int) -> int:
        count = self.number(_INT32)
        if count > self.left // item_bytes:
            raise MalformedBytes("a worker's list is longer than its bytes")
        return max(count, 0)
