"""The shell around the transaction coordinator: it stores, writes markers, waits and answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from broker_core import errors
from broker_core.config import BrokerConfig
from broker_core.coordinator.effects import Moment, Respond, StoreTransaction, WriteMarkers
from broker_core.coordinator.offsets import OFFSETS_TOPIC
from broker_core.coordinator.transaction import (
    TRANSACTIONS_TOPIC,
    Place,
    TransactionSettings,
    encode_transaction,
    encode_transaction_key,
)
from broker_core.coordinator.transaction_coordinator import (
    COORDINATOR_EPOCH,
    TransactionCoordinator,
)
from broker_core.protocol import records
from broker_core.protocol.control_records import EndMarker, build_end_marker
from broker_core.server.flusher import Flusher
from broker_core.server.groups import Groups
from broker_core.server.internal_topic import InternalTopic
from broker_core.server.partition import AppendWaiter, Partition
from broker_core.server.topics import TopicRegistry

logger = logging.getLogger(__name__)

#: How long to wait after a marker could not be written, and how often ids are looked through.
_RETRY_S: Final = 1.0
_EXPIRY_INTERVAL_S: Final = 3600.0


class _StoreWait:
    """Tells the coordinator when a state is durable."""

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
        self._transactions.coordinator.store_failed(self._effect, self._transactions.moment())
        self._transactions.perform()


class MarkerWait:
    """Waits until a marker is durable in all partitions; calls back with error codes by place."""

    def __init__(self, done: Callable[[dict[Place, int]], None]) -> None:
        self._done = done
        self._codes: dict[Place, int] = {}
        # One more than partitions until all of them have been asked.
        self._waiting_for = 1

    def expect(self) -> None:
        """One more partition."""
        self._waiting_for += 1

    def finish(self, place: Place, code: int) -> None:
        """A partition is done, or has refused."""
        self._codes[place] = code
        self.no_more()

    def no_more(self) -> None:
        """All partitions have been asked."""
        self._waiting_for -= 1
        if not self._waiting_for:
            self._done(self._codes)


class _PartitionMarker:
    """One partition's marker; see AppendWaiter."""

    __slots__ = ("_committed", "_groups", "_place", "_producer_id", "_wait")

    def __init__(
        self, groups: Groups, wait: MarkerWait, place: Place, producer_id: int, committed: bool
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


class Transactions:
    """Performs the coordinator's effects and calls it when time has come."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicRegistry,
        flusher: Flusher,
        groups: Groups,
        new_producer_id: Callable[[], int],
    ) -> None:
        self._topics = topics
        self._flusher = flusher
        self._groups = groups
        self._loop = asyncio.get_running_loop()
        self._timers: set[asyncio.TimerHandle] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due: int | None = None
        self._closed = False
        self._topic = InternalTopic(
            topics,
            TRANSACTIONS_TOPIC,
            config.transaction_topic_partitions,
            config.transaction_topic_segment_bytes,
        )
        self.coordinator = TransactionCoordinator(
            TransactionSettings(
                timeout_max_ms=config.transaction_max_timeout_ms,
                id_expiration_ms=config.transactional_id_expiration_ms,
            ),
            new_producer_id=new_producer_id,
        )

    def moment(self) -> Moment:
        """Now."""
        return self._groups.moment()

    def load(self) -> None:
        """Read all transactional ids back from the log, and finish what was decided."""
        count = self._topic.read_all(
            lambda _, key, value: self.coordinator.load(key, value), lambda *_: None
        )
        self.coordinator.finish_loading(self.moment())
        if count:
            known = len(self.coordinator.transactions)
            logger.info("%d transactional ids read from %d records", known, count)
        self.perform()
        self._later(_EXPIRY_INTERVAL_S, self._expire_ids)

    def close(self) -> None:
        """Stop the timers."""
        self._closed = True
        for timer in (*self._timers, *((self._timer,) if self._timer else ())):
            timer.cancel()

    def partition_of(self, transactional_id: str) -> Partition:
        """Where an id's records are; creates the topic with the first one."""
        return self._topic.partition_of(transactional_id)

    def perform(self) -> None:
        """Do what the coordinator wants done."""
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
        value = None if after is None else encode_transaction(after)
        row = (now.wall_ms, encode_transaction_key(effect.transactional_id), value, ())
        try:
            partition = self.partition_of(effect.transactional_id)
            result = partition.append(records.build_batch([row]), now.wall_ms)
        except errors.BrokerError as error:
            logger.error("transaction of %s cannot be stored: %s", effect.transactional_id, error)
            self.coordinator.store_failed(effect, now)
            return
        self._wait_durable(partition, _StoreWait(self, effect), result.last_offset + 1)

    def _wait_durable(self, partition: Partition, waiter: AppendWaiter, end_offset: int) -> None:
        if partition.commits_on_append:
            partition.advance()
            waiter.durable()
            return
        partition.wait_durable(waiter, end_offset)
        if partition.acknowledges_after_flush:
            self._flusher.request(partition)
        else:
            partition.advance()

    # ------------------------------------------------------------------------------------ markers

    def _write_markers(self, effect: WriteMarkers, places: Iterable[Place]) -> None:
        def done(codes: dict[Place, int]) -> None:
            # What another epoch has overtaken, and what is deleted, needs no marker any more.
            failed = [
                place for place, code in codes.items() if code == errors.KafkaStorageError.code
            ]
            if failed:
                self._later(_RETRY_S, lambda: self._write_markers(effect, failed))
            else:
                self.coordinator.markers_written(effect, self.moment())
                self.perform()

        after = effect.transaction
        self.write_markers(
            sorted(places),
            (after.producer_id, after.epoch),
            EndMarker(effect.committed, COORDINATOR_EPOCH),
            MarkerWait(done),
        )

    def write_markers(
        self,
        places: Iterable[Place],
        producer: tuple[int, int],
        marker: EndMarker,
        wait: MarkerWait,
    ) -> None:
        """End the transaction of a producer (id, epoch) in partitions."""
        for place in places:
            wait.expect()
            partition = self._topics.partition(*place)
            if partition is None:
                wait.finish(place, errors.UnknownTopicOrPartition.code)
                continue
            now_ms = self.moment().wall_ms
            try:
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
