"""Produce: appends record batches as they are, and answers when they are as durable as asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from broker_core import errors
from broker_core.coordinator.transaction import Producer
from broker_core.environment import Clock
from broker_core.log.validation import is_dear
from broker_core.protocol.produced_batches import transactional_producer
from broker_core.server.cluster.view import ClusterView
from broker_core.server.coordination.transactions import Transactions
from broker_core.server.network.request import Request, client_party
from broker_core.server.network.request_turns import RequestTurns
from broker_core.server.network.requests_in_turns import InTurns
from broker_core.server.partitions.batch_opener import (
    BatchOpener,
    Closed,
    Opened,
    Outcome,
    open_if_cheap,
)
from broker_core.server.partitions.flusher import Flusher
from broker_core.server.partitions.partition import Partition
from broker_core.server.partitions.storage_watch import StorageWatch
from broker_core.server.partitions.topics import Topic, TopicRegistry
from waylog.process.log_throttle import LogThrottle

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        ProduceRequest,
        ProduceRequestPartitionData,
        ProduceRequestTopicData,
        ProduceResponse,
        ProduceResponsePartition,
        ProduceResponseResult,
    )

logger = logging.getLogger(__name__)

_ACKS_ALL: Final = -1
_ACKS_NONE: Final = 0
_ACKS: Final = frozenset({_ACKS_ALL, _ACKS_NONE, 1})
_TOPIC_IDS_FROM: Final = 13
_ABORTABLE_FROM: Final = 11
_BROKER_ADDS_PARTITIONS_FROM: Final = 12

#: Topics and partitions of a request for which no other turn is taken.
_PARTITIONS_AT_ONCE: Final = 50
#: Partitions of a request whose batch is opened on the event loop if it expands to little.
_OPENED_AT_ONCE: Final = 8


class ProduceParts(Protocol):
    """The parts of a broker that append records and tell when they are durable."""

    clock: Clock
    topics: TopicRegistry
    flusher: Flusher
    storage: StorageWatch
    transactions: Transactions
    view: ClusterView
    batch_opener: BatchOpener
    request_turns: RequestTurns


class _Acknowledgement:
    """Answers a request when all its partitions have committed, or when its time is up."""

    __slots__ = (
        "_broker",
        "_request",
        "_response",
        "_timeout_ms",
        "_timer",
        "_waits",
        "has_failed",
        "waiting_for",
    )

    def __init__(
        self,
        broker: ProduceParts,
        request: Request[ProduceRequest, ProduceResponse],
        response: ProduceResponse,
    ) -> None:
        self._broker = broker
        #: True if the result of a partition is an error.
        self.has_failed = False
        self._request = request
        self._response = response
        self._timeout_ms: int = request.body["timeout_ms"]
        self._timer: asyncio.TimerHandle | None = None
        self._waits: list[_PartitionWait] = []
        # One for each pending partition, and one until all of them have been appended.
        self.waiting_for = 1

    def expect(
        self, partition: Partition, result: ProduceResponsePartition, end_offset: int
    ) -> None:
        """Wait until a partition has committed everything before `end_offset`."""
        self.waiting_for += 1
        wait = _PartitionWait(self, result)
        if partition.waits_for_others:
            # Only replication needs a timeout: a disk answers or fails, a broker may stay silent.
            self._waits.append(wait)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(
                    self._timeout_ms / 1000, self._request.run, self._time_out
                )
        partition.wait_durable(wait, end_offset)

    def one_less(self) -> None:
        """Count down; answer at zero."""
        self.waiting_for -= 1
        if not self.waiting_for:
            if self._timer is not None:
                self._timer.cancel()
            self._waits.clear()
            if self.has_failed:
                self._broker.view.add_leaders(self._request, self._response, self._results())
            self._request.reply(self._response)

    def _results(self) -> Iterator[tuple[str, int, ProduceResponsePartition]]:
        for each in self._response["responses"]:
            topic = self._broker.topics.by_id(each["topic_id"])
            name = each["name"] if topic is None else topic.name
            for result in each["partition_responses"]:
                yield name, result["index"], result

    def _time_out(self) -> None:
        self._timer = None
        for wait in list(self._waits):
            wait.failed(errors.RequestTimedOut.code)


class _PartitionWait:
    """One partition's part of the response; an AppendWaiter."""

    __slots__ = ("_acknowledgement", "_result")

    def __init__(self, acknowledgement: _Acknowledgement, result: ProduceResponsePartition) -> None:
        self._acknowledgement: _Acknowledgement | None = acknowledgement
        self._result = result

    def durable(self) -> None:
        """See AppendWaiter."""
        self._finish()

    def failed(self, code: int) -> None:
        """See AppendWaiter."""
        if self._acknowledgement is not None:
            self._acknowledgement.has_failed = True
            self._result["error_code"] = code
            self._result["base_offset"] = -1
        self._finish()

    def _finish(self) -> None:
        acknowledgement, self._acknowledgement = self._acknowledgement, None
        if acknowledgement is not None:
            acknowledgement.one_less()


class Producing:
    """Answers Produce requests."""

    def __init__(self, broker: ProduceParts) -> None:
        self._broker = broker
        self._refusals = _RefusalLog(broker.clock)

    def handle(self, request: Request[ProduceRequest, ProduceResponse]) -> None:
        """Answer a request, now or later."""
        topics: list[Topic | None] = []
        opens_batches = False
        for each in request.body["topic_data"]:
            topic = _named(self._broker.topics, each, request.version)
            topics.append(topic)
            if topic is not None and topic.config.opens_batches:
                opens_batches = True
        if opens_batches:
            self._open_first(request, topics)
        else:
            _Produce(self._broker, self._refusals, request, topics, {}).run()

    def _open_first(
        self, request: Request[ProduceRequest, ProduceResponse], topics: list[Topic | None]
    ) -> None:
        dear: list[tuple[ProduceRequestPartitionData, Closed]] = []
        opened: dict[int, Outcome] = {}
        for part, records, topic in _parts_to_open(request, topics):
            # The request's buffer is reused when this handler returns.
            closed = Closed(bytearray(records), topic.config, f"{topic.name}-{part['index']}")
            is_early = len(opened) + len(dear) < _OPENED_AT_ONCE
            cheap = open_if_cheap(closed) if is_early else None
            if cheap is None:
                dear.append((part, closed))
            else:
                opened[id(part)] = cheap
        if dear:
            self._open(request, topics, dear, opened)
        else:
            _Produce(self._broker, self._refusals, request, topics, opened).run()

    def _open(
        self,
        request: Request[ProduceRequest, ProduceResponse],
        topics: list[Topic | None],
        dear: list[tuple[ProduceRequestPartitionData, Closed]],
        opened: dict[int, Outcome],
    ) -> None:
        """Open batches in a thread, then go on; what the client sends behind them waits."""
        closed = {id(part): each for part, each in dear}
        for topic in request.body["topic_data"]:
            for part in topic["partition_data"]:
                own = closed.get(id(part))
                kept = bytearray(part["records"] or b"") if own is None else own.batches
                part["records"] = memoryview(kept)

        def done(outcomes: list[Outcome]) -> None:
            request.on_close = None
            opened.update((id(part), each) for (part, _), each in zip(dear, outcomes, strict=True))
            produce = _Produce(self._broker, self._refusals, request, topics, opened)
            request.run(produce.run)
            request.release()

        request.hold()
        party = client_party(request.principal, request.host)
        opener = self._broker.batch_opener
        opening = opener.open(party, [closed for _, closed in dear], done)
        request.on_close = (
            partial(opener.client_has_gone, opening, request.size)
            if request.body["acks"] == _ACKS_NONE
            else opening.cancel
        )


def _named(topics: TopicRegistry, each: ProduceRequestTopicData, version: int) -> Topic | None:
    if version >= _TOPIC_IDS_FROM:
        return topics.by_id(each["topic_id"])
    return topics.get(each["name"])


def _parts_to_open(
    request: Request[ProduceRequest, ProduceResponse], topics: list[Topic | None]
) -> Iterator[tuple[ProduceRequestPartitionData, memoryview, Topic]]:
    for each, topic in zip(request.body["topic_data"], topics, strict=True):
        if topic is None or topic.is_internal or not topic.config.opens_batches:
            continue
        for part in each["partition_data"]:
            records = part["records"]
            if records and is_dear(records, topic.config):
                yield part, records, topic


class _RefusalLog:
    """Tells of refused requests, but of each kind of error only once in a while.

    Any client can cause them as often as it likes.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._throttles: dict[int, LogThrottle] = {}

    def say(self, topic: str, partition: int, client_id: str, refusal: errors.BrokerError) -> None:
        """Log a refusal, or count it."""
        throttle = self._throttles.get(refusal.code)
        if throttle is None:
            throttle = self._throttles[refusal.code] = LogThrottle()
        unsaid = throttle.count(self._clock.monotonic())
        if unsaid is not None:
            logger.info(
                "produce to %s-%d by %s is refused: %s%s",
                topic,
                partition,
                client_id,
                refusal,
                f" ({unsaid} more such requests were refused before)" if unsaid else "",
            )


class _Produce:
    """One Produce request."""

    __slots__ = (
        "_acknowledgement",
        "_acks",
        "_broker",
        "_failed",
        "_opened",
        "_refusals",
        "_request",
        "_topics",
        "_transactional_id",
    )

    def __init__(
        self,
        broker: ProduceParts,
        refusals: _RefusalLog,
        request: Request[ProduceRequest, ProduceResponse],
        topics: list[Topic | None],
        opened: Mapping[int, Outcome],
    ) -> None:
        """`topics` are those of the request, in its order, None for one that does not exist.

        `opened` are batches of the request that are open already, by the id of their part.
        """
        self._broker = broker
        self._refusals = refusals
        self._request = request
        self._topics = topics
        self._opened = opened
        self._acks: int = request.body["acks"]
        self._transactional_id: str | None = request.body["transactional_id"]
        self._failed = False

    def run(self) -> None:
        """Append the request's records, and answer or wait.

        If there are many partitions, it goes on later.
        """
        responses: list[ProduceResponseResult] = []
        response: ProduceResponse = {"responses": responses}
        self._acknowledgement = _Acknowledgement(self._broker, self._request, response)
        steps = self._append_all(responses)
        if self._has_many():
            if not InTurns(self._broker.request_turns, self._request, steps, self._end).begin():
                self._keep_records()
            return
        for _ in steps:
            pass
        self._end()

    def _has_many(self) -> bool:
        topics = self._request.body["topic_data"]
        count = len(topics)
        for each in topics:
            count += len(each["partition_data"])
        return count > _PARTITIONS_AT_ONCE

    def _keep_records(self) -> None:
        """Copy what is not yet appended: the request's buffer is used again."""
        for topic in self._request.body["topic_data"]:
            for part in topic["partition_data"]:
                part["records"] = memoryview(bytearray(part["records"] or b""))

    def _append_all(self, responses: list[ProduceResponseResult]) -> Iterator[None]:
        """Append to a partition in each step."""
        for each, topic in zip(self._request.body["topic_data"], self._topics, strict=True):
            found = self._usable(topic)
            results: list[ProduceResponsePartition] = []
            responses.append(
                {"name": each["name"], "topic_id": each["topic_id"], "partition_responses": results}
            )
            for part in each["partition_data"]:
                result: ProduceResponsePartition = {"index": part["index"], "base_offset": -1}
                results.append(result)
                if isinstance(found, errors.BrokerError):
                    # Raised here, the error would keep this frame, and so the request, until the
                    # garbage collector finds them.
                    self._refuse(each["name"], result, found)
                    yield
                    continue
                opened = self._opened.get(id(part))
                try:
                    refused = self._append_part(found, part, result, opened)
                except errors.BrokerError as refusal:
                    self._refuse(found.name, result, refusal)
                else:
                    if refused is not None:
                        self._refuse(found.name, result, refused)
                yield

    def _end(self) -> None:
        if self._acks != _ACKS_NONE:
            self._acknowledgement.one_less()
        elif self._failed:
            # With acks=0 there is no response; the client notices the closed connection.
            self._request.disconnect()
        else:
            self._request.reply_nothing()

    def _refuse(
        self, topic: str, result: ProduceResponsePartition, refusal: errors.BrokerError
    ) -> None:
        self._acknowledgement.has_failed = True
        if isinstance(refusal, errors.KafkaStorageError):
            self._broker.storage.failed(refusal)
        result["error_code"] = refusal.code
        result["error_message"] = str(refusal)
        if isinstance(refusal, errors.InvalidRecord):
            result["record_errors"] = [
                {"batch_index": index, "batch_index_error_message": reason}
                for index, reason in refusal.record_errors
            ]
        if not self._failed and not isinstance(refusal, errors.KafkaStorageError):
            # A request may contain thousands of partitions.
            self._refusals.say(topic, result["index"], self._request.client_id, refusal)
        self._failed = True

    def _usable(self, topic: Topic | None) -> Topic | errors.BrokerError:
        if self._acks not in _ACKS:
            return errors.InvalidRequiredAcks(f"acks={self._acks}")
        if topic is None:
            by_id = self._request.version >= _TOPIC_IDS_FROM
            return errors.UnknownTopicId() if by_id else errors.UnknownTopicOrPartition()
        if topic.is_internal:
            return errors.InvalidTopic(f"{topic.name} is written by the broker alone")
        return topic

    def _append_part(
        self,
        topic: Topic,
        part: ProduceRequestPartitionData,
        result: ProduceResponsePartition,
        opened: Outcome | None,
    ) -> errors.BrokerError | None:
        """Append, or return why the batches could not be opened; raises other refusals."""
        partition = topic.partition(part["index"])
        if partition.deleted:  # in an earlier turn it was there
            raise errors.UnknownTopicOrPartition()
        if self._acks == _ACKS_ALL:
            partition.check_in_sync()
        else:
            partition.check_is_led()
        if isinstance(opened, errors.BrokerError):
            return opened
        records = part["records"]
        if not records:
            raise errors.InvalidRecord("a produce request without records")
        batches = Opened(records, None) if opened is None else opened
        producer = transactional_producer(batches.batches)
        if producer is None or partition.log.producers.is_in_transaction(producer[0]):
            self._append(partition, batches, result)
        elif self._transactional_id is None:
            raise errors.TransactionalIdAuthorizationFailed(
                "transactional records without a transactional id"
            )
        else:
            self._begin(partition, batches, Producer(self._transactional_id, *producer), result)
        return None

    def _begin(
        self,
        partition: Partition,
        batches: Opened,
        producer: Producer,
        result: ProduceResponsePartition,
    ) -> None:
        """Append the first records of a transaction, once its coordinator knows the partition.

        Clients from before KIP-890 have told the coordinator; for later ones the broker does it.
        What the client sends behind them waits: appended earlier, it would be out of order.
        """
        transactions = self._broker.transactions
        verify_only = self._request.version < _BROKER_ADDS_PARTITIONS_FROM
        if verify_only and transactions.coordinates(producer.transactional_id):
            code = transactions.coordinator.verify(producer, partition.place)
            self._append_verified(partition, batches, result, code)
            return
        # The request's buffer is reused when this handler returns.
        kept = batches._replace(batches=bytearray(batches.batches))
        self._acknowledgement.waiting_for += 1
        request = self._request
        request.hold()

        def decided(code: int) -> None:
            try:
                if partition.deleted:
                    raise errors.UnknownTopicOrPartition()
                if verify_only:
                    self._append_verified(partition, kept, result, code)
                elif code:
                    raise _refusal(code, self._request.version)
                else:
                    self._append(partition, kept, result)
            except errors.BrokerError as refusal:
                self._refuse(partition.topic, result, refusal)
            finally:
                request.release()
            self._acknowledgement.one_less()

        transactions.admit(producer, partition, verify_only=verify_only, decided=decided)

    def _append_verified(
        self,
        partition: Partition,
        batches: Opened,
        result: ProduceResponsePartition,
        code: int,
    ) -> None:
        """Append after verification; `code` counts only if the log requires a verified append."""
        try:
            self._append(partition, batches, result, verified=code == errors.NONE)
        except errors.InvalidTxnState:
            raise _refusal(code, self._request.version) from None

    def _append(
        self,
        partition: Partition,
        batches: Opened,
        result: ProduceResponsePartition,
        *,
        verified: bool = True,
    ) -> None:
        broker = self._broker
        appended = partition.append(
            batches.batches,
            broker.clock.now_ms(),
            verified=verified,
            headers=batches.headers,
        )
        result["error_code"] = errors.NONE
        result["base_offset"] = appended.base_offset
        result["log_append_time_ms"] = appended.log_append_time_ms
        result["log_start_offset"] = appended.log_start_offset
        end_offset = appended.last_offset + 1
        flushes_first = partition.acknowledges_after_flush
        if not flushes_first:
            partition.advance()
            broker.flusher.appended(partition)
        # What is committed needs no wait.
        if self._acks == _ACKS_ALL and partition.high_watermark < end_offset:
            self._acknowledgement.expect(partition, result, end_offset)
        if flushes_first:
            broker.flusher.request(partition)


#: Errors that the client should retry; many clients do that only for NotEnoughReplicas.
_AGAIN: Final = frozenset(
    {
        errors.ConcurrentTransactions.code,
        errors.CoordinatorNotAvailable.code,
        errors.NotCoordinator.code,
    }
)


def _refusal(code: int, version: int) -> errors.BrokerError:
    """Return why a transaction may not begin in a partition, as the client's version knows it."""
    if code == errors.ConcurrentTransactions.code and version >= _BROKER_ADDS_PARTITIONS_FROM:
        return errors.ConcurrentTransactions()
    if code in _AGAIN:
        return errors.NotEnoughReplicas("the transaction's coordinator is not ready")
    if code == errors.ProducerFenced.code:
        return errors.InvalidProducerEpoch("a newer producer has the transactional id")
    if code == errors.InvalidProducerIdMapping.code:
        return errors.InvalidProducerIdMapping()
    if version >= _ABORTABLE_FROM:
        return errors.TransactionAbortable("the partition is not part of the transaction")
    return errors.InvalidTxnState("the partition is not part of the transaction")
