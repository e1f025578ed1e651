"""What all Kafka clients have in common, and configurations of confluent_kafka's.

Nothing here depends on which broker it talks to. Logic that appends or reads on an asyncio event
loop uses BatchProducer and BatchReader; a consumer group uses `consumer_config` with
confluent_kafka's own Consumer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from waylog.kafka.connection.properties import configured_properties
from waylog.kafka.errors import error_text, forbidden_kind, forbidden_text
from waylog.kafka.protocol.error_codes import reason_of
from waylog.kafka.topic_settings import update_topic_settings
from waylog.kafka.topics import TOPICS, Topic

if TYPE_CHECKING:
    from waylog.kafka.record_batch import Delivery

#: Seconds for which the creation of a topic waits for more brokers, and between two attempts.
_BROKERS_COME_S: Final = 15.0
_BROKERS_LOOK_S: Final = 0.2

#: Waiting this long lets one request carry many records. The time budget of an acknowledgement
#: allows it, and a broker's cost depends on requests more than on records.
LINGER_MS: Final = 20

#: A view's fetch waits for this many bytes or for this time; else the log would answer it once for
#: every append to any partition.
FETCH_MIN_BYTES: Final = 16 * 1024
FETCH_WAIT_MS: Final = 25

Headers = Sequence[tuple[str, bytes]]
#: Pairs of name and value, or the value of a `traceparent` header alone.
RecordHeaders = list[tuple[str, str | bytes | None]] | bytes


class RecordPosition(NamedTuple):
    """The place of a record in the log."""

    topic: str
    partition: int
    offset: int


#: Called with an error and None, or with None and the record's position.
DeliveryCallback: TypeAlias = "Callable[[AppendError | None, Any], None] | Delivery"


class AppendError(Exception):
    """The log did not acknowledge a record; it may or may not be stored."""

    @classmethod
    def of(cls, code: int) -> AppendError:
        """Return the error for an ErrorCode."""
        return cls(reason_of(code))


class AppendQueueFull(AppendError):
    """The producer already holds as many records as it may. Nothing was queued."""


class LogUnreachable(Exception):
    """No broker answered in the given time."""


class LogForbidden(LogUnreachable):
    """The log answers, and forbids something to this client's user; names it and the right.

    Waiting may help: somebody may give the right.
    """


def check_allowed(
    error: KafkaError | KafkaException | None, resource: str, right: str = "READ"
) -> None:
    """Raise LogForbidden if an error is about a missing right on, for example, `topic location`."""
    if forbidden_kind(error) == resource.partition(" ")[0]:
        raise LogForbidden(forbidden_text(resource, right))


def client_config(bootstrap_servers: str, client_id: str, **more: Any) -> dict[str, Any]:
    """Return the properties that all clients have; names of `more` have `_` for Kafka's dots.

    The properties for logging in are in the file that `WAYLOG_KAFKA_CONFIG` names
    (waylog.kafka.connection.properties).
    """
    return (
        {
            "bootstrap.servers": bootstrap_servers,
            "client.id": client_id,
            # A restarted broker is back within a second, and is found as quickly.
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
            "topic.metadata.refresh.interval.ms": 30_000,
            "allow.auto.create.topics": False,
            "log.connection.close": False,
            # Failures arrive as errors; a log line for every refused connection is of no use.
            "log_level": 2,
        }
        | configured_properties()
        | {name.replace("_", "."): value for name, value in more.items()}
    )


def producer_config(bootstrap_servers: str, client_id: str, **more: Any) -> dict[str, Any]:
    """Return properties of an idempotent producer that waits for all in-sync replicas.

    They are for waylog.kafka.librdkafka_producer, since such a producer can have fatal errors.
    """
    return client_config(
        bootstrap_servers,
        client_id,
        **{
            "acks": "all",
            "enable_idempotence": True,
            "linger_ms": LINGER_MS,
            "compression_type": "lz4",
            # Java's default partitioner, so that every client puts a key into the same partition.
            "partitioner": "murmur2_random",
            "delivery_timeout_ms": 30_000,
            "retry_backoff_ms": 50,
            "retry_backoff_max_ms": 500,
            "batch_num_messages": 10_000,
            "queue_buffering_max_messages": 200_000,
            "queue_buffering_max_kbytes": 144 * 1024,
        }
        | more,
    )


def consumer_config(
    bootstrap_servers: str, client_id: str, group_id: str, **more: Any
) -> dict[str, Any]:
    """Return properties of a member of a consumer group that commits its offsets itself."""
    return client_config(
        bootstrap_servers,
        client_id,
        **{
            "group_id": group_id,
            "enable_auto_commit": False,
            "enable_auto_offset_store": False,
            # A group without offsets begins at the oldest record: with `latest`, the time at which
            # it joins would decide which records it gets.
            "auto_offset_reset": "earliest",
            "partition_assignment_strategy": "cooperative-sticky",
            "session_timeout_ms": 10_000,
            "fetch_wait_max_ms": 100,
            "fetch_error_backoff_ms": 50,
            # librdkafka pauses for a second when its queue is full: catching up would be slow.
            "fetch_queue_backoff_ms": 10,
            "queued_max_messages_kbytes": 16 * 1024,
            "isolation_level": "read_committed",
        }
        | more,
    )


def ensure_topics(
    bootstrap_servers: str,
    topics: Iterable[Topic] = TOPICS,
    *,
    replication_factor: int = -1,
    timeout_s: float = 60.0,
    security: Mapping[str, str] | None = None,
    result_of: Callable[[Future[None]], object] = Future.result,
) -> list[str]:
    """Create those of `topics` that are missing; return the names of those that were created.

    Existing topics get the settings that an earlier version did not give them.

    Waits until the log can be reached and, for some seconds, until it has enough brokers for the
    broker's default of `replication_factor` (-1). Raises LogUnreachable after `timeout_s`,
    LogForbidden for a missing right, KafkaException if the log refuses otherwise. `security` has
    the properties with which a client logs in. `result_of` waits for the result of a creation, and
    may raise what it likes if that is late.
    """
    admin = AdminClient(client_config(bootstrap_servers, "waylog-topics") | dict(security or {}))
    deadline = time.monotonic() + timeout_s
    wanted = {topic.name: topic for topic in topics}
    while True:
        try:
            existing = admin.list_topics(timeout=2.0).topics
            break
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise LogUnreachable(
                    f"no Kafka broker answered at {bootstrap_servers} within {timeout_s:.0f} s"
                ) from error
    update_topic_settings(admin, [topic for name, topic in wanted.items() if name in existing])
    missing = [topic for name, topic in wanted.items() if name not in existing]
    created: list[str] = []
    deadline = min(deadline, time.monotonic() + _BROKERS_COME_S)
    while missing:
        found, short = _create_topics(admin, missing, replication_factor, result_of)
        created += found
        if short and time.monotonic() > deadline:
            raise LogUnreachable(f"topic {next(iter(short))}: {next(iter(short.values()))}")
        missing = [topic for topic in missing if topic.name in short]
        if missing:
            time.sleep(_BROKERS_LOOK_S)
    return created


def _create_topics(
    admin: AdminClient,
    topics: Sequence[Topic],
    replication_factor: int,
    result_of: Callable[[Future[None]], object],
) -> tuple[list[str], dict[str, str]]:
    """Return the names of those that were created, and why others have to wait for brokers."""
    created: list[str] = []
    short: dict[str, str] = {}
    results = admin.create_topics(
        [
            NewTopic(
                topic.name,
                num_partitions=topic.partitions,
                replication_factor=replication_factor,
                config=topic.config,
            )
            for topic in topics
        ],
        request_timeout=30.0,
    )
    for name, future in results.items():
        try:
            result_of(future)
            created.append(name)
        except KafkaException as error:
            # What a client may not see is missing for it, too.
            if forbidden_kind(error) is not None:
                raise LogForbidden(
                    forbidden_text(f"topic {name}", "DESCRIBE (CREATE if it does not exist yet)")
                ) from error
            code = error.args[0].code()
            if code == KafkaError.INVALID_REPLICATION_FACTOR and replication_factor == -1:
                # In a cluster that starts, some brokers come later than others.
                short[name] = error_text(error)
            elif code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    return created, short


def append_with(
    send: Callable[..., None],
    loop: asyncio.AbstractEventLoop,
    topic: str,
    value: bytes,
    key: bytes | None,
    headers: Headers | None,
) -> asyncio.Future[RecordPosition]:
    """Hand a record to a producer's `send`; the future gets its position or AppendError."""
    future: asyncio.Future[RecordPosition] = loop.create_future()
    send(topic, value, key, list(headers) if headers else None, partial(_resolve, future))
    return future


def _resolve(
    future: asyncio.Future[RecordPosition],
    error: AppendError | None,
    position: tuple[str, int, int] | None,
) -> None:
    if future.done():
        return
    if error is None:
        assert position is not None
        future.set_result(RecordPosition(*position))
    else:
        future.set_exception(error)
        # Callers that gave up waiting (a closed connection) do not retrieve the exception.
        future.exception()
