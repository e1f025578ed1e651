"""Runs the transaction coordinator: stores its states, writes markers and sends answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from broker_core import errors
from broker_core.configuration.config import BrokerConfig
from broker_core.coordinator.effects import Moment, Respond, StoreTransaction, WriteMarkers
from broker_core.coordinator.offsets import OFFSETS_TOPIC
from broker_core.coordinator.transaction import (
    TRANSACTIONS_TOPIC,
    Place,
    Producer,
    Transaction,
    TransactionSettings,
    encode_transaction,
    encode_transaction_key,
)
from broker_core.coordinator.transaction_coordinator import (
    TransactionCoordinator,
    load_transaction,
)
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.control_records import EndMarker, build_end_marker
from broker_core.protocol.definitions import ADD_PARTITIONS_TO_TXN, WRITE_TXN_MARKERS
from broker_core.protocol.errors import LocalProtocolError
from broker_core.protocol.schema import Api, RequestBody, ResponseBody
from broker_core.server.coordination.coordinator_shards import CoordinatorShards
from broker_core.server.coordination.groups import Groups, coordinator_error
from broker_core.server.coordination.internal_topic import InternalTopic, read_back
from broker_core.server.partitions.flusher import Flusher
from broker_core.server.partitions.partition import AppendWaiter, Partition
from broker_core.server.partitions.topics import TopicRegistry
from waylog.process.background import failure_ends_process

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
    )

logger = logging.getLogger(__name__)

#: Seconds before a failed marker is written again, and between searches for expired ids.
_RETRY_S: Final = 0.1
_EXPIRY_INTERVAL_S: Final = 3600.0


class _StoreWait:
    """Tells the coordinator when a transaction's state is durable."""

    __slots__ = ("_effect", "_transactions")

    def __init__(self, transactions: Transactions, effect: StoreTransaction) -> None:
        self._transactions = transactions
        self._effect = effect

    def durable(self) -> None:
        """See AppendWaiter."""
        self._transactions.coordinator.stored(self._effect, self._transactions.moment())
        self._transactions.perform()

    def failed(self, code: int) -> None:
        """See AppendWaiter."""
        self._transactions.coordinator.store_failed(
            self._effect, self._transactions.moment(), coordinator_error(code)
        )
        self._transactions.perform()


class PendingMarkers:
    """Waits until markers are durable in all partitions; `done` gets error codes by partition."""

    def __init__(self, done: Callable[[dict[Place, int]], None]) -> None:
        self._done = done
        self._codes: dict[Place, int] = {}
        # One for each pending partition, and one until all partitions have been asked.
        self._waiting_for = 1

    def expect(self) -> None:
        """Wait for one more partition."""
        self._waiting_for += 1

    def finish(self, place: Place, code: int) -> None:
        """Take the result of one partition."""
        self._codes[place] = code
        self.no_more()

    def no_more(self) -> None:
        """Count down by one; callers call it once, when all partitions have been asked."""
        self._waiting_for -= 1
        if not self._waiting_for:
            self._done(self._codes)


class _PartitionMarker:
    """The marker of one partition; an AppendWaiter."""

    __slots__ = ("_committed", "_groups", "_place", "_producer_id", "_wait")

    def __init__(
        self, groups: Groups, wait: PendingMarkers, place: Place, producer_id: int, committed: bool
    ) -> None:
        self._groups = groups
        self._wait = wait
        self._place = place
        self._producer_id = producer_id
        self._committed = committed

    def durable(self) -> None:
        """See AppendWaiter."""
        topic, partition = self._place
        if topic == OFFSETS_TOPIC:
            self._groups.end_transaction(partition, self._producer_id, self._committed)
        self._wait.finish(self._place, errors.NONE)

    def failed(self, code: int) -> None:
        """See AppendWaiter."""
        self._wait.finish(self._place, code)


class RemoteBrokers(Protocol):
    """The other brokers of the cluster."""

    @property
    def node_id(self) -> int:
        """Id of this broker."""

    def leader_of(self, place: Place) -> int | None:
        """Return a partition's leader; -1 if it has none, None if there is no such partition."""

    def send(
        self,
        broker_id: int,
        api: Api[RequestBody, ResponseBody],
        version: int,
        body: RequestBody,
        answered: Callable[[ResponseBody | None], None],
    ) -> None:
        """Send a request to a broker; `answered` gets None without an answer."""


#: Errors after which a marker is written again.
_AGAIN: Final = frozenset(
    each.code
    for each in (
        errors.KafkaStorageError,
        errors.NotLeaderOrFollower,
        errors.UnknownTopicOrPartition,  # the metadata decides whether the topic really is gone
        errors.LeaderNotAvailable,
        errors.NotEnoughReplicas,
        errors.NotEnoughReplicasAfterAppend,
        errors.RequestTimedOut,
        errors.CoordinatorNotAvailable,
        errors.UnknownServerError,
    )
)
_ADD_VERSION: Final = 5
_MARKERS_VERSION: Final = 1


class Transactions:
    """Performs the transaction coordinator's effects, and calls it at its deadlines."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicRegistry,
        flusher: Flusher,
        groups: Groups,
        new_producer_id: Callable[[], int],
        remote: RemoteBrokers,
    ) -> None:
        self._topics = topics
        self._remote = remote
        self._flusher = flusher
        self._groups = groups
        self._loop = asyncio.get_running_loop()
        self._timers: set[asyncio.TimerHandle] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due: int | None = None
        self._closed = False
        self._topic = InternalTopic(topics, TRANSACTIONS_TOPIC)
        #: The transactional ids that are coordinated here.
        self.shards = CoordinatorShards(self._topic, self._load, self._unload)
        self.coordinator = TransactionCoordinator(
            TransactionSettings(
                timeout_max_ms=config.transaction_max_timeout_ms,
                id_expiration_ms=config.transactional_id_expiration_ms,
            ),
            new_producer_id=new_producer_id,
        )

    def moment(self) -> Moment:
        """Return the current time."""
        return self._groups.moment()

    def start(self) -> None:
        """Begin to expire transactional ids."""
        self._later(_EXPIRY_INTERVAL_S, self._expire_ids)

    def _load(self, partition: Partition) -> Iterator[int]:
        transactions: dict[str, Transaction] = {}
        # What an older record says of a transaction may be wrong: a decision would be taken back
        # of which some partitions have markers already, and an epoch given to a second producer.
        # Where a group would only read some records again, nothing is coordinated here.
        yield from read_back(
            partition,
            lambda _, key, value: load_transaction(transactions, key, value),
            lambda *_: None,
            without_damage=True,
        )
        self.coordinator.adopt(transactions, self.moment())
        # In a callback: markers may be written only after the partition counts as loaded.
        self._later(0, self.perform)

    def _unload(self, index: int) -> None:
        self.coordinator.unload(lambda each: self._topic.index_of(each) == index)
        self.perform()

    def close(self) -> None:
        """Stop the timers, and loading."""
        self._closed = True
        self.shards.close()
        for timer in (*self._timers, *((self._timer,) if self._timer else ())):
            timer.cancel()

    def place_of(self, transactional_id: str) -> Place:
        """Return the partition of an id's records; raises CoordinatorNotAvailable."""
        return self._topic.name, self._topic.index_of(transactional_id)

    def coordinates(self, transactional_id: str) -> bool:
        """Tell whether this broker coordinates a transactional id."""
        return not self.shards.refusal(transactional_id)

    def admit(
        self,
        producer: Producer,
        partition: Partition,
        *,
        verify_only: bool,
        decided: Callable[[int], None],
    ) -> None:
        """Ask the producer's coordinator whether a partition belongs to its transaction.

        Unless `verify_only`, the coordinator adds the partition. `decided` gets an error code, now
        or later; that is InvalidTxnState if the transaction ended before the answer came.
        """
        place = partition.place
        is_here = self.coordinates(producer.transactional_id)
        if is_here and verify_only:
            decided(self.coordinator.verify(producer, place))
            return
        verification = partition.verification(producer.producer_id)

        def answered(code: int) -> None:
            decided(verification.end(code))

        if not is_here:
            self._admit_elsewhere(producer, place, verify_only, answered)
        else:
            self.coordinator.add_partitions(
                producer, [place], lambda verdict: answered(verdict["error_code"]), self.moment()
            )
            self.perform()

    def _admit_elsewhere(
        self, producer: Producer, place: Place, verify_only: bool, decided: Callable[[int], None]
    ) -> None:
        try:
            leader = self._remote.leader_of(self.place_of(producer.transactional_id))
        except errors.CoordinatorNotAvailable:
            leader = None
        if leader is None or leader < 0 or leader == self._remote.node_id:
            decided(errors.CoordinatorNotAvailable.code)
            return
        topic, partition = place
        body: AddPartitionsToTxnRequest = {
            "transactions": [
                {
                    "transactional_id": producer.transactional_id,
                    "producer_id": producer.producer_id,
                    "producer_epoch": producer.epoch,
                    "verify_only": verify_only,
                    "topics": [{"name": topic, "partitions": [partition]}],
                }
            ]
        }

        def answered(answer: AddPartitionsToTxnResponse | None) -> None:
            if answer is None:
                decided(errors.CoordinatorNotAvailable.code)
            elif answer["error_code"]:
                decided(answer["error_code"])
            else:
                (found,) = answer["results_by_transaction"][0]["topic_results"]
                decided(found["results_by_partition"][0]["partition_error_code"])

        self._remote.send(leader, ADD_PARTITIONS_TO_TXN, _ADD_VERSION, body, answered)

    def perform(self) -> None:
        """Perform the coordinator's effects until there are no more."""
        with failure_ends_process(self._loop, "the transaction coordinator"):
            while effects := self.coordinator.take_effects():
                for effect in effects:
                    if isinstance(effect, Respond):
                        answer = effect.token
                        assert callable(answer)
                        answer(effect.response)
                    elif isinstance(effect, StoreTransaction):
                        self._store(effect)
                    else:
                        self._write_markers(effect, effect.partitions)
            self._set_timer()

    def _store(self, effect: StoreTransaction) -> None:
        now = self.moment()
        after = effect.transaction
        try:
            value = None if after is None else encode_transaction(after)
            row = (now.wall_ms, encode_transaction_key(effect.transactional_id), value, ())
            partition = self._topic.partition_of(effect.transactional_id)
            partition.check_in_sync()
            result = partition.append(build_batch([row]), now.wall_ms)
        except errors.BrokerError as error:
            logger.error("transaction of %s cannot be stored: %s", effect.transactional_id, error)
            self.coordinator.store_failed(effect, now, coordinator_error(error.code))
            return
        except (LocalProtocolError, OverflowError):
            # No client can cause it; if one could, it must not end the broker.
            logger.exception("transaction of %s cannot be encoded", effect.transactional_id)
            self.coordinator.store_failed(effect, now, errors.UnknownServerError.code)
            return
        self._wait_durable(partition, _StoreWait(self, effect), result.last_offset + 1)

    def _wait_durable(self, partition: Partition, waiter: AppendWaiter, end_offset: int) -> None:
        self._flusher.wait_durable(partition, waiter, end_offset)

    # ------------------------------------------------------------------------------------ markers

    def _write_markers(self, effect: WriteMarkers, places: Iterable[Place]) -> None:
        def done(codes: dict[Place, int]) -> None:
            # Other errors are final: a transaction with an outdated epoch needs no marker.
            failed = [place for place, code in codes.items() if code in _AGAIN]
            if failed:
                self._later(_RETRY_S, lambda: self._write_markers(effect, failed))
            else:
                self.coordinator.markers_written(effect, self.moment())
                self.perform()

        if not self.coordinator.is_marking(effect):
            return  # another broker is the coordinator now
        after = effect.transaction
        try:
            epoch = self._topic.partition_of(after.transactional_id).leader_epoch
        except errors.BrokerError:
            return  # as above
        producer = (after.producer_id, after.epoch)
        marker = EndMarker(effect.committed, epoch)
        wait = PendingMarkers(done)
        here: list[Place] = []
        elsewhere: dict[int, list[Place]] = {}
        for place in sorted(places):
            leader = self._remote.leader_of(place)
            if leader == self._remote.node_id:
                here.append(place)
            elif leader is not None:
                elsewhere.setdefault(leader, []).append(place)
        for leader, theirs in elsewhere.items():
            self._send_markers(leader, theirs, producer, marker, wait)
        self.write_markers(here, producer, marker, wait)

    def _send_markers(
        self,
        leader: int,
        places: list[Place],
        producer: tuple[int, int],
        marker: EndMarker,
        wait: PendingMarkers,
    ) -> None:
        topics: dict[str, list[int]] = {}
        for topic, partition in places:
            topics.setdefault(topic, []).append(partition)
            wait.expect()
        body: WriteTxnMarkersRequest = {
            "markers": [
                {
                    "producer_id": producer[0],
                    "producer_epoch": producer[1],
                    "transaction_result": marker.committed,
                    "topics": [
                        {"name": name, "partition_indexes": indexes}
                        for name, indexes in topics.items()
                    ],
                    "coordinator_epoch": marker.coordinator_epoch,
                    "transaction_version": 0,
                }
            ]
        }

        def answered(answer: WriteTxnMarkersResponse | None) -> None:
            codes = dict.fromkeys(places, errors.NotLeaderOrFollower.code)
            for found in answer["markers"] if answer is not None else ():
                for topic in found["topics"]:
                    for each in topic["partitions"]:
                        codes[topic["name"], each["partition_index"]] = each["error_code"]
            for place, code in codes.items():
                wait.finish(place, code)

        if leader < 0:
            answered(None)
        else:
            self._remote.send(leader, WRITE_TXN_MARKERS, _MARKERS_VERSION, body, answered)

    def write_markers(
        self,
        places: Iterable[Place],
        producer: tuple[int, int],
        marker: EndMarker,
        wait: PendingMarkers,
    ) -> None:
        """Append a marker that ends the transaction of a producer (id, epoch) in partitions."""
        for place in places:
            wait.expect()
            partition = self._topics.partition(*place)
            if partition is None:
                wait.finish(place, errors.UnknownTopicOrPartition.code)
                continue
            now_ms = self.moment().wall_ms
            try:
                partition.check_in_sync()
                result = partition.append_from_coordinator(
                    build_end_marker(*producer, marker, now_ms), now_ms, marker
                )
            except errors.BrokerError as error:
                logger.warning("no marker of producer %d in %s: %s", producer[0], partition, error)
                wait.finish(place, error.code)
                continue
            waiter = _PartitionMarker(self._groups, wait, place, producer[0], marker.committed)
            self._wait_durable(partition, waiter, result.last_offset + 1)
        wait.no_more()

    # --------------------------------------------------------------------------------------- time

    def _later(self, delay_s: float, action: Callable[[], Any]) -> None:
        if self._closed:
            return

        def run() -> None:
            self._timers.discard(timer)
            action()

        timer = self._loop.call_later(delay_s, run)
        self._timers.add(timer)

    def _set_timer(self) -> None:
        due = self.coordinator.next_deadline()
        if due == self._timer_due or self._closed:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_due = due
        if due is not None:
            delay_ms = max(due - self.moment().monotonic_ms, 0)
            self._timer = self._loop.call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._timer_due = None
        self.coordinator.tick(self.moment())
        self.perform()

    def _expire_ids(self) -> None:
        self.coordinator.expire_ids(self.moment())
        self.perform()
        self._later(_EXPIRY_INTERVAL_S, self._expire_ids)
