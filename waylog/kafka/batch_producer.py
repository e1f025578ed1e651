"""A producer of our own: one request to a broker for all its partitions, without a thread.

librdkafka sends a request for each partition and works record by record in threads of its own; in a
gateway that was the largest part of the cost of a fix (docs/decisions/0011).

The guarantees are those that `waylog.kafka.clients.producer_config` asks of librdkafka: acks=all,
and idempotence (each batch carries the producer's id and a sequence number, by which the broker
recognises a repetition). Only one batch of a partition is in flight, so that order is kept. A batch
that may have been stored keeps its number until the log says what became of it, however long that
takes; and a partition that needs another producer id leaves the other partitions theirs (as Apache
Kafka's Java client since KIP-360), or what they repeat would be stored twice. The number of a batch
that was sent and failed is never given to another one: the producer goes on in a new epoch.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from waylog.kafka.append_errors import IDENTITY_LOST, LEADER_WRONG, PERHAPS_STORED, RETRIABLE
from waylog.kafka.append_refusals import AppendRefusals
from waylog.kafka.clients import LINGER_MS, Headers, RecordPosition, append_with
from waylog.kafka.connection.broker_connection import BrokerConnection, addresses, refusal
from waylog.kafka.connection.reach_trouble import ReachTrouble
from waylog.kafka.connection.security import ConnectionSecurity, configured_security
from waylog.kafka.protocol import requests
from waylog.kafka.protocol.error_codes import ErrorCode, reason_of
from waylog.kafka.protocol.requests import Broker, MalformedAnswer
from waylog.kafka.record_batch import Partition, RecordAccumulator, RecordBatch, monotonic_ms
from waylog.process.background import spawn
from waylog.process.log_throttle import LogThrottle

logger = logging.getLogger(__name__)

#: Bytes of the records that wait or are in flight. At least as many as the caller accepts from all
#: its users together, so that a user meets the limit of its own share before this one, and nobody
#: is refused because of others.
BYTES_MAX: Final = 144 * 1024 * 1024
_REQUEST_BYTES_MAX: Final = 8 * 1024 * 1024
DELIVERY_TIMEOUT_MS: Final = 30_000
STALLED_S: Final = 10.0
#: Time that a broker may wait for the replicas; below it, the time that we wait for the broker.
_APPEND_TIMEOUT_MS: Final = 10_000
_ANSWER_TIMEOUT_S: Final = 12.0
#: While earlier records are unacknowledged, records wait up to this instead of LINGER_MS: each
#: request costs the log a sync, and its readers a fetch.
_HOLD_S: Final = 0.1
_BACKOFF_S: Final = 0.05
_BACKOFF_MAX_S: Final = 1.0
_REFRESH_S: Final = 30.0
_LOOK_AFTER_S: Final = 0.5
_REQUESTS_UNDER_WAY_MAX: Final = 5
_REFUSED_PATIENCE_MS: Final = 1_000
_EPOCH_MAX: Final = 0x7FFF


class BatchProducer:
    """A producer that reports on one event loop when the log has acknowledged its records.

    `append` returns a future; `send` takes a plain callback, which is cheaper at thousands of
    records a second. All methods are called on the event loop's thread.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        client_id: str,
        loop: asyncio.AbstractEventLoop,
        *,
        linger_ms: int = LINGER_MS,
        delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS,
        stalled_s: float = STALLED_S,
        security: ConnectionSecurity | None = None,
    ) -> None:
        """A record fails that is not acknowledged within `delivery_timeout_ms`.

        One that may have been stored by then is still repeated: its callback is told that it timed
        out, but a waylog.kafka.record_batch.Delivery waits for the log's answer.

        `trouble` says so when records have waited for `stalled_s` without any acknowledgement.

        Without `security` the file of the environment says how connections are secured
        (waylog.kafka.connection.properties); raises ConfigError if it cannot be read or understood.
        """
        self._loop = loop
        self._security = configured_security() if security is None else security
        self._delivery_timeout_ms = delivery_timeout_ms
        self._stalled_s = stalled_s
        self._client_id = client_id
        self._bootstrap_servers = bootstrap_servers
        self._bootstrap = addresses(bootstrap_servers)
        self._linger_s = linger_ms / 1000
        #: Takes the records; Cython code, which has no Python objects for `send`, uses it directly.
        self.accumulator = RecordAccumulator(BYTES_MAX, self._first_waits, self._ask_for_metadata)
        #: Queue one record, `send(topic, value, key, headers, on_delivery)`; see
        #: RecordAccumulator.send.
        self.send = self.accumulator.send
        self._brokers: dict[int, Broker] = {}
        self._connections: dict[int, BrokerConnection] = {}
        self._connecting: set[int] = set()
        # The producer id and epoch for partitions that have none; None: the log is asked for one.
        self._identity: tuple[int, int] | None = None
        self._waiting_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._is_closed = False
        self._refusals = AppendRefusals()
        self._refused_said = LogThrottle()
        #: Time of the last acknowledgement, on the loop's clock.
        self.acknowledged_at = -math.inf
        # When records began to wait, or were looked at last while none waited.
        self._idle_at = loop.time()
        # Why no broker can be asked, and why a leader cannot be reached.
        self._outside = ReachTrouble(bootstrap_servers, self._security)
        self._leaderless = ReachTrouble(bootstrap_servers, self._security, quiet=True)
        # Not a connection that appends: its answers may have to wait for the replicas.
        self._asking: BrokerConnection | None = None
        self._metadata_wanted = asyncio.Event()
        self._metadata_wanted.set()
        self._tasks = {
            spawn(self._keep_metadata(), "the producer's metadata", loop=loop, endless=True)
        }
        self._watch = loop.call_later(_LOOK_AFTER_S, self._look_after)

    def append(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Headers | None = None,
    ) -> asyncio.Future[RecordPosition]:
        """Queue one record; the future gets its position or AppendError. Raises as `send` does."""
        return append_with(self.send, self._loop, topic, value, key, headers)

    def __len__(self) -> int:
        """Return the number of records that wait for their acknowledgement."""
        return self.accumulator.records

    @property
    def fatal(self) -> str | None:
        """The reason why this producer can never append again; None while it can."""
        return self.accumulator.refusing

    @property
    def trouble(self) -> str | None:
        """The reason why nothing can be appended now, if one is known; else None."""
        if self.accumulator.refusing is not None:
            return self.accumulator.refusing
        kept_out = self._outside.kept_out or self._leaderless.kept_out
        if kept_out is not None:
            return kept_out
        now = self._loop.time()
        waited_s = now - max(self._idle_at, self.acknowledged_at)
        stalled = f"the log has acknowledged nothing for {waited_s:.0f} s"
        return self._refusals.reason(now) or (
            stalled if len(self) and waited_s > self._stalled_s else None
        )

    async def close(self, timeout_s: float = 10.0) -> int:
        """Wait up to `timeout_s` for all acknowledgements; return how many are missing.

        Nothing is sent afterwards.
        """
        deadline = self._loop.time() + timeout_s
        self._closing = True
        while len(self) and self._loop.time() < deadline:
            self._flush()
            await asyncio.sleep(0.002)
        self._is_closed = True
        self._watch.cancel()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in list(self._connections.values()):
            connection.close()
        if self._asking is not None:
            self._asking.close()
        return len(self)

    # --- when to send ---------------------------------------------------------------------------

    def _first_waits(self) -> None:
        if not self._waiting_since:
            self._waiting_since = self._loop.time()
        if self._timer is None and not self._is_closed:
            self._timer = self._loop.call_later(self._linger_s, self._flush)

    def _flush(self) -> None:
        """Send what is due and can be sent now; set a timer for the rest."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_closed:
            # Connections that are closed tell so of what they have not answered.
            return
        now = self._loop.time()
        if self._is_due(now):
            self._send_batches(now)
        if not self.accumulator.waiting:
            self._waiting_since = 0.0
        else:
            left = self._waiting_since + self._linger_s - now
            self._timer = self._loop.call_later(max(left, _BACKOFF_S / 5), self._flush)

    def _is_due(self, now: float) -> bool:
        waited_s = now - self._waiting_since
        return self._closing or (
            waited_s >= self._linger_s
            and (
                waited_s >= _HOLD_S or not any(each.waiting for each in self._connections.values())
            )
        )

    def _send_batches(self, now: float) -> None:
        ready: dict[int, list[Partition]] = {}
        for partition in self.accumulator.waiting:
            if partition.in_flight or partition.not_before > now:
                continue
            if partition.leader < 0:
                self._metadata_wanted.set()
                continue
            if partition.producer_id < 0:
                if self._identity is None:
                    self._metadata_wanted.set()
                    continue
                partition.identify(*self._identity)
            ready.setdefault(partition.leader, []).append(partition)
        for node, partitions in ready.items():
            connection = self._connections.get(node)
            if connection is None or not connection.is_open:
                self._connect(node)
            elif connection.waiting < _REQUESTS_UNDER_WAY_MAX:
                self._send_to(connection, node, partitions)
        if self.accumulator.waiting:
            # Records that did not fit into this request wait for the next one.
            self._waiting_since = now

    def _send_to(self, connection: BrokerConnection, node: int, ready: list[Partition]) -> None:
        under_way: dict[tuple[str, int], tuple[Partition, RecordBatch]] = {}
        batches: list[tuple[str, int, bytes]] = []
        size = 0
        for partition in ready:
            if size > _REQUEST_BYTES_MAX:
                break
            batch = self.accumulator.taken(partition)
            encoded = batch.encoded(
                partition.producer_id, partition.producer_epoch, partition.next_sequence
            )
            size += len(encoded)
            partition.in_flight = True
            under_way[partition.topic, partition.index] = (partition, batch)
            batches.append((partition.topic, partition.index, encoded))
        connection.request(
            requests.PRODUCE,
            requests.produce(batches, _APPEND_TIMEOUT_MS),
            _ANSWER_TIMEOUT_S,
            partial(self._answered, node, connection, under_way),
        )

    # --- answers --------------------------------------------------------------------------------

    def _answered(
        self,
        node: int,
        connection: BrokerConnection,
        under_way: dict[tuple[str, int], tuple[Partition, RecordBatch]],
        body: bytes | None,
    ) -> None:
        if body is not None:
            try:
                for topic, index, error, base_offset in requests.read_produce(body):
                    entry = under_way.pop((topic, index), None)
                    if entry is not None:
                        self._batch_answered(*entry, error, base_offset)
            except MalformedAnswer as problem:
                logger.error("broker %d: %s", node, problem)
                body = None
        for partition, batch in under_way.values():
            # No answer for it: it may be stored. Repeating the sequence number does no harm.
            batch.attempted = True
            self._again(partition, batch)
        if body is None:
            if self._connections.get(node) is connection:
                del self._connections[node]
            connection.close()
            self._metadata_wanted.set()
        if self.accumulator.waiting:
            self._flush()

    def _batch_answered(
        self, partition: Partition, batch: RecordBatch, error: int, offset: int
    ) -> None:
        if error in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._refusals.stored()
            self.acknowledged_at = self._loop.time()
            partition.in_flight = False
            partition.next_sequence = (partition.next_sequence + batch.count) & 0x7FFFFFFF
            self.accumulator.done(partition, batch, -1 if error else offset, 0)
            return
        if error in IDENTITY_LOST:
            logger.warning(
                "%s-%d: %s; going on under a new producer id",
                *(partition.topic, partition.index, reason_of(error)),
            )
            self._change_identity(partition)
            self._again(partition, batch)
        elif error in RETRIABLE:
            self._refusals.refused(error, self._loop.time())
            if error in LEADER_WRONG:
                partition.leader = -1
                self._metadata_wanted.set()
            batch.attempted = batch.attempted or error in PERHAPS_STORED
            self._again(partition, batch)
        else:
            partition.in_flight = False
            self._renumber(partition)
            self._tell_refused(partition, batch, error)
            self.accumulator.done(partition, batch, -1, error)

    def _tell_refused(self, partition: Partition, batch: RecordBatch, error: int) -> None:
        """Log a refusal that no repetition of the batch changes: an operator has to do something.

        Senders that hear of it only as "not stored" repeat what they have sent for ever.
        """
        unsaid = self._refused_said.count(self._loop.time())
        if unsaid is None:
            return
        todo = ""
        if error == ErrorCode.MESSAGE_TOO_LARGE:
            todo = f"; raise max.message.bytes of topic {partition.topic}"
        logger.error(
            "%s-%d: the log refuses %d records, and would again: %s%s%s",
            *(partition.topic, partition.index, batch.count, reason_of(error), todo),
            f" ({unsaid} more batches since the last such line)" if unsaid else "",
        )

    def _again(self, partition: Partition, batch: RecordBatch) -> None:
        partition.in_flight = False
        partition.not_before = self._loop.time() + _BACKOFF_S
        first = not self.accumulator.waiting
        self.accumulator.put_back(partition, batch)
        if first:
            self._first_waits()

    def _look_after(self) -> None:
        self._watch = self._loop.call_later(_LOOK_AFTER_S, self._look_after)
        if not len(self):
            self._idle_at = self._loop.time()
        for connection in list(self._connections.values()):
            connection.look_after()
        if self.accumulator.waiting and self._timer is None:
            # A flush that failed has not set the timer again.
            self._flush()
        # A full disk stays full: fail the records soon, so that their senders keep them for later.
        full = self._refusals.disk_refuses(self._loop.time())
        patience_ms = _REFUSED_PATIENCE_MS if full else self._delivery_timeout_ms
        too_old = monotonic_ms() - patience_ms
        for partition in self.accumulator.fail_before(too_old, ErrorCode.MESSAGE_TIMED_OUT):
            self._renumber(partition)

    # --- brokers --------------------------------------------------------------------------------

    def _ask_for_metadata(self, topic: str) -> None:
        logger.debug("asking for the partitions of %s", topic)
        self._metadata_wanted.set()

    def _connect(self, node: int) -> None:
        if node not in self._connecting and node in self._brokers:
            self._connecting.add(node)
            self._start(self._connected(node))

    async def _connected(self, node: int) -> None:
        broker = self._brokers[node]
        try:
            connection = await self._connection_to(broker)
        except OSError as error:
            logger.debug("broker %d cannot be reached: %s", node, error)
            self._metadata_wanted.set()
            await self._leaderless.failed({broker: error})
            # A login that is refused once is refused again; a broker counts them.
            await asyncio.sleep(_BACKOFF_S if refusal(error) is None else _BACKOFF_MAX_S)
            return
        finally:
            self._connecting.discard(node)
        self._leaderless.succeeded()
        self._connections[node] = connection
        self._flush()

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = spawn(coroutine, "connecting to a broker", loop=self._loop)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep_metadata(self) -> None:
        """Keep the leaders and the producer id up to date, for ever."""
        backoff_s = _BACKOFF_S
        while True:
            try:
                async with asyncio.timeout(_REFRESH_S):
                    await self._metadata_wanted.wait()
            except TimeoutError:
                pass
            self._metadata_wanted.clear()
            settled = await self._refresh()
            if self.accumulator.waiting:
                self._flush()
            if settled and self._is_settled():
                backoff_s = _BACKOFF_S
                await asyncio.sleep(backoff_s)
                continue
            # No broker answers, a leader is being elected, or a topic is being created.
            self._metadata_wanted.set()
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)

    def _is_settled(self) -> bool:
        """Return whether everything that waits could be sent."""
        records = self.accumulator
        if records.refusing is not None:
            return True
        return self._identity is not None and not (
            records.unplaced or any(each.leader < 0 for each in records.waiting)
        )

    async def _refresh(self) -> bool:
        """Ask a broker, the one of the last time first; return whether one has answered."""
        asked, self._asking = self._asking, None
        failures: dict[Broker, Exception] = {}
        for broker in [None, *self._brokers.values(), *self._bootstrap]:
            connection = asked if broker is None else None
            try:
                if broker is not None:
                    connection = await self._connection_to(broker)
                if connection is None:
                    continue
                await self._learn(connection)
            except (OSError, UnicodeError, MalformedAnswer) as error:
                logger.debug("%s cannot be asked: %s", broker, error)
                if broker is not None:
                    failures[broker] = error
                if connection is not None:
                    connection.close()
                continue
            except BaseException:
                if connection is not None:
                    connection.close()
                raise
            self._asking = connection
            self._outside.succeeded()
            return True
        await self._outside.failed(failures)
        return False

    async def _connection_to(self, broker: Broker) -> BrokerConnection:
        return await BrokerConnection.connect(self._loop, broker, self._client_id, self._security)

    async def _learn(self, connection: BrokerConnection) -> None:
        body = await connection.ask(
            requests.METADATA, requests.metadata(self.accumulator.topics), _ANSWER_TIMEOUT_S
        )
        metadata = requests.read_metadata(body)
        for node, broker in self._brokers.items():
            if metadata.brokers.get(node, broker) != broker and node in self._connections:
                self._connections[node].close()
        self._brokers = metadata.brokers
        for topic in metadata.topics:
            if topic.error:
                logger.debug("topic %s: %s", topic.name, reason_of(topic.error))
                if topic.error not in RETRIABLE:
                    self.accumulator.refused(topic.name, topic.error)
                continue
            self.accumulator.placed(topic.name, len(topic.partitions))
            known = self.accumulator.partitions(topic.name)
            for index, leader in topic.partitions:
                if index < len(known):
                    known[index].leader = leader
        if self._identity is None and self.accumulator.refusing is None:
            body = await connection.ask(
                requests.INIT_PRODUCER_ID, requests.init_producer_id(), _ANSWER_TIMEOUT_S
            )
            error, producer_id, epoch = requests.read_init_producer_id(body)
            if not error:
                self._identity = (producer_id, epoch)
            elif error not in RETRIABLE:
                self.accumulator.refusing = f"the log gives this producer no id: {reason_of(error)}"
                logger.critical("the producer cannot go on: %s", reason_of(error))

    def _renumber(self, partition: Partition) -> None:
        """Go on under the next epoch after a batch that is given up, as Kafka's Java client.

        The log may have it in spite of its error, and would take the next batch, which has the same
        number, for a repetition: that one would be acknowledged and lost.
        """
        if partition.producer_id < 0:
            return
        if partition.producer_epoch < _EPOCH_MAX:
            partition.identify(partition.producer_id, partition.producer_epoch + 1)
        else:
            self._change_identity(partition)

    def _change_identity(self, partition: Partition) -> None:
        """Give a partition another producer id.

        The other partitions keep theirs: a batch that may be stored under it would be stored again
        under another.
        """
        if self._identity is not None and self._identity[0] == partition.producer_id:
            self._identity = None
            self._metadata_wanted.set()
        partition.producer_id = -1
