"""Topic `erasure` on the event loop, for all parts of a gateway that forget or refuse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from confluent_kafka import KafkaException

from gateway.fixes.log_topics import await_topics
from waylog.kafka.clients import LogReader, LogUnreachable
from waylog.kafka.errors import said_by
from waylog.kafka.topics import ERASURE, TOPICS


class Record(Protocol):
    """The part of confluent_kafka.Message that is read of an erasure."""

    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...


#: Takes records, each device's newest first of all.
Subscriber = Callable[[Sequence[Record]], object]


class ErasureReader:
    """Hands the topic's records to whoever subscribes, those of before at once."""

    def __init__(self) -> None:
        self._records: dict[bytes | None, Record] = {}
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call with all there are, and then with what comes."""
        subscriber(list(self._records.values()))
        self._subscribers.append(subscriber)

    def on_records(self, records: Sequence[Record]) -> None:
        """For LogReader."""
        self._records.update((record.key(), record) for record in records)
        for subscriber in self._subscribers:
            subscriber(records)


@asynccontextmanager
async def open_erasures(bootstrap_servers: str, client_id: str) -> AsyncIterator[ErasureReader]:
    """A reader that has read the topic whole, and goes on; raises OSError."""
    # A log that was set up by an earlier version has no such topic.
    own = [topic for topic in TOPICS if topic.name == ERASURE]
    try:
        await await_topics(bootstrap_servers, own)
    except (KafkaException, LogUnreachable) as error:
        raise OSError(f"topic {ERASURE} could not be created: {said_by(error)}") from error
    erasures = ErasureReader()
    caught_up = asyncio.Event()
    reader = LogReader(
        bootstrap_servers,
        f"{client_id}-{ERASURE}",
        [ERASURE],
        asyncio.get_running_loop(),
        on_records=erasures.on_records,
        on_caught_up=caught_up.set,
    )
    reader.start()
    try:
        await caught_up.wait()
        yield erasures
    finally:
        await reader.close()
