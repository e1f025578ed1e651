"""Reads a few records of a topic for administrators, within bounds of bytes and time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from gateway.operations.record_values import ShownValue, ValueReader
from waylog.administration.log_access import LogAccess, NotInLog, partitions_of
from waylog.administration.offsets import find_offset, watermarks
from waylog.cli import CommandError
from waylog.kafka.record_headers import headers_of
from waylog.kafka.topics import VALUE_KEY
from waylog.sealing.sealing import is_sealed
from waylog.serialization.serializer import RecordPart

RECORDS_MAX: Final = 200
#: What is shown of one value: by default, and at most.
VALUE_BYTES: Final = 2 * 1024
VALUE_BYTES_MAX: Final = 256 * 1024
#: A key or a header has no more.
_KEY_CHARACTERS_MAX: Final = 512
_HEADERS_MAX: Final = 20
#: What one question shows, and reads, at most.
_SHOWN_CHARACTERS_MAX: Final = 1024 * 1024
_READ_BYTES_MAX: Final = 32 * 1024 * 1024
_READ_RECORDS_MAX: Final = 50_000
_READ_S: Final = 5.0
#: Partitions that are read together; of a topic with more one has to be chosen.
_PARTITIONS_MAX: Final = 64
#: Records before the end that a search by key among the newest looks through, over all partitions.
_SEARCHED: Final = 20_000
_POLL_S: Final = 0.2
_BATCH: Final = 200


@dataclass(frozen=True)
class RecordQuestion:
    """Which records are asked for."""

    topic: str
    #: None stands for all.
    partition: int | None = None
    #: `newest`, or a text as in `waylog.administration.offsets.WHERE_HELP`.
    start: str = "newest"
    limit: int = 50
    #: A text that keys have.
    key: str = ""
    value_bytes: int = VALUE_BYTES


class ShownRecord(msgspec.Struct, frozen=True):
    """A record as administrators see it."""

    partition: int
    offset: int
    time: int  # ms since 1970, -1 for none
    key: ShownValue
    value: ShownValue
    headers: list[tuple[str, str]]


class ReadPart(msgspec.Struct, frozen=True):
    """The part of a partition that was read, and its end."""

    partition: int
    next: int
    end: int


class FoundRecords(msgspec.Struct, frozen=True):
    """Records, the newest first, or in the order of the log from where they were asked for."""

    records: list[ShownRecord]
    partitions: list[ReadPart]
    read: int
    #: Why the reading ended before it was done: `time`, `bytes` or `records`; empty if it was.
    ended: str = ""


class RecordBrowser:
    """Reads records. Its methods block; several threads may call them."""

    def __init__(self, access: LogAccess, values: ValueReader) -> None:
        self._access = access
        self._values = values

    def find(self, asked: RecordQuestion) -> FoundRecords:
        """Return the records that are asked for.

        Raises CommandError for a topic, a partition or a place that there is not, KafkaException.
        """
        # A record that is larger than these comes alone.
        consumer = self._access.open_consumer(
            enable_partition_eof=True,
            auto_offset_reset="earliest",
            queued_min_messages=1000,
            queued_max_messages_kbytes=4096,
            fetch_message_max_bytes=1024 * 1024,
            fetch_wait_max_ms=10,
        )
        try:
            return self._found(consumer, asked)
        finally:
            consumer.close()

    def _found(self, consumer: Consumer, asked: RecordQuestion) -> FoundRecords:
        present = partitions_of(consumer, asked.topic)
        if asked.partition is None:
            if len(present) > _PARTITIONS_MAX:
                raise CommandError(
                    f"topic {asked.topic} has {len(present)} partitions: choose one of them"
                )
            chosen = present
        elif asked.partition not in present:
            raise NotInLog(f"topic {asked.topic} has no partition {asked.partition}")
        else:
            chosen = [asked.partition]
        is_newest = asked.start == "newest"
        back = max(asked.limit, _SEARCHED // len(chosen)) if asked.key else asked.limit
        reading = _Reading(consumer, asked.topic)
        for partition in chosen:
            low, high = watermarks(self._access, consumer, asked.topic, partition)
            if is_newest:
                start = max(low, high - back)
            else:
                start = find_offset(self._access, consumer, asked.topic, partition, asked.start)
            reading.add(partition, start, high)
        kept: list[Message] = []
        shown_bytes = 0
        for message in reading.messages():
            if asked.key and asked.key not in (message.key() or b"").decode("utf-8", "replace"):
                continue
            kept.append(message)
            shown_bytes += min(len(message.value() or b""), asked.value_bytes)
            if not is_newest and (len(kept) >= asked.limit or shown_bytes > _SHOWN_CHARACTERS_MAX):
                break
            if is_newest and len(kept) > 4 * asked.limit:
                kept = _newest(kept, asked.limit)
        if is_newest:
            kept = _newest(kept, asked.limit)
        return FoundRecords(self._within(kept, asked), reading.parts(), reading.read, reading.ended)

    def _within(self, messages: list[Message], asked: RecordQuestion) -> list[ShownRecord]:
        records: list[ShownRecord] = []
        size = 0
        for message in messages:
            record = self._shown(message, asked)
            size += len(record.value.text) + len(record.key.text) + 200
            if records and size > _SHOWN_CHARACTERS_MAX:
                break
            records.append(record)
        return records

    def _shown(self, message: Message, asked: RecordQuestion) -> ShownRecord:
        headers = headers_of(message)
        shown, topic = self._values.shown, asked.topic
        return ShownRecord(
            message.partition() or 0,
            message.offset() or 0,
            message.timestamp()[1],
            shown(topic, message.key(), _KEY_CHARACTERS_MAX, part=RecordPart.KEY, headers=headers),
            shown(topic, message.value(), asked.value_bytes, headers=headers),
            [(name[:_KEY_CHARACTERS_MAX], _text(value)) for name, value in headers[:_HEADERS_MAX]],
        )

    def whole_value(self, topic: str, partition: int, offset: int) -> bytes | None:
        """Return all bytes of a value, None for a null.

        Raises CommandError for a record that there is not, or whose value is sealed, and
        KafkaException.
        """
        consumer = self._access.open_consumer(
            enable_partition_eof=True, auto_offset_reset="earliest", queued_min_messages=1
        )
        try:
            if partition not in partitions_of(consumer, topic):
                raise NotInLog(f"topic {topic} has no partition {partition}")
            reading = _Reading(consumer, topic)
            reading.add(partition, offset, offset + 1)
            for message in reading.messages():
                if message.offset() == offset:
                    value: bytes | None = message.value()
                    if is_sealed(value) or topic == VALUE_KEY:
                        raise CommandError("this value is sealed")
                    return value
                break
            raise NotInLog(f"there is no record {topic}:{partition}:{offset}")
        finally:
            consumer.close()


def _newest(messages: list[Message], limit: int) -> list[Message]:
    return sorted(messages, key=_by_time, reverse=True)[:limit]


def _by_time(message: Message) -> tuple[int, int]:
    return message.timestamp()[1], message.offset() or 0


def _text(value: bytes | str | None) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
    return text[:_KEY_CHARACTERS_MAX]


class _Reading:
    """Reads ranges of partitions until all are done or a bound is met."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic
        self._next: dict[int, int] = {}
        self._end: dict[int, int] = {}
        self.read = 0
        self.ended = ""

    def add(self, partition: int, start: int, end: int) -> None:
        self._next[partition] = start
        self._end[partition] = end

    def parts(self) -> list[ReadPart]:
        return [ReadPart(each, self._next[each], end) for each, end in self._end.items()]

    def messages(self) -> Iterator[Message]:
        """Yield records; raises KafkaException."""
        open_ = {each for each, end in self._end.items() if self._next[each] < end}
        self._consumer.assign(
            [TopicPartition(self._topic, each, self._next[each]) for each in open_]
        )
        deadline = time.monotonic() + _READ_S
        size = 0
        while open_:
            if time.monotonic() > deadline:
                self.ended = "time"
                return
            for message in self._consumer.consume(_BATCH, _POLL_S):
                partition, offset = message.partition() or 0, message.offset() or 0
                error = message.error()
                if error is not None:
                    if error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    # Compaction and transactions leave gaps before the end.
                    self._next[partition] = max(self._next[partition], offset)
                    open_.discard(partition)
                    continue
                if partition not in open_ or offset >= self._end[partition]:
                    open_.discard(partition)
                    continue
                self._next[partition] = offset + 1
                if offset + 1 >= self._end[partition]:
                    open_.discard(partition)
                self.read += 1
                size += len(message.value() or b"") + len(message.key() or b"")
                yield message
                if size > _READ_BYTES_MAX or self.read >= _READ_RECORDS_MAX:
                    self.ended = "bytes" if size > _READ_BYTES_MAX else "records"
                    return
