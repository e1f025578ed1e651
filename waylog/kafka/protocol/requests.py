"""The requests of Kafka's protocol that our own clients send, and parsers of the responses.

The versions are those without tagged fields that Apache Kafka 2.1 to 4.x and broker_core serve:
Produce 7, Fetch 4, ListOffsets 2, Metadata 7, InitProducerId 1; for logins SaslHandshake 1 and
SaslAuthenticate 1 (since Apache Kafka 2.2). Numbers are big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

_Item = TypeVar("_Item")

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
LIST_GROUPS: Final = 16
SASL_HANDSHAKE: Final = 17
INIT_PRODUCER_ID: Final = 22
DESCRIBE_CONFIGS: Final = 32
DESCRIBE_LOG_DIRS: Final = 35
SASL_AUTHENTICATE: Final = 36
ELECT_LEADERS: Final = 43
ALTER_PARTITION_REASSIGNMENTS: Final = 45
LIST_PARTITION_REASSIGNMENTS: Final = 46
DESCRIBE_QUORUM: Final = 55
DESCRIBE_CLUSTER: Final = 60
_VERSIONS: Final = {
    PRODUCE: 7, FETCH: 4, LIST_OFFSETS: 2, METADATA: 7, SASL_HANDSHAKE: 1, INIT_PRODUCER_ID: 1,
    SASL_AUTHENTICATE: 1,
    DESCRIBE_CONFIGS: 1,  # waylog.kafka.protocol.config_requests
    # For members of groups (waylog.kafka.protocol.group_requests).
    FIND_COORDINATOR: 2, JOIN_GROUP: 5, HEARTBEAT: 3, LEAVE_GROUP: 2, SYNC_GROUP: 3,
    # For commands that show and change a cluster (waylog.kafka.protocol.cluster_requests).
    LIST_GROUPS: 5, ELECT_LEADERS: 1, ALTER_PARTITION_REASSIGNMENTS: 0,
    LIST_PARTITION_REASSIGNMENTS: 0, DESCRIBE_QUORUM: 1, DESCRIBE_CLUSTER: 0,
    DESCRIBE_LOG_DIRS: 4,
}  # fmt: skip
#: Those that have tagged fields (KIP-482), at the end of the request's head too.
_FLEXIBLE: Final = frozenset(
    {
        LIST_GROUPS, ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS, DESCRIBE_QUORUM,
        DESCRIBE_CLUSTER, DESCRIBE_LOG_DIRS,
    }
)  # fmt: skip

#: Timestamps that `list_offsets` takes: the first offset, or the end.
EARLIEST: Final = -2
LATEST: Final = -1

_NO_TEXT: Final = b"\xff\xff"
_ALL_IN_SYNC: Final = -1
_CONSUMER: Final = -1  # the replica id of clients that are not replicas
_READ_COMMITTED: Final = 1


class MalformedAnswer(Exception):
    """A broker's answer violates the protocol."""


class Broker(NamedTuple):
    """The address of a broker."""

    host: str
    port: int


class PartitionLeader(NamedTuple):
    """From Metadata: the leader of a partition, -1 for none."""

    partition: int
    leader: int


class TopicMetadata(NamedTuple):
    """From Metadata: a topic, or Kafka's error code."""

    name: str
    error: int
    partitions: list[PartitionLeader]


class Metadata(NamedTuple):
    """The response to `metadata`."""

    brokers: dict[int, Broker]
    topics: list[TopicMetadata]


class ProducerIdentity(NamedTuple):
    """The response to `init_producer_id`: error code, id and epoch."""

    error: int
    producer_id: int
    epoch: int


class Appended(NamedTuple):
    """From Produce: the outcome for one partition."""

    topic: str
    partition: int
    error: int
    base_offset: int


class Offset(NamedTuple):
    """From ListOffsets: an offset of a partition."""

    topic: str
    partition: int
    error: int
    offset: int


class Fetched(NamedTuple):
    """From Fetch: batches of a partition, and the aborted transactions in them.

    `aborted` has the producer id and the first offset of each transaction.
    """

    topic: str
    partition: int
    error: int
    aborted: list[tuple[int, int]]
    batches: bytes


class SaslMechanisms(NamedTuple):
    """The response to `sasl_handshake`: error code, and the mechanisms that the broker offers."""

    error: int
    mechanisms: list[str]


class SaslAnswer(NamedTuple):
    """The response to `sasl_authenticate`.

    `session_ms` is sent with the last message of an exchange; 0 is a session without an end.
    """

    error: int
    message: str
    data: bytes
    session_ms: int


class Reader:
    """A cursor over a response; raises MalformedAnswer if the response ends too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        try:
            values = form.unpack_from(self._data, self._at)
        except struct.error:
            raise MalformedAnswer("the answer is cut short") from None
        self._at += form.size
        return values

    def text(self) -> str:
        """Read a string; null is returned as ""."""
        (size,) = self.unpack(INT16)
        if size < 0:
            return ""
        text = self._data[self._at : self._at + size]
        if len(text) != size:
            raise MalformedAnswer("the answer is cut short")
        self._at += size
        return text.decode("utf-8", "replace")

    def sized(self) -> bytes:
        """Read bytes with their length; null is returned as b""."""
        (size,) = self.unpack(INT32)
        if size <= 0:
            return b""
        data = self._data[self._at : self._at + size]
        if len(data) != size:
            raise MalformedAnswer("the answer is cut short")
        self._at += size
        return data

    def count(self) -> int:
        """Read the length of an array."""
        (count,) = self.unpack(INT32)
        # Every element has at least two bytes: a forged count must not make a huge list.
        if count > (len(self._data) - self._at) // 2:
            raise MalformedAnswer("an array is longer than the answer")
        return max(0, count)

    def pair(self) -> tuple[int, int]:
        """Read two int64."""
        first, second = self.unpack(_ABORTED)
        return first, second

    def numbers(self) -> list[int]:
        """Read an array of int32."""
        return [self.unpack(INT32)[0] for _ in range(self.count())]

    def skip(self, size: int) -> bytes:
        """Pass over that many bytes, and return them."""
        data = self._data[self._at : self._at + size]
        if size < 0 or len(data) != size:
            raise MalformedAnswer("the answer is cut short")
        self._at += size
        return data

    def tags(self) -> None:
        """Skip tagged fields, which only flexible versions have (KIP-482)."""

    @property
    def left(self) -> int:
        """The number of bytes that have not been read."""
        return len(self._data) - self._at


INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")
_BOOLEAN: Final = struct.Struct(">b")
_IDENTITY: Final = struct.Struct(">ihqh")
_PARTITION: Final = struct.Struct(">hiii")
_APPENDED: Final = struct.Struct(">ihqqq")
_OFFSET: Final = struct.Struct(">ihqq")
_FETCH: Final = struct.Struct(">iiiibi")
_POSITION: Final = struct.Struct(">iqi")
#: With the number of aborted transactions, whose list follows.
_FETCHED: Final = struct.Struct(">ihqqi")
_ABORTED: Final = struct.Struct(">qq")
_HEAD: Final = struct.Struct(">ihhih")


def text(value: str) -> bytes:
    """Encode a string with its length."""
    encoded = value.encode()
    return INT16.pack(len(encoded)) + encoded


def request(api: int, correlation_id: int, client_id: bytes, parts: Sequence[bytes]) -> bytes:
    """Return a whole request with its length in front."""
    tags = b"\0" if api in _FLEXIBLE else b""
    size = 10 + len(client_id) + len(tags) + sum(map(len, parts))
    head = _HEAD.pack(size, api, _VERSIONS[api], correlation_id, len(client_id))
    return b"".join((head, client_id, tags, *parts))


def by_topic(pairs: Iterable[tuple[str, _Item]]) -> dict[str, list[_Item]]:
    """Group what belongs to topics, as requests name each topic once."""
    topics: dict[str, list[_Item]] = {}
    for topic, item in pairs:
        topics.setdefault(topic, []).append(item)
    return topics


def metadata(topics: Sequence[str]) -> list[bytes]:
    """Ask for the leaders of topics; creates no topic."""
    return [INT32.pack(len(topics)), *map(text, topics), b"\0"]


def read_metadata(data: bytes) -> Metadata:
    """Parse a Metadata response; raises MalformedAnswer."""
    reader = Reader(data)
    reader.unpack(INT32)  # throttle time
    brokers: dict[int, Broker] = {}
    for _ in range(reader.count()):
        (node,) = reader.unpack(INT32)
        host = reader.text()
        (port,) = reader.unpack(INT32)
        reader.text()  # rack
        brokers[node] = Broker(host, port)
    reader.text()  # cluster
    reader.unpack(INT32)  # controller
    topics: list[TopicMetadata] = []
    for _ in range(reader.count()):
        (error,) = reader.unpack(INT16)
        name = reader.text()
        reader.unpack(_BOOLEAN)  # internal
        partitions: list[PartitionLeader] = []
        for _ in range(reader.count()):
            _, index, leader, _ = reader.unpack(_PARTITION)
            for _ in range(3):
                reader.numbers()  # replicas, in-sync replicas, offline replicas
            partitions.append(PartitionLeader(index, leader))
        topics.append(TopicMetadata(name, error, partitions))
    return Metadata(brokers, topics)


def init_producer_id() -> list[bytes]:
    """Ask for a producer id, outside of any transaction."""
    return [_NO_TEXT, INT32.pack(0)]


def read_init_producer_id(data: bytes) -> ProducerIdentity:
    """Parse an InitProducerId response; raises MalformedAnswer."""
    _, error, producer_id, epoch = Reader(data).unpack(_IDENTITY)
    return ProducerIdentity(error, producer_id, epoch)


def produce(batches: Iterable[tuple[str, int, bytes]], timeout_ms: int) -> list[bytes]:
    """Append a batch to each of some partitions (acks=all); each may be named only once."""
    topics = by_topic((topic, (partition, batch)) for topic, partition, batch in batches)
    parts = [_NO_TEXT, struct.pack(">hii", _ALL_IN_SYNC, timeout_ms, len(topics))]
    for topic, partitions in topics.items():
        parts += [text(topic), INT32.pack(len(partitions))]
        for partition, batch in partitions:
            parts += [struct.pack(">ii", partition, len(batch)), batch]
    return parts


def read_produce(data: bytes) -> list[Appended]:
    """Parse a Produce response; raises MalformedAnswer."""
    reader = Reader(data)
    appended: list[Appended] = []
    for _ in range(reader.count()):
        topic = reader.text()
        for _ in range(reader.count()):
            index, error, base_offset, _, _ = reader.unpack(_APPENDED)
            appended.append(Appended(topic, index, error, base_offset))
    return appended


def list_offsets(partitions: Iterable[tuple[str, int]], which: int) -> list[bytes]:
    """Ask for the first offset (EARLIEST) or the end (LATEST, of committed records)."""
    topics = by_topic(partitions)
    parts = [struct.pack(">ibi", _CONSUMER, _READ_COMMITTED, len(topics))]
    for topic, numbers in topics.items():
        parts += [text(topic), INT32.pack(len(numbers))]
        parts += [struct.pack(">iq", number, which) for number in numbers]
    return parts


def read_list_offsets(data: bytes) -> list[Offset]:
    """Parse a ListOffsets response; raises MalformedAnswer."""
    reader = Reader(data)
    reader.unpack(INT32)  # throttle time
    offsets: list[Offset] = []
    for _ in range(reader.count()):
        topic = reader.text()
        for _ in range(reader.count()):
            index, error, _, offset = reader.unpack(_OFFSET)
            offsets.append(Offset(topic, index, error, offset))
    return offsets


def fetch(
    positions: Iterable[tuple[str, int, int]],
    *,
    wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    partition_max_bytes: int,
) -> list[bytes]:
    """Ask for committed records of partitions, each from an offset on."""
    # A view asks hundreds of times a second, for one topic.
    topics: dict[str, list[bytes]] = {}
    for topic, partition, offset in positions:
        position = _POSITION.pack(partition, offset, partition_max_bytes)
        topics.setdefault(topic, []).append(position)
    head = (_CONSUMER, wait_ms, min_bytes, max_bytes, _READ_COMMITTED, len(topics))
    parts = [_FETCH.pack(*head)]
    for topic, partitions in topics.items():
        parts += (text(topic), INT32.pack(len(partitions)), *partitions)
    return parts


def read_fetch(data: bytes) -> list[Fetched]:
    """Parse a Fetch response; raises MalformedAnswer."""
    reader = Reader(data)
    reader.unpack(INT32)  # throttle time
    fetched: list[Fetched] = []
    for _ in range(reader.count()):
        topic = reader.text()
        for _ in range(reader.count()):
            index, error, _, _, count = reader.unpack(_FETCHED)
            aborted = [reader.pair() for _ in range(count)] if count > 0 else []
            fetched.append(Fetched(topic, index, error, aborted, reader.sized()))
    return fetched


def sasl_handshake(mechanism: str) -> list[bytes]:
    """Begin a login, or renew one, with a mechanism."""
    return [text(mechanism)]


def read_sasl_handshake(data: bytes) -> SaslMechanisms:
    """Parse a SaslHandshake response; raises MalformedAnswer."""
    reader = Reader(data)
    (error,) = reader.unpack(INT16)
    return SaslMechanisms(error, [reader.text() for _ in range(reader.count())])


def sasl_authenticate(message: bytes) -> list[bytes]:
    """Send a message of the mechanism."""
    return [INT32.pack(len(message)), message]


def read_sasl_authenticate(data: bytes) -> SaslAnswer:
    """Parse a SaslAuthenticate response; raises MalformedAnswer."""
    reader = Reader(data)
    (error,) = reader.unpack(INT16)
    message, answer = reader.text(), reader.sized()
    (session_ms,) = reader.unpack(INT64)
    return SaslAnswer(error, message, answer, session_ms)
