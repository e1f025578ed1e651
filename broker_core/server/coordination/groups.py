"""Runs the group coordinator: stores its records, sets its timers and sends its answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from broker_core import errors
from broker_core.configuration.config import BrokerConfig
from broker_core.coordinator.effects import Append, Moment, Respond
from broker_core.coordinator.groups.consumer_group import ConsumerGroup, ConsumerGroupSettings
from broker_core.coordinator.groups.group_coordinator import GroupCoordinator
from broker_core.coordinator.groups.offset_coordinator import GroupSettings
from broker_core.coordinator.offsets import OFFSETS_TOPIC
from broker_core.environment import Environment
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.batch_header import BatchHeader
from broker_core.server.coordination.coordinator_shards import CoordinatorShards
from broker_core.server.coordination.internal_topic import InternalTopic, read_back
from broker_core.server.partitions.flusher import Flusher
from broker_core.server.partitions.partition import Partition
from broker_core.server.partitions.topics import TopicRegistry
from waylog.process.background import failure_ends_process

logger = logging.getLogger(__name__)

#: Token of a `Respond` effect: called with the response.
Answer = Callable[[Any], None]


_TOO_LARGE: Final = frozenset({errors.MessageTooLarge.code, errors.RecordListTooLarge.code})


class _AppendWait:
    """Tells the coordinator when its records are durable."""

    __slots__ = ("_effect", "_groups")

    def __init__(self, groups: Groups, effect: Append) -> None:
        self._groups = groups
        self._effect = effect

    def durable(self) -> None:
        """See AppendWaiter."""
        self._groups.coordinator.appended(self._effect, self._groups.moment())
        self._groups.perform()

    def failed(self, code: int) -> None:
        """See AppendWaiter."""
        self._groups.coordinator.append_failed(
            self._effect, self._groups.moment(), coordinator_error(code)
        )
        self._groups.perform()


def coordinator_error(code: int) -> int:
    """Return a client's error code for a coordinator's append that failed with `code`."""
    if code == errors.NotLeaderOrFollower.code:
        return errors.NotCoordinator.code
    if code in _TOO_LARGE:
        # Another attempt would fail as well, here and at any other coordinator.
        return errors.UnknownServerError.code
    return errors.CoordinatorNotAvailable.code


class SubscribableTopics:
    """The topics to which groups can subscribe; see TopicView."""

    def __init__(self, topics: TopicRegistry) -> None:
        self._topics = topics

    @property
    def version(self) -> int:
        """See TopicView."""
        return self._topics.version

    def names(self) -> Iterator[str]:
        """See TopicView."""
        return (topic.name for topic in self._topics if not topic.is_internal)

    def find(self, name: str) -> tuple[bytes, int] | None:
        """See TopicView."""
        topic = self._topics.get(name)
        return None if topic is None else (topic.topic_id, topic.partition_count)

    def name_of(self, topic_id: bytes) -> str | None:
        """See TopicView."""
        topic = self._topics.by_id(topic_id)
        return None if topic is None else topic.name


#: Called with an error code when something has been stored, or could not be; 0 is no error.
Stored = Callable[[int], None]


class StoreWait:
    """An AppendWaiter that calls `stored`."""

    __slots__ = ("_stored",)

    def __init__(self, stored: Stored) -> None:
        self._stored = stored

    def durable(self) -> None:
        """See AppendWaiter."""
        self._stored(errors.NONE)

    def failed(self, code: int) -> None:
        """See AppendWaiter."""
        self._stored(coordinator_error(code))


class ForeignRecords(Protocol):
    """Owner of other records in the groups' topic: the share groups."""

    def take(self, key: bytes, value: bytes | None) -> bool:
        """Load a record; return False for one of another kind."""

    def unload(self, is_gone: Callable[[str], bool]) -> None:
        """Forget groups that are coordinated elsewhere now."""


class Groups:
    """Performs the group coordinator's effects, and calls it at its deadlines."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicRegistry,
        flusher: Flusher,
        environment: Environment,
    ) -> None:
        self._config = config
        self._flusher = flusher
        self._clock = environment.clock
        self._new_uuid = environment.new_uuid
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due: int | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._closed = False
        self._topic = InternalTopic(topics, OFFSETS_TOPIC)
        self.beside: ForeignRecords | None = None
        #: The groups that are coordinated here.
        self.shards = CoordinatorShards(self._topic, self._load, self._unload)
        self.coordinator = GroupCoordinator(
            GroupSettings(
                initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
                session_timeout_min_ms=config.group_min_session_timeout_ms,
                session_timeout_max_ms=config.group_max_session_timeout_ms,
                size_max=config.group_max_size,
                offset_metadata_bytes_max=config.offset_metadata_max_bytes,
                offsets_retention_ms=config.offsets_retention_minutes * 60_000,
                consumer=ConsumerGroupSettings(
                    session_timeout_ms=config.group_consumer_session_timeout_ms,
                    heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
                    size_max=config.group_consumer_max_size,
                ),
                migration=config.group_consumer_migration_policy,
            ),
            topics=SubscribableTopics(topics),
            new_id=self.new_member_id,
        )

    def new_member_id(self) -> str:
        """Return a random member id."""
        return str(self._new_uuid())

    def moment(self) -> Moment:
        """Return the current time."""
        return Moment(int(self._clock.monotonic() * 1000), self._clock.now_ms())

    def settings_changed(self, group_id: str) -> None:
        """Apply changed settings of a group."""
        group, settings = self.coordinator.groups.get(group_id), self.coordinator.consumer_settings
        if isinstance(group, ConsumerGroup) and settings is not None:
            group.settings = settings(group_id)

    def start(self) -> None:
        """Begin to expire offsets."""
        self._expire_offsets()

    def _load(self, partition: Partition) -> Iterator[int]:
        now = self.moment()
        loader = self.coordinator.begin_loading()

        def take(header: BatchHeader, key: bytes, value: bytes | None) -> None:
            if self.beside is not None and self.beside.take(key, value):
                return
            producer_id = header.producer_id if header.is_transactional else None
            loader.load(key, value, now, producer_id)

        # Without a damaged batch, groups have offsets that were committed before: their members
        # read some records again, as after any failure. To refuse all would stop the others too.
        yield from read_back(partition, take, loader.end_transaction)
        self.coordinator.adopt(loader, self.moment())
        self._set_timer()

    def _unload(self, index: int) -> None:
        def is_gone(group_id: str) -> bool:
            return self._topic.index_of(group_id) == index

        self.coordinator.unload(is_gone)
        if self.beside is not None:
            self.beside.unload(is_gone)
        self.perform()

    def close(self) -> None:
        """Stop the timers, and loading."""
        self._closed = True
        self.shards.close()
        for timer in (self._timer, self._expiry):
            if timer is not None:
                timer.cancel()

    def place_of(self, group_id: str) -> tuple[str, int]:
        """Return the partition of a group's records; raises CoordinatorNotAvailable."""
        return self._topic.name, self._topic.index_of(group_id)

    def check_can_store(self, group_id: str, size: int) -> None:
        """Raise UnknownServerError if a member's record would take most of what a batch may have.

        Where such a record fails to be appended, all groups of the partition are read again.
        """
        try:
            partition = self._topic.partition_of(group_id)
        except errors.BrokerError:
            return
        if 2 * size > partition.log.config.max_message_bytes:
            raise errors.UnknownServerError("the member's subscription is too large to be stored")

    def end_transaction(self, partition: int, producer_id: int, committed: bool) -> None:
        """Apply a transaction's marker in a partition of the groups' topic."""
        self.coordinator.end_transaction(
            producer_id,
            committed,
            lambda group_id: self._topic.index_of(group_id) == partition,
        )

    def forget_topic(self, name: str) -> None:
        """Remove the offsets that groups have committed for a deleted topic."""
        self.coordinator.forget_topic(name)
        self.perform()

    def perform(self) -> None:
        """Perform the coordinator's effects until there are no more."""
        with failure_ends_process(self._loop, "the group coordinator"):
            while effects := self.coordinator.take_effects():
                for effect in effects:
                    if isinstance(effect, Respond):
                        self._respond(effect)
                    else:
                        self._append(effect)
            self._set_timer()

    def _respond(self, effect: Respond) -> None:
        answer = effect.token
        assert callable(answer)
        answer(effect.response)

    def _append(self, effect: Append) -> None:
        now = self.moment()
        rows = [(now.wall_ms, key, value, ()) for key, value in effect.records]
        try:
            partition = self._topic.partition_of(effect.group_id)
            if not rows:
                self._wait_for_former(partition, effect)
                return
            partition.check_in_sync()
            if effect.producer is None:
                result = partition.append(build_batch(rows), now.wall_ms)
            else:
                producer_id, epoch = effect.producer
                batch = build_batch(
                    rows, producer_id=producer_id, producer_epoch=epoch, is_transactional=True
                )
                result = partition.append_from_coordinator(batch, now.wall_ms)
        except errors.InvalidProducerEpoch as error:
            self.coordinator.append_failed(effect, now, error.code)
            return
        except errors.BrokerError as error:
            logger.error("group %s cannot be stored: %s", effect.group_id, error)
            self.coordinator.append_failed(effect, now, coordinator_error(error.code))
            if not effect.is_awaited:
                self._loop.call_soon(self._read_again, effect.group_id)
            return
        self._flusher.wait_durable(partition, _AppendWait(self, effect), result.last_offset + 1)

    def append_beside(
        self, group_id: str, rows: list[tuple[bytes, bytes | None]], stored: Stored
    ) -> None:
        """Append records of the share groups to the groups' topic."""
        now_ms = self.moment().wall_ms
        try:
            partition = self._topic.partition_of(group_id)
            partition.check_in_sync()
            result = partition.append(
                build_batch([(now_ms, key, value, ()) for key, value in rows]), now_ms
            )
        except errors.BrokerError as error:
            logger.error("group %s cannot be stored: %s", group_id, error)
            stored(coordinator_error(error.code))
            return
        self._flusher.wait_durable(partition, StoreWait(stored), result.last_offset + 1)

    def _wait_for_former(self, partition: Partition, effect: Append) -> None:
        """Answer only when earlier appends are committed; there is nothing to store."""
        end_offset = partition.log.log_end_offset
        if end_offset <= partition.high_watermark:
            self.coordinator.appended(effect, self.moment())
        else:
            partition.wait_durable(_AppendWait(self, effect), end_offset)

    def _read_again(self, group_id: str) -> None:
        """Reload a group's partition after a failed append: only stored state is valid.

        Otherwise a later coordinator on another broker would go back to epochs that members have
        left.
        """
        try:
            partition = self._topic.partition_of(group_id)
        except errors.BrokerError:
            return
        self.shards.read_again(partition)

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
        self.catch_up()

    def catch_up(self) -> None:
        """Process deadlines that have passed, so that callers see no member with an ended session.

        The timer fires a little after a deadline: by milliseconds, on a busy machine by more.
        """
        self.coordinator.tick(self.moment())
        self.perform()

    def _expire_offsets(self) -> None:
        self.coordinator.expire_offsets(self.moment())
        self.perform()
        self._expiry = self._loop.call_later(
            self._config.offsets_retention_check_interval_ms / 1000, self._expire_offsets
        )
