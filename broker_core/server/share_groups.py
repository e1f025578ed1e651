"""Share groups: the shell around their members and their partitions, which stores and waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from broker_core import errors
from broker_core.config import BrokerConfig
from broker_core.coordinator.share_group import ShareAnswer, ShareGroup, ShareHeartbeat
from broker_core.coordinator.share_partition import Acknowledgement, SharePartition
from broker_core.coordinator.share_records import (
    STATE_TOPIC,
    SharePlace,
    StoredState,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from broker_core.coordinator.states import GroupState
from broker_core.environment import Clock
from broker_core.protocol import records
from broker_core.protocol.records import BatchHeader
from broker_core.server.flusher import Flusher
from broker_core.server.group_settings import EARLIEST, LATEST, GroupSettings, duration_ms
from broker_core.server.groups import SubscribableTopics
from broker_core.server.internal_topic import InternalTopic, read_back
from broker_core.server.partition import Partition
from broker_core.server.share_sessions import ShareSession, ShareSessions
from broker_core.server.topics import TopicRegistry

logger = logging.getLogger(__name__)

#: How late the end of a lock or a session may be noticed.
_TICK_S: Final = 0.1

#: Told the error code when something has been stored; 0 is none.
Stored = Callable[[int], None]


class AvailabilityWaiter(Protocol):
    """Wants to know when records of a partition can be had again."""

    def available(self) -> None:
        """They can."""


class _StoreWait:
    """See AppendWaiter."""

    __slots__ = ("_stored",)

    def __init__(self, stored: Stored) -> None:
        self._stored = stored

    def durable(self) -> None:
        self._stored(errors.NONE)

    def failed(self, code: int) -> None:
        self._stored(errors.KafkaStorageError.code)


class ShareGroups:
    """All share groups of a broker that is a cluster of its own."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicRegistry,
        flusher: Flusher,
        settings: GroupSettings,
        clock: Clock,
    ) -> None:
        self.settings = settings
        self.sessions = ShareSessions(config.group_share_sessions_max)
        self.groups: dict[str, ShareGroup] = {}
        self._shares: dict[SharePlace, SharePartition] = {}
        self._locked: set[SharePlace] = set()
        self._waiters: dict[SharePlace, set[AvailabilityWaiter]] = {}
        self._topics = topics
        self._view = SubscribableTopics(topics)
        self._flusher = flusher
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._topic = InternalTopic(
            topics,
            STATE_TOPIC,
            config.share_state_topic_partitions,
            config.share_state_topic_segment_bytes,
        )

    # ------------------------------------------------------------------------------ start and end

    def load(self) -> None:
        """Read what there is."""
        found: dict[SharePlace, StoredState] = {}

        def take(header: BatchHeader, key: bytes, value: bytes | None) -> None:
            place = decode_key(key)
            if place is None:
                return
            if value is None:
                found.pop(place, None)
            else:
                found[place] = decode_value(value)

        for partition in self._topic.partitions():
            for _ in read_back(partition, take, lambda producer_id, committed: None):
                pass
        for place, stored in found.items():
            self._group(place.group_id)
            self._shares[place] = SharePartition(
                stored.start_offset, self.settings.of_records(place.group_id), stored.batches
            )

    def close(self) -> None:
        """Stop the timer."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    # ------------------------------------------------------------------------------------ members

    def heartbeat(self, asked: ShareHeartbeat) -> ShareAnswer:
        """See ShareGroup.heartbeat."""
        is_new = asked.group_id not in self.groups
        if is_new and asked.epoch != 0:
            raise errors.GroupIdNotFound(f"Group {asked.group_id} not found.")
        group = self._group(asked.group_id)
        try:
            answer = group.heartbeat(asked, self.settings.of_members(asked.group_id), self.now_ms())
        except errors.BrokerError:
            if is_new:
                del self.groups[asked.group_id]
            raise
        self._watch()
        return answer

    def _group(self, group_id: str) -> ShareGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ShareGroup(group_id, self._view)
        return group

    def now_ms(self) -> int:
        """Monotonic time."""
        return int(self._clock.monotonic() * 1000)

    # ------------------------------------------------------------------------------------- shares

    def share(self, place: SharePlace, partition: Partition) -> SharePartition:
        """What a group has of a partition; it begins here if it has nothing yet.

        Raises KafkaStorageError.
        """
        share = self._shares.get(place)
        if share is None:
            self._group(place.group_id)
            share = SharePartition(
                self._first_offset(place.group_id, partition),
                self.settings.of_records(place.group_id),
            )
            self._shares[place] = share
            self.store(place, lambda code: None)
        return share

    def known_share(self, place: SharePlace) -> SharePartition | None:
        """What a group has of a partition, if it has begun to read it."""
        return self._shares.get(place)

    def places_of(self, group_id: str) -> list[SharePlace]:
        """The partitions that a group has begun to read."""
        return sorted(place for place in self._shares if place.group_id == group_id)

    def _first_offset(self, group_id: str, partition: Partition) -> int:
        reset = self.settings.offset_reset(group_id)
        if reset == LATEST:
            return partition.high_watermark
        if reset == EARLIEST:
            return partition.log.log_start_offset
        found = partition.log.offset_for_timestamp(self._clock.now_ms() - duration_ms(reset))
        return partition.high_watermark if found is None else found[1]

    def begin_at(self, place: SharePlace, offset: int, stored: Stored) -> None:
        """Have a group go on at an offset, with nothing delivered behind it."""
        self._group(place.group_id)
        self._shares[place] = SharePartition(offset, self.settings.of_records(place.group_id))
        self.store(place, stored)

    def settings_changed(self, group_id: str) -> None:
        """Take over what has been set of a group."""
        for place in self.places_of(group_id):
            self._shares[place].settings = self.settings.of_records(group_id)

    def locked(self, place: SharePlace) -> None:
        """Records of a partition were given to a member: their lock has to end some time."""
        self._locked.add(place)
        self._watch()

    def acknowledge(
        self,
        place: SharePlace,
        member_id: str,
        acknowledgements: Sequence[Acknowledgement],
        stored: Stored,
    ) -> None:
        """A member's answers; raises InvalidRequest, InvalidRecordState."""
        share = self._shares.get(place)
        if share is None:
            raise errors.InvalidRecordState("The group has no records of this partition.")
        is_available = share.acknowledge(member_id, acknowledgements, self.now_ms())
        self.store(place, stored)
        if is_available:
            self._wake(place)

    def release(self, session: ShareSession) -> None:
        """A member's session is over: others get what it has not answered."""
        if not self.sessions.close(session):
            return
        for place in self.places_of(session.group_id):
            if self._shares[place].release(session.member_id):
                self._wake(place)

    # ------------------------------------------------------------------------------------ waiting

    def wait(self, place: SharePlace, waiter: AvailabilityWaiter) -> None:
        """Tell a waiter when records of a partition can be had again."""
        self._waiters.setdefault(place, set()).add(waiter)

    def stop_waiting(self, place: SharePlace, waiter: AvailabilityWaiter) -> None:
        """Tell it no longer."""
        waiters = self._waiters.get(place)
        if waiters is not None:
            waiters.discard(waiter)
            if not waiters:
                del self._waiters[place]

    def _wake(self, place: SharePlace) -> None:
        for waiter in tuple(self._waiters.get(place, ())):
            waiter.available()

    def _watch(self) -> None:
        if self._timer is None and not self._closed:
            self._timer = self._loop.call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_ms = self.now_ms()
        for group in self.groups.values():
            group.tick(now_ms)
        for place in list(self._locked):
            share = self._shares.get(place)
            if share is None or share.next_deadline() is None:
                self._locked.discard(place)
                continue
            if share.tick(now_ms):
                self._wake(place)
        if self._locked or any(group.members for group in self.groups.values()):
            self._watch()

    # ------------------------------------------------------------------------------------ storing

    def store(self, place: SharePlace, stored: Stored) -> None:
        """Make a partition's state durable; one that there is no more is forgotten."""
        share = self._shares.get(place)
        now_ms = self._clock.now_ms()
        value = None if share is None else encode_value(share, now_ms)
        key = f"{place.group_id}:{place.topic_id.hex()}:{place.partition}"
        try:
            partition = self._topic.partition_of(key)
            result = partition.append(
                records.build_batch([(now_ms, encode_key(place), value, ())]), now_ms
            )
        except errors.BrokerError as error:
            logger.error("share group %s cannot be stored: %s", place.group_id, error)
            stored(errors.KafkaStorageError.code)
            return
        if partition.commits_on_append:
            partition.advance()
            stored(errors.NONE)
            return
        partition.wait_durable(_StoreWait(stored), result.last_offset + 1)
        if partition.acknowledges_after_flush:
            self._flusher.request(partition)
        else:
            partition.advance()

    # ----------------------------------------------------------------------------- administration

    def check_empty(self, group_id: str) -> ShareGroup:
        """The group, which nobody is in; raises GroupIdNotFound, NonEmptyGroup."""
        group = self.groups.get(group_id)
        if group is None:
            raise errors.GroupIdNotFound(f"Group {group_id} not found.")
        if group.state is not GroupState.EMPTY:
            raise errors.NonEmptyGroup(f"Group {group_id} is not empty.")
        return group

    def delete_group(self, group_id: str, done: Stored) -> None:
        """Delete a group that nobody is in; raises GroupIdNotFound, NonEmptyGroup."""
        self.check_empty(group_id)
        del self.groups[group_id]
        self.forget(self.places_of(group_id), done)

    def forget_topic(self, topic_id: bytes) -> None:
        """A topic was deleted: what groups have of it means nothing any more."""
        self.forget(
            [place for place in self._shares if place.topic_id == topic_id], lambda code: None
        )

    def forget(self, places: Iterable[SharePlace], done: Stored) -> None:
        """Forget what groups have of partitions, durably."""
        left = list(places)
        if not left:
            done(errors.NONE)
            return
        codes: list[int] = []

        def stored(code: int) -> None:
            codes.append(code)
            if len(codes) == len(left):
                done(max(codes, key=abs))

        for place in left:
            del self._shares[place]
            self._locked.discard(place)
            self.store(place, stored)
            self._wake(place)
