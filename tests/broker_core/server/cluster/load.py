"""An idempotent producer that keeps account of what was acknowledged, and when."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

TOPIC = "t"
_TIMEOUT_S = 60.0


@dataclass
class Account:
    """What became of the records, by their numbers."""

    sent: int
    refused: dict[str, int]
    lost: list[int]
    doubled: list[int]
    moved: list[int]  # acknowledged at another offset than they have


@dataclass
class Load:
    """Produces numbers to all partitions at a steady rate, from a thread."""

    servers: str
    partitions: int
    rate: int = 1000
    settings: dict[str, Any] = field(default_factory=dict)
    sent: int = 0

    def __post_init__(self) -> None:
        self._acknowledged: dict[int, tuple[int, int]] = {}
        self._refused: Counter[str] = Counter()
        # When a partition's record was acknowledged that was sent at a time: (sent, acknowledged).
        self._times: list[list[tuple[float, float]]] = [[] for _ in range(self.partitions)]
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

    def __enter__(self) -> Load:
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
            self._producer.poll(0.005)
        assert self._producer.flush(_TIMEOUT_S) == 0

    def _send(self, number: int) -> None:
        partition, now = number % self.partitions, time.monotonic()

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._refused[error.name()] += 1
                return
            offset = message.offset()
            self._acknowledged[number] = (partition, -1 if offset is None else offset)
            self._times[partition].append((now, time.monotonic()))

        self._producer.produce(TOPIC, b"%d" % number, partition=partition, on_delivery=delivered)

    def resumed_s(self, since: float) -> float:
        """Wait until every partition has acknowledged something sent after a moment.

        Returns how long after the moment (`time.monotonic`) the last of them did.
        """
        deadline = time.monotonic() + _TIMEOUT_S
        firsts: dict[int, float] = {}
        while len(firsts) < self.partitions:
            assert time.monotonic() < deadline, f"only partitions {sorted(firsts)} are served"
            time.sleep(0.01)
            for partition in set(range(self.partitions)) - firsts.keys():
                times = self._times[partition][-1000:]
                after = [acknowledged for sent, acknowledged in times if sent >= since]
                if after:
                    firsts[partition] = min(after)
        return max(firsts.values()) - since

    def latencies_s(self, since: float) -> list[float]:
        """From sending to acknowledgement, of what was sent after a moment, sorted."""
        return sorted(
            acknowledged - sent
            for times in self._times
            for sent, acknowledged in times
            if sent >= since
        )

    def account(self) -> Account:
        """Read everything back; call after the end."""
        consumer = Consumer(
            {"bootstrap.servers": self.servers, "group.id": "account", "log_level": 0}
        )
        places = [TopicPartition(TOPIC, index, 0) for index in range(self.partitions)]
        total = sum(consumer.get_watermark_offsets(each, _TIMEOUT_S)[1] for each in places)
        consumer.assign(places)
        found: dict[int, list[tuple[int, int]]] = {}
        count, deadline = 0, time.monotonic() + _TIMEOUT_S
        while count < total:
            assert time.monotonic() < deadline, f"{count} of {total} records can be read"
            for message in consumer.consume(5000, 1.0):
                assert message.error() is None
                number, offset = int(message.value() or b""), message.offset()
                found.setdefault(number, []).append((message.partition() or 0, offset or 0))
                count += 1
        consumer.close()
        return Account(
            self.sent,
            dict(self._refused),
            [each for each in self._acknowledged if each not in found],
            [each for each, where in found.items() if len(where) > 1],
            [
                each
                for each, place in self._acknowledged.items()
                if place[1] >= 0 and each in found and place not in found[each]
            ],
        )
