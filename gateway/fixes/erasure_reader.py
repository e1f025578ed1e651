"""Reads topic `erasure` on the event loop, for all parts of a gateway that have to apply it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from confluent_kafka import KafkaException

from gateway.fixes.log_topics import Waiting, await_topics, tell_nobody
from waylog.kafka.batch_reader import BatchReader
from waylog.kafka.clients import LogUnreachable
from waylog.kafka.errors import error_text
from waylog.kafka.topics import ERASURE, TOPICS


class Record(Protocol):
    """The part of confluent_kafka.Message that is used of an erasure."""

    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...


#: Called with records: first with the newest of each device, then with new ones as they come.
Subscriber = Callable[[Sequence[Record]], object]


class ErasureReader:
    """Passes the records of the topic to subscribers, at first those that it has read already."""

    def __init__(self) -> None:
        self._records: dict[bytes | None, Record] = {}
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` with all known records now, and with new ones as they come."""
        subscriber(list(self._records.values()))
        self._subscribers.append(subscriber)

    def on_records(self, records: Sequence[Record]) -> None:
        """Pass records on to the subscribers; called by BatchReader."""
        self._records.update((record.key(), record) for record in records)
        for subscriber in self._subscribers:
            subscriber(records)


@asynccontextmanager
async def open_erasures(
    bootstrap_servers: str, client_id: str, waiting: Waiting = tell_nobody
) -> AsyncIterator[ErasureReader]:
    """Open a reader that has read the whole topic and keeps reading; raises OSError.

    `waiting` is called with the reason while the log cannot be reached.
    """
    # A log that an earlier version has set up lacks this topic.
    own = [topic for topic in TOPICS if topic.name == ERASURE]
    try:
        await await_topics(bootstrap_servers, own, waiting)
    except (KafkaException, LogUnreachable) as error:
        raise OSError(f"topic {ERASURE} could not be created: {error_text(error)}") from error
    erasures = ErasureReader()
    caught_up = asyncio.Event()
    reader = BatchReader(
        bootstrap_servers,
        f"{client_id}-{ERASURE}",
        ERASURE,
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
