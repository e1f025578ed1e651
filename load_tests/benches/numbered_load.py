"""An idempotent producer of numbered records, with the acknowledgement of each and its time."""

from __future__ import annotations

import contextlib
import threading
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from waylog.kafka.polling import next_messages

TOPIC: Final = "t"
_TIMEOUT_S: Final = 60.0
_NOT_ACKNOWLEDGED: Final = -1
# Acknowledged as a repetition of a record that the broker has already.
_OFFSET_UNKNOWN: Final = -2


@dataclass
class Account:
    """The outcome of the records, by their numbers."""

    sent: int
    acknowledged: int
    refused: dict[str, int]
    lost: list[int]
    doubled: list[int]
    moved: list[int]  # acknowledged with another offset than they have

    @property
    def is_whole(self) -> bool:
        """Return whether every record was acknowledged, and is in its place exactly once."""
        return not (self.refused or self.lost or self.doubled or self.moved)


class _Times:
    """The send and acknowledgement times of one partition's records, by acknowledgement."""

    def __init__(self) -> None:
        self.sent = array("d")
        self.acknowledged = array("d")

    def add(self, sent: float, acknowledged: float) -> None:
        self.sent.append(sent)
        self.acknowledged.append(acknowledged)

    def since(self, moment: float) -> Iterator[tuple[float, float]]:
        """Yield the times of records that were acknowledged after a moment, the newest first."""
        # Another thread appends: iterate over what is there now.
        for at in range(len(self.acknowledged) - 1, -1, -1):
            if self.acknowledged[at] < moment:
                return
            yield self.sent[at], self.acknowledged[at]


@dataclass
class NumberedLoad:
    """A thread that sends numbers to all partitions at a steady rate, inside a `with` block."""

    servers: str
    partitions: int
    rate: int = 1000
    settings: dict[str, Any] = field(default_factory=dict)
    sent: int = 0

    def __post_init__(self) -> None:
        # Both are indexed by number.
        self._offsets = array("q")
        self._sent_at = array("d")
        self._refused: Counter[str] = Counter()
        self._times = [_Times() for _ in range(self.partitions)]
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
            }
            | self.settings
        )
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> NumberedLoad:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stop.is_set():
            wanted = int((time.monotonic() - began) * self.rate)
            with contextlib.suppress(BufferError):
                while self.sent < wanted:
                    self._send(self.sent)
                    self.sent += 1
            self._producer.poll(0.002)
        assert self._producer.flush(_TIMEOUT_S) == 0

    def _send(self, number: int) -> None:
        partition = number % self.partitions
        self._producer.produce(
            TOPIC, b"%d" % number, partition=partition, on_delivery=self._delivered
        )
        self._offsets.append(_NOT_ACKNOWLEDGED)
        self._sent_at.append(time.monotonic())

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused[error.name()] += 1
            return
        number, offset = int(message.value() or b""), message.offset()
        self._offsets[number] = _OFFSET_UNKNOWN if offset is None or offset < 0 else offset
        self._times[number % self.partitions].add(self._sent_at[number], time.monotonic())

    # ----------------------------------------------------------------------------------- latencies

    def resumed_s(self, since: float) -> float:
        """Wait until every partition has acknowledged a record that was sent after a moment.

        Returns the seconds from the moment (`time.monotonic`) until the last partition did.
        """
        deadline = time.monotonic() + _TIMEOUT_S
        firsts: dict[int, float] = {}
        while len(firsts) < self.partitions:
            assert time.monotonic() < deadline, f"only partitions {sorted(firsts)} are served"
            time.sleep(0.01)
            for partition in set(range(self.partitions)) - firsts.keys():
                after = [
                    acknowledged
                    for sent, acknowledged in self._times[partition].since(since)
                    if sent >= since
                ]
                if after:
                    firsts[partition] = min(after)
        return max(firsts.values()) - since

    def longest_gap_s(self, since: float) -> float:
        """Return the longest time after a moment in which some partition acknowledged nothing."""
        longest = 0.0
        for times in self._times:
            later = time.monotonic()
            for _, acknowledged in times.since(since):
                longest = max(longest, later - acknowledged)
                later = acknowledged
            longest = max(longest, later - since)
        return longest

    def latencies_s(self, since: float, until: float = float("inf")) -> list[float]:
        """Return the sorted latencies of records that were sent between two moments."""
        return sorted(
            acknowledged - sent
            for times in self._times
            for sent, acknowledged in times.since(since)
            if since <= sent < until
        )

    # ------------------------------------------------------------------------------------- account

    def account(self) -> Account:
        """Read all records and compare them with the acknowledgements; call it after the end."""
        consumer = Consumer(
            {"bootstrap.servers": self.servers, "group.id": "account", "log_level": 0}
        )
        places = [TopicPartition(TOPIC, index, 0) for index in range(self.partitions)]
        total = sum(consumer.get_watermark_offsets(each, _TIMEOUT_S)[1] for each in places)
        consumer.assign(places)
        found = array("q", [_NOT_ACKNOWLEDGED]) * self.sent
        doubled: list[int] = []
        count, deadline = 0, time.monotonic() + _TIMEOUT_S
        while count < total:
            assert time.monotonic() < deadline, f"{count} of {total} records can be read"
            for message in next_messages(consumer, 5000, 1.0):
                assert message.error() is None
                number = int(message.value() or b"")
                if found[number] != _NOT_ACKNOWLEDGED:
                    doubled.append(number)
                found[number] = message.offset() or 0
                count += 1
        consumer.close()
        acknowledged = [
            (number, offset)
            for number, offset in enumerate(self._offsets)
            if offset != _NOT_ACKNOWLEDGED
        ]
        return Account(
            self.sent,
            len(acknowledged),
            dict(self._refused),
            [number for number, _ in acknowledged if found[number] == _NOT_ACKNOWLEDGED],
            doubled,
            [
                number
                for number, offset in acknowledged
                if offset != _OFFSET_UNKNOWN and found[number] not in {offset, _NOT_ACKNOWLEDGED}
            ],
        )
