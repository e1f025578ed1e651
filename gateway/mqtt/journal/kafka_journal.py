"""Opens the MQTT journal on the log."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from typing import Final

from confluent_kafka import KafkaException

from gateway.fixes.erasure_reader import ErasureReader
from gateway.fixes.log_topics import await_topics
from gateway.mqtt.journal.journal import Journal, Record
from gateway.mqtt.journal.last_records import LastRecords
from gateway.mqtt.journal.repeated_records import Delivered, RepeatedRecords
from gateway.mqtt.journal.seats import Seat
from gateway.mqtt.journal.stored import LastRecord
from gateway.mqtt.publishing.mapping import TopicRule, topics_of
from waylog.kafka.batch_reader import BatchReader
from waylog.kafka.clients import LogUnreachable
from waylog.kafka.errors import error_text
from waylog.kafka.topics import MQTT_STATE
from waylog.observability.telemetry import now_ms
from waylog.sealing.sealing import LogProducer, repeated_opener

#: Seconds within which several changes of one session become one record.
_GATHER_S: Final = 0.02
#: Seconds for the records of an orderly stop; the supervisor waits longer
#: (waylog.supervision.platform_processes).
STOP_TIMEOUT_S: Final = 40.0


async def ensure_mapped_topics(bootstrap_servers: str, mapping: tuple[TopicRule, ...]) -> None:
    """Create the missing topics of the log that the mapping rules write to.

    Raises OSError if the log refuses.
    """
    topics = topics_of(mapping)
    if not topics:
        return
    try:
        await await_topics(bootstrap_servers, topics)
    except (KafkaException, LogUnreachable) as error:
        names = ", ".join(topic.name for topic in topics)
        raise OSError(f"the topics {names} could not be created: {error_text(error)}") from error


@asynccontextmanager
async def open_journal(
    bootstrap_servers: str,
    client_id: str,
    producer: LogProducer,
    erasures: ErasureReader,
    *,
    shared: bool,
    seat: Seat | None = None,
) -> AsyncIterator[Journal]:
    """Open a journal that has read its whole topic; with several workers it keeps reading.

    `seat` is this process's seat among several workers.
    """
    loop = asyncio.get_running_loop()

    def send(key: bytes, value: bytes | None, on_delivery: Delivered) -> None:
        producer.send(MQTT_STATE, value, key, None, on_delivery)

    appended = RepeatedRecords(send, now_ms, loop.time, loop.call_later)

    async def write_last(records: Iterator[LastRecord]) -> None:
        refused = (LastRecord(key, value, 0, False) for key, value in appended.left())
        await LastRecords(producer, STOP_TIMEOUT_S).write(chain(refused, records))

    def on_records(records: Sequence[Record]) -> None:
        appended.read(records)
        journal.on_records(records)

    journal = Journal(
        f"{client_id}-{secrets.token_hex(4)}" if seat is None else seat.worker_name(),
        appended.append,
        now_ms,
        loop.time,
        partial(loop.call_later, _GATHER_S),
        shared=shared,
        seat=seat,
    )
    journal.on_stop = write_last
    erasures.subscribe(journal.on_erasures)
    caught_up = asyncio.Event()
    reader = BatchReader(
        bootstrap_servers,
        f"{client_id}-{MQTT_STATE}",
        MQTT_STATE,
        loop,
        on_records=on_records,
        on_caught_up=caught_up.set,
        opened=repeated_opener(bootstrap_servers),
    )
    reader.start()
    try:
        await caught_up.wait()
        if not shared:
            # No other process writes; reading our own records back would be useless.
            await reader.close()
        yield journal
    finally:
        await reader.close()
