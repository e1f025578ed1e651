"""The topic `_schemas`: a registry's state is read from it, and changes are appended to it.

Several registries may run on one topic. Each change is a transaction, and all registries have one
transactional id: whoever begins to write shuts the others out until they begin themselves. So a
registry decides by a state to which nothing can have been added when its records are stored, or
they are not stored, and it reads on and decides again. No registry is the leader, and none has to
be reached by others. What is read from a registry may be older than another one's last answer by
the time in which a record is fetched.

A record that says nothing follows each transaction: readers that expect a record at the topic's
last offset (Karapace's) would wait for ever behind the marker of a transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from gateway.schema_registry.changes import Decision
from gateway.schema_registry.errors import RegistryError
from gateway.schema_registry.metrics import RegistryMetrics
from gateway.schema_registry.records import Record, no_operation_record, read_record
from gateway.schema_registry.state import State
from waylog.kafka.clients import client_config, consumer_config, producer_config
from waylog.kafka.errors import error_text
from waylog.kafka.librdkafka_producer import LibrdkafkaProducer
from waylog.kafka.topic_log import TopicLog, TopicLogError, TopicRecord
from waylog.kafka.topics import Topic
from waylog.malformed import MALFORMED
from waylog.process.log_throttle import LogThrottle

logger = logging.getLogger(__name__)

#: Times that a change is decided again because another registry has written meanwhile.
_TRIES: Final = 8
_TIMEOUT_S: Final = 30.0
_STATE_TIMEOUT_S: Final = 60.0
_SHUT_OUT: Final = (
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
)


def schemas_topic(name: str) -> Topic:
    """Return the topic to create: compacted, with one partition, for its records have an order."""
    return Topic(name, 1, {"cleanup.policy": "compact"})


class _ShutOut(Exception):
    """Another registry has begun to write; nothing of this transaction is stored."""


class SchemaStore:
    """Reads and writes the topic, on one event loop."""

    def __init__(
        self, bootstrap_servers: str, topic: str, state: State, metrics: RegistryMetrics
    ) -> None:
        """`state` gets the records; raises KafkaException for wrong properties of clients."""
        self._metrics: Final = metrics
        self._servers: Final = bootstrap_servers
        self._topic: Final = topic
        self._state: Final = state
        self._loop: Final = asyncio.get_running_loop()
        self._unread: Final = LogThrottle()
        self._log: Final = TopicLog(
            {topic: self._read},
            consumer=consumer_config(
                *(bootstrap_servers, "waylog-schema-registry", "waylog-schema-registry"),
                enable_partition_eof=True,
                queued_max_messages_kbytes=2 * 1024,
            ),
            producer=client_config(
                *(bootstrap_servers, "waylog-schema-registry"), acks="all", linger_ms=0
            ),
            admin=client_config(bootstrap_servers, "waylog-schema-registry"),
            name="schemas",
        )
        #: The one thread in which transactions are made.
        self._writing: Final = ThreadPoolExecutor(1, thread_name_prefix="schemas-transactions")
        self._producer: LibrdkafkaProducer | None = None
        self._changing: Final = asyncio.Lock()

    @property
    def fatal(self) -> str | None:
        """None: each failed transaction gets a new producer."""
        return None

    async def start(self) -> None:
        """Read all that the topic has now; raises LogUnreachable."""
        await self._loop.run_in_executor(self._writing, self._log.start)
        await self.catch_up()

    async def close(self) -> None:
        """Close connections; a change under way is stored, or is not."""
        await self._loop.run_in_executor(None, self._log.close)
        self._writing.shutdown(wait=False, cancel_futures=True)

    async def catch_up(self) -> None:
        """Read to the present end of the topic.

        Raises RegistryError if that is not possible in time.
        """
        try:
            async with asyncio.timeout(_STATE_TIMEOUT_S):
                await asyncio.wrap_future(self._log.read_to_end(self._topic))
        except (TimeoutError, TopicLogError) as error:
            raise RegistryError(
                50002, "The topic of the schemas does not answer in time"
            ) from error

    def _read(self, record: TopicRecord) -> None:
        # In the log's thread; what waits for the end of the topic is told behind this.
        self._loop.call_soon_threadsafe(self._apply, record)

    def _apply(self, record: TopicRecord) -> None:
        try:
            read = read_record(record.key, record.value)
        except MALFORMED as error:
            self._metrics.unreadable += 1
            if self._unread.count(self._loop.time()) is not None:
                logger.warning(
                    "%s: the record at offset %d is left out: %s", self._topic, record.offset, error
                )
            return
        if read is not None:
            self._state.apply(read)

    async def change(self, decide: Callable[[], Decision]) -> Any:
        """Store the records of a decision, and return its answer once they count.

        `decide` may be called several times, each time by a newer state; what it raises is raised.
        Raises RegistryError if the log does not answer; then the change may have been stored.
        """
        async with self._changing:
            for _ in range(_TRIES):
                try:
                    await self._in_thread(self._begin)
                    await self.catch_up()
                    records, answer = decide()
                    if records:
                        await self._in_thread(self._commit, records)
                        await self.catch_up()
                        self._metrics.changes += 1
                        self._follow()
                    return answer
                except _ShutOut:
                    self._metrics.changes_again += 1
                except KafkaException as error:
                    await self._in_thread(self._drop)
                    raise RegistryError(
                        50001, f"Error in the backend data store: {error_text(error)}"
                    ) from error
            raise RegistryError(50001, "Other registries write all the time; try again")

    def _follow(self) -> None:
        """Let a record follow the transaction; it is not waited for."""
        key, value = no_operation_record()
        try:
            self._log.write(self._topic, key, value)
        except TopicLogError as error:
            logger.debug("%s: %s", self._topic, error)

    async def _in_thread(self, work: Callable[..., None], *arguments: Any) -> None:
        # Cancelling a request does not stop it: the thread would go on beside the next change.
        await asyncio.shield(self._loop.run_in_executor(self._writing, work, *arguments))

    # ---- in the thread of transactions ----

    def _begin(self) -> None:
        """Shut all other registries out, unless none has written since this was done last."""
        if self._producer is not None:
            return
        producer = LibrdkafkaProducer(
            producer_config(
                self._servers,
                "waylog-schema-registry",
                transactional_id=f"waylog-schema-registry-{self._topic}",
                linger_ms=0,
                transaction_timeout_ms=int(_TIMEOUT_S * 1000),
            )
        )
        producer.init_transactions(_TIMEOUT_S)
        self._producer = producer

    def _commit(self, records: Sequence[Record]) -> None:
        producer = self._producer
        assert producer is not None
        try:
            producer.begin_transaction()
            for key, value in records:
                producer.produce(self._topic, value, key, partition=0)
            producer.commit_transaction(_TIMEOUT_S)
        except KafkaException as error:
            # What became of the transaction is known when the next producer has begun.
            self._drop()
            if _is_shut_out(error):
                raise _ShutOut from error
            raise

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()


def _is_shut_out(error: KafkaException) -> bool:
    """Tell whether a transaction was given up, so that nothing of it is stored."""
    cause: KafkaError = error.args[0]
    return cause.code() in _SHUT_OUT or cause.txn_requires_abort()
