"""Share partitions that this broker leads: acquired records, and requests that wait for records."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from broker_core import errors
from broker_core.configuration.config import BrokerConfig
from broker_core.coordinator.sharing.share_partition import Acknowledgement, SharePartition
from broker_core.coordinator.sharing.share_records import SharePartitionKey, StoredState
from broker_core.environment import Clock
from broker_core.server.coordination.groups import Stored
from broker_core.server.partitions.partition import Partition
from broker_core.server.settings.group_settings import EARLIEST, LATEST, GroupSettings, duration_ms
from broker_core.server.sharing.share_coordinator import NO_OFFSET
from broker_core.server.sharing.share_coordinator_client import ShareCoordinatorClient
from broker_core.server.sharing.share_sessions import ShareSession, ShareSessions

logger = logging.getLogger(__name__)

#: Batches that are opened in vain to find the first record of a share group by its time.
_OPENED_MAX: Final = 3

#: Seconds by which the end of an acquisition lock may be noticed late.
_TICK_S: Final = 0.1

#: Errors that tell a leader that another broker has replaced it.
_FENCED: Final = frozenset({errors.FencedLeaderEpoch.code, errors.FencedStateEpoch.code})


class AvailabilityWaiter(Protocol):
    """A request that waits until records of a share partition are available again."""

    def available(self) -> None:
        """Take note that records may be available."""


class _Share(NamedTuple):
    """A share partition's state, valid while this broker leads in one leader epoch."""

    records: SharePartition
    leader_epoch: int
    state_epoch: int

    @property
    def state(self) -> StoredState:
        return StoredState(
            self.records.start_offset, self.records.batches(), self.state_epoch, self.leader_epoch
        )


class SharePartitions:
    """All share partitions that this broker leads."""

    def __init__(
        self,
        config: BrokerConfig,
        settings: GroupSettings,
        states: ShareCoordinatorClient,
        clock: Clock,
    ) -> None:
        self.settings = settings
        self.sessions = ShareSessions(config.group_share_sessions_max)
        self._states = states
        self._clock = clock
        self._shares: dict[SharePartitionKey, _Share] = {}
        self._loading: set[SharePartitionKey] = set()
        self._locked: set[SharePartitionKey] = set()
        self._waiters: dict[SharePartitionKey, set[AvailabilityWaiter]] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def close(self) -> None:
        """Stop the timer."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def now_ms(self) -> int:
        """Return monotonic time in ms."""
        return int(self._clock.monotonic() * 1000)

    # ------------------------------------------------------------------------------------- shares

    def share(self, place: SharePartitionKey, partition: Partition) -> SharePartition | None:
        """Return a share partition; it starts here if the group has not begun to read it.

        Returns None while its state is being read; waiters are told when it is known.
        """
        found = self._current(place, partition)
        if found is None and place not in self._loading:
            self._loading.add(place)
            epoch = partition.leader_epoch
            self._states.read(
                place, epoch, lambda code, state: self._loaded(place, partition, epoch, code, state)
            )
            found = self._current(place, partition)
        return None if found is None else found.records

    def _current(self, place: SharePartitionKey, partition: Partition) -> _Share | None:
        found = self._shares.get(place)
        if found is not None and found.leader_epoch != partition.leader_epoch:
            self._forget(place)
            return None
        return found

    def _loaded(
        self,
        place: SharePartitionKey,
        partition: Partition,
        epoch: int,
        code: int,
        state: StoredState | None,
    ) -> None:
        self._loading.discard(place)
        if self._closed or partition.leader_epoch != epoch:
            return
        if code:
            # Waiting requests ask again, or the client sends another one.
            logger.info("share group %s: %s is not known: %d", place.group_id, partition, code)
            return
        is_new = state is None or state.start_offset == NO_OFFSET
        if state is None:
            state = StoredState(NO_OFFSET, [])
        start = self._first_offset(place.group_id, partition) if is_new else state.start_offset
        records = SharePartition(start, self.settings.of_records(place.group_id), state.batches)
        self._shares[place] = _Share(records, epoch, state.state_epoch)
        if is_new:
            self._store(place, lambda code: None)
        self._wake(place)

    def _first_offset(self, group_id: str, partition: Partition) -> int:
        reset = self.settings.offset_reset(group_id)
        if reset == LATEST:
            return partition.high_watermark
        if reset == EARLIEST:
            return partition.log.log_start_offset
        steps = partition.log.look_for_timestamp(self._clock.now_ms() - duration_ms(reset))
        try:
            for _ in range(_OPENED_MAX):
                next(steps)
        except StopIteration as end:
            found: tuple[int, int] | None = end.value
            return partition.high_watermark if found is None else found[1]
        # Headers name times that no record has: their producer's mistake must not cost others time.
        return partition.log.log_start_offset

    def settings_changed(self, group_id: str) -> None:
        """Apply changed settings of a group."""
        for place, share in self._shares.items():
            if place.group_id == group_id:
                share.records.settings = self.settings.of_records(group_id)

    def forget(self, place: SharePartitionKey) -> None:
        """Forget a state that was changed or deleted at the share coordinator."""
        if place in self._shares:
            self._forget(place)
            self._wake(place)

    def _forget(self, place: SharePartitionKey) -> None:
        self._shares.pop(place, None)  # gone already if it could not be stored
        self._locked.discard(place)

    def forget_topic(self, topic_id: bytes) -> None:
        """Forget the states of a deleted topic."""
        for place in [each for each in self._shares if each.topic_id == topic_id]:
            self.forget(place)

    # ------------------------------------------------------------------------------------ members

    def locked(self, place: SharePartitionKey) -> None:
        """Watch the acquisition locks of records that a member has been given."""
        self._locked.add(place)
        self._watch()

    def passed_over(self, place: SharePartitionKey) -> None:
        """Store that a share partition starts behind offsets that no member gets."""
        self._store(place, lambda code: None)

    def acknowledge(
        self,
        place: SharePartitionKey,
        partition: Partition,
        member_id: str,
        acknowledgements: Sequence[Acknowledgement],
        stored: Stored,
    ) -> None:
        """Apply a member's acknowledgements; raises InvalidRequest, InvalidRecordState."""
        share = self._current(place, partition)
        if share is None:
            raise errors.InvalidRecordState("The group has no records of this partition.")
        is_available = share.records.acknowledge(member_id, acknowledgements, self.now_ms())
        self._store(place, stored)
        if is_available:
            self._wake(place)

    def _store(self, place: SharePartitionKey, stored: Stored) -> None:
        share = self._shares[place]

        def written(code: int) -> None:
            if code and self._shares.get(place) is share:
                # Only stored state is valid; it is read again when records are wanted.
                self.forget(place)
            stored(errors.NotLeaderOrFollower.code if code in _FENCED else code)

        self._states.write(place, share.state, written)

    def release(self, session: ShareSession) -> None:
        """Close a member's session; records without acknowledgement become available again."""
        if not self.sessions.close(session):
            return
        is_last = not self.sessions.has_group(session.group_id)
        for place in [each for each in self._shares if each.group_id == session.group_id]:
            if self._shares[place].records.release(session.member_id):
                self._wake(place)
            if is_last:
                # The state may be changed or deleted elsewhere now; keep the delivery counts.
                self._store(place, lambda code: None)
                self._forget(place)

    # ------------------------------------------------------------------------------------ waiting

    def wait(self, place: SharePartitionKey, waiter: AvailabilityWaiter) -> None:
        """Tell a waiter when records of a share partition are available again."""
        self._waiters.setdefault(place, set()).add(waiter)

    def stop_waiting(self, place: SharePartitionKey, waiter: AvailabilityWaiter) -> None:
        """Remove a waiter."""
        waiters = self._waiters.get(place)
        if waiters is not None:
            waiters.discard(waiter)
            if not waiters:
                del self._waiters[place]

    def _wake(self, place: SharePartitionKey) -> None:
        for waiter in tuple(self._waiters.get(place, ())):
            waiter.available()

    def _watch(self) -> None:
        if self._timer is None and not self._closed:
            self._timer = self._loop.call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_ms = self.now_ms()
        for place in list(self._locked):
            share = self._shares.get(place)
            if share is None or share.records.next_deadline() is None:
                self._locked.discard(place)
                continue
            if share.records.tick(now_ms):
                self._wake(place)
        if self._locked:
            self._watch()
