"""Requests about a cluster as a whole, which confluent_kafka's admin client does not offer.

Their versions are served by Apache Kafka 3.3 to 4.x (ListGroups since 4.0). Any broker takes them:
it forwards to the controllers what they decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Final, Generic, NamedTuple, TypeVar

from waylog.kafka.protocol.requests import (
    INT16,
    INT32,
    INT64,
    Broker,
    MalformedAnswer,
    Reader,
    by_topic,
    text,
)

#: A topic and a partition of it.
Place = tuple[str, int]

PREFERRED: Final = 0
UNCLEAN: Final = 1

_T = TypeVar("_T")

_QUORUM_LOG: Final = "__cluster_metadata"
_NONE: Final = b"\0"
_NULL: Final = INT32.pack(-1)
_INT8: Final = Struct(">b")
_UVARINT_BYTES_MAX: Final = 5


class ClusterBroker(NamedTuple):
    """A broker that runs, as far as the metadata says."""

    address: Broker
    rack: str | None


class PartitionState(NamedTuple):
    """The broker that leads a partition, -1 for none, and where its replicas are."""

    leader: int
    replicas: list[int]
    in_sync: list[int]


class Members(NamedTuple):
    """The brokers of a cluster that run."""

    cluster_id: str
    controller: int
    brokers: dict[int, ClusterBroker]


class Outcome(NamedTuple):
    """What has become of a request for one partition; the message may be empty."""

    error: int
    message: str


class Moving(NamedTuple):
    """A partition whose replicas are being moved."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]


class QuorumReplica(NamedTuple):
    """A member of the controllers' quorum, or a broker that follows it."""

    node: int
    end_offset: int
    last_fetch_ms: int


class Quorum(NamedTuple):
    """The controllers, and how far each is."""

    leader: int
    epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]


class LogDirectory(NamedTuple):
    """A folder of a broker, and what its logs take there; -1 stands for not known (KIP-827)."""

    path: str
    error: int
    sizes: dict[Place, int]
    total_bytes: int
    usable_bytes: int


class Answer(NamedTuple, Generic[_T]):
    """The error of a request as a whole, and what it is about."""

    error: int
    message: str
    value: _T


def describe_cluster() -> list[bytes]:
    """Ask for the brokers that run.

    Metadata is not asked for them: it may name a broker for some seconds after it has stopped.
    """
    return [_NONE, _NONE]


def read_describe_cluster(data: bytes) -> Answer[Members]:
    """Parse the response; raises MalformedAnswer."""
    reader = _FlexibleReader(data)
    reader.unpack(INT32)  # throttle time
    (error,) = reader.unpack(INT16)
    message, cluster_id = reader.text(), reader.text()
    (controller,) = reader.unpack(INT32)
    brokers: dict[int, ClusterBroker] = {}
    for _ in range(reader.count()):
        (node,) = reader.unpack(INT32)
        host = reader.text()
        (port,) = reader.unpack(INT32)
        brokers[node] = ClusterBroker(Broker(host, port), reader.text() or None)
        reader.tags()
    reader.unpack(INT32)  # authorized operations
    return Answer(error, message, Members(cluster_id, controller, brokers))


def all_partitions() -> list[bytes]:
    """Ask for the partitions of all topics (Metadata)."""
    return [_NULL, _NONE]


def read_all_partitions(data: bytes) -> dict[Place, PartitionState]:
    """Parse the response; raises MalformedAnswer."""
    reader = Reader(data)
    reader.unpack(INT32)  # throttle time
    for _ in range(reader.count()):
        reader.unpack(INT32)
        reader.text()
        reader.unpack(INT32)
        reader.text()
    reader.text()  # cluster
    reader.unpack(INT32)  # controller
    partitions: dict[Place, PartitionState] = {}
    for _ in range(reader.count()):
        reader.unpack(INT16)  # error
        name = reader.text()
        reader.unpack(_INT8)  # internal
        for _ in range(reader.count()):
            reader.unpack(INT16)
            (index,), (leader,) = reader.unpack(INT32), reader.unpack(INT32)
            reader.unpack(INT32)  # leader epoch
            partitions[name, index] = PartitionState(leader, reader.numbers(), reader.numbers())
            reader.numbers()  # offline replicas
    return dict(sorted(partitions.items()))


def elect_leaders(kind: int, places: Iterable[Place] | None, timeout_ms: int) -> list[bytes]:
    """Elect leaders, PREFERRED or UNCLEAN, of these partitions or of all."""
    parts = [_INT8.pack(kind)]
    if places is None:
        parts.append(_NULL)
    else:
        topics = by_topic(places)
        parts.append(INT32.pack(len(topics)))
        for topic, indexes in topics.items():
            parts += [text(topic), INT32.pack(len(indexes)), *map(INT32.pack, indexes)]
    return [*parts, INT32.pack(timeout_ms)]


def read_elect_leaders(data: bytes) -> Answer[dict[Place, Outcome]]:
    """Parse the response; raises MalformedAnswer."""
    reader = Reader(data)
    reader.unpack(INT32)  # throttle time
    (error,) = reader.unpack(INT16)
    outcomes: dict[Place, Outcome] = {}
    for place in _places(reader):
        (failed,) = reader.unpack(INT16)
        outcomes[place] = Outcome(failed, reader.text())
    return Answer(error, "", outcomes)


def alter_reassignments(
    moves: Mapping[Place, Sequence[int] | None], timeout_ms: int
) -> list[bytes]:
    """Move replicas to other brokers; None takes back a move that is under way."""
    topics = by_topic(moves)
    parts = [INT32.pack(timeout_ms), _uvarint(len(topics) + 1)]
    for topic, indexes in topics.items():
        parts += [_compact(topic), _uvarint(len(indexes) + 1)]
        for index in indexes:
            parts += [INT32.pack(index), _numbers(moves[topic, index]), _NONE]
        parts.append(_NONE)
    return [*parts, _NONE]


def read_alter_reassignments(data: bytes) -> Answer[dict[Place, Outcome]]:
    """Parse the response; raises MalformedAnswer."""
    reader = _FlexibleReader(data)
    reader.unpack(INT32)  # throttle time
    (error,) = reader.unpack(INT16)
    message = reader.text()
    outcomes: dict[Place, Outcome] = {}
    for place in _places(reader):
        (failed,) = reader.unpack(INT16)
        outcomes[place] = Outcome(failed, reader.text())
    return Answer(error, message, outcomes)


def list_reassignments(timeout_ms: int) -> list[bytes]:
    """Ask which replicas are being moved."""
    return [INT32.pack(timeout_ms), _NONE, _NONE]


def read_list_reassignments(data: bytes) -> Answer[dict[Place, Moving]]:
    """Parse the response; raises MalformedAnswer."""
    reader = _FlexibleReader(data)
    reader.unpack(INT32)  # throttle time
    (error,) = reader.unpack(INT16)
    message = reader.text()
    moving: dict[Place, Moving] = {}
    for place in _places(reader):
        moving[place] = Moving(reader.numbers(), reader.numbers(), reader.numbers())
    return Answer(error, message, moving)


def describe_quorum() -> list[bytes]:
    """Ask for the controllers' quorum (KIP-595)."""
    return [
        _uvarint(2), _compact(_QUORUM_LOG), _uvarint(2), INT32.pack(0), _NONE, _NONE, _NONE,
    ]  # fmt: skip


def read_describe_quorum(data: bytes) -> Answer[Quorum | None]:
    """Parse the response; raises MalformedAnswer."""
    reader = _FlexibleReader(data)
    (error,) = reader.unpack(INT16)
    quorum: Quorum | None = None
    for _ in range(reader.count()):
        reader.text()
        for _ in range(reader.count()):
            reader.unpack(INT32)
            (failed,) = reader.unpack(INT16)
            (leader,), (epoch,) = reader.unpack(INT32), reader.unpack(INT32)
            (high_watermark,) = reader.unpack(INT64)
            voters, observers = _replicas(reader), _replicas(reader)
            reader.tags()
            error = error or failed
            quorum = Quorum(leader, epoch, high_watermark, voters, observers)
        reader.tags()
    return Answer(error, "", quorum)


def describe_log_dirs() -> list[bytes]:
    """Ask a broker for its folders, and for the sizes of all logs in them."""
    return [_NONE, _NONE]


def read_describe_log_dirs(data: bytes) -> Answer[list[LogDirectory]]:
    """Parse the response; raises MalformedAnswer."""
    reader = _FlexibleReader(data)
    reader.unpack(INT32)  # throttle time
    (error,) = reader.unpack(INT16)
    found: list[LogDirectory] = []
    for _ in range(reader.count()):
        (failed,) = reader.unpack(INT16)
        path = reader.text()
        sizes: dict[Place, int] = {}
        for place in _places(reader):
            (sizes[place],) = reader.unpack(INT64)
            reader.unpack(INT64)  # how far a copy is behind
            reader.unpack(_INT8)  # whether it is one that moves between folders
        (total,), (usable,) = reader.unpack(INT64), reader.unpack(INT64)
        reader.tags()
        found.append(LogDirectory(path, failed, sizes, total, usable))
    return Answer(error, "", found)


def list_share_groups() -> list[bytes]:
    """Ask for the share groups that a broker coordinates."""
    return [_uvarint(1), _uvarint(2), _compact("share"), _NONE]


def read_list_groups(data: bytes) -> Answer[dict[str, str]]:
    """Parse the response: the states of groups by name. Raises MalformedAnswer."""
    reader = _FlexibleReader(data)
    reader.unpack(INT32)  # throttle time
    (error,) = reader.unpack(INT16)
    groups: dict[str, str] = {}
    for _ in range(reader.count()):
        name = reader.text()
        reader.text()  # protocol
        groups[name] = reader.text()
        reader.text()  # type
        reader.tags()
    return Answer(error, "", groups)


def _places(reader: Reader) -> Iterator[Place]:
    """Yield the partitions of a response; what it says of each is read before the next."""
    for _ in range(reader.count()):
        topic = reader.text()
        for _ in range(reader.count()):
            (index,) = reader.unpack(INT32)
            yield topic, index
            reader.tags()
        reader.tags()


# --- flexible versions (KIP-482) --------------------------------------------------------------


class _FlexibleReader(Reader):
    """A cursor over a response whose lengths are varints; it begins after the head's tags."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.tags()

    def uvarint(self) -> int:
        value = 0
        for index in range(_UVARINT_BYTES_MAX):
            byte = self.skip(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        raise MalformedAnswer("a number is too long")

    def text(self) -> str:
        return self.skip(max(0, self.uvarint() - 1)).decode("utf-8", "replace")

    def count(self) -> int:
        count = self.uvarint() - 1
        # Every element has at least one byte: a forged count must not make a huge list.
        if count > self.left:
            raise MalformedAnswer("an array is longer than the answer")
        return max(0, count)

    def tags(self) -> None:
        """Skip tagged fields."""
        for _ in range(self.uvarint()):
            self.uvarint()
            self.skip(self.uvarint())


def _replicas(reader: _FlexibleReader) -> list[QuorumReplica]:
    replicas: list[QuorumReplica] = []
    for _ in range(reader.count()):
        (node,), (end_offset,) = reader.unpack(INT32), reader.unpack(INT64)
        (last_fetch_ms,) = reader.unpack(INT64)
        reader.unpack(INT64)  # when it was last caught up
        reader.tags()
        replicas.append(QuorumReplica(node, end_offset, last_fetch_ms))
    return replicas


def _uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _compact(value: str) -> bytes:
    encoded = value.encode()
    return _uvarint(len(encoded) + 1) + encoded


def _numbers(values: Sequence[int] | None) -> bytes:
    if values is None:
        return _NONE
    return _uvarint(len(values) + 1) + b"".join(map(INT32.pack, values))
