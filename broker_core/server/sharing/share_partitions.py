"""Partitions that this broker leads for share groups: who has which records, and who waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from broker_core import errors
from broker_core.configuration.config import BrokerConfig
from broker_core.coordinator.share_partition import Acknowledgement, SharePartition
from broker_core.coordinator.share_records import SharePlace, StoredState
from broker_core.environment import Clock
from broker_core.server.coordination.groups import Stored
from broker_core.server.partitions.partition import Partition
from broker_core.server.settings.group_settings import EARLIEST, LATEST, GroupSettings, duration_ms
from broker_core.server.sharing.share_coordinator import NO_OFFSET
from broker_core.server.sharing.share_sessions import ShareSession, ShareSessions
from broker_core.server.sharing.share_states import ShareStates

logger = logging.getLogger(__name__)

#: How late the end of a lock may be noticed.
_TICK_S: Final = 0.1

#: Errors by which a leader learns that another one has taken its place.
_FENCED: Final = frozenset({errors.FencedLeaderEpoch.code, errors.FencedStateEpoch.code})


class AvailabilityWaiter(Protocol):
    """Wants to know when records of a partition can be had again."""

    def available(self) -> None:
        """They can."""


class _Share(NamedTuple):
    """What is known of a place, as long as this broker leads in an epoch."""

    records: SharePartition
    leader_epoch: int
    state_epoch: int

    @property
    def state(self) -> StoredState:
        return StoredState(
            self.records.start_offset, self.records.batches(), self.state_epoch, self.leader_epoch
        )


class SharePartitions:
    """All of this broker."""

    def __init__(
        self,
        config: BrokerConfig,
        settings: GroupSettings,
        states: ShareStates,
        clock: Clock,
        *,
        is_alone: bool,
    ) -> None:
        """`is_alone`: nobody else ever leads, so that what was read once holds for good."""
        self.settings = settings
        self.sessions = ShareSessions(config.group_share_sessions_max)
        self._states = states
        self._is_alone = is_alone
        self._clock = clock
        self._shares: dict[SharePlace, _Share] = {}
        self._loading: set[SharePlace] = set()
        self._locked: set[SharePlace] = set()
        self._waiters: dict[SharePlace, set[AvailabilityWaiter]] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def close(self) -> None:
        """Stop the timer."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def now_ms(self) -> int:
        """Monotonic time."""
        return int(self._clock.monotonic() * 1000)

    # ------------------------------------------------------------------------------------- shares

    def share(self, place: SharePlace, partition: Partition) -> SharePartition | None:
        """What a group has of a partition; it begins here if it has nothing yet.

        None while that is being asked; who waits for the place is told when it is known.
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

    def _current(self, place: SharePlace, partition: Partition) -> _Share | None:
        found = self._shares.get(place)
        if found is not None and found.leader_epoch != partition.leader_epoch:
            self._forget(place)
            return None
        return found

    def _loaded(
        self,
        place: SharePlace,
        partition: Partition,
        epoch: int,
        code: int,
        state: StoredState | None,
    ) -> None:
        self._loading.discard(place)
        if self._closed or partition.leader_epoch != epoch:
            return
        if code:
            # Whoever waits asks again, or with the next request.
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
        found = partition.log.offset_for_timestamp(self._clock.now_ms() - duration_ms(reset))
        return partition.high_watermark if found is None else found[1]

    def settings_changed(self, group_id: str) -> None:
        """Take over what has been set of a group."""
        for place, share in self._shares.items():
            if place.group_id == group_id:
                share.records.settings = self.settings.of_records(group_id)

    def forget(self, place: SharePlace) -> None:
        """What a group has of a partition was changed or deleted where it is kept."""
        if place in self._shares:
            self._forget(place)
            self._wake(place)

    def _forget(self, place: SharePlace) -> None:
        self._shares.pop(place, None)  # what could not be stored has been forgotten already
        self._locked.discard(place)

    def forget_topic(self, topic_id: bytes) -> None:
        """A topic was deleted."""
        for place in [each for each in self._shares if each.topic_id == topic_id]:
            self.forget(place)

    # ------------------------------------------------------------------------------------ members

    def locked(self, place: SharePlace) -> None:
        """Records of a partition were given to a member: their lock has to end some time."""
        self._locked.add(place)
        self._watch()

    def acknowledge(
        self,
        place: SharePlace,
        partition: Partition,
        member_id: str,
        acknowledgements: Sequence[Acknowledgement],
        stored: Stored,
    ) -> None:
        """A member's answers; raises InvalidRequest, InvalidRecordState."""
        share = self._current(place, partition)
        if share is None:
            raise errors.InvalidRecordState("The group has no records of this partition.")
        is_available = share.records.acknowledge(member_id, acknowledgements, self.now_ms())
        self._store(place, stored)
        if is_available:
            self._wake(place)

    def _store(self, place: SharePlace, stored: Stored) -> None:
        share = self._shares[place]

        def written(code: int) -> None:
            if code and not self._is_alone and self._shares.get(place) is share:
                # Only what is stored holds: it is read again when somebody wants records.
                self.forget(place)
            stored(errors.NotLeaderOrFollower.code if code in _FENCED else code)

        self._states.write(place, share.state, written)

    def release(self, session: ShareSession) -> None:
        """A member's session is over: others get what it has not answered."""
        if not self.sessions.close(session):
            return
        is_last = not self._is_alone and not self.sessions.has_group(session.group_id)
        for place in [each for each in self._shares if each.group_id == session.group_id]:
            if self._shares[place].records.release(session.member_id):
                self._wake(place)
            if is_last:
                # Its state may be changed or deleted now; how often records were out is kept.
                self._store(place, lambda code: None)
                self._forget(place)

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
        for place in list(self._locked):
            share = self._shares.get(place)
            if share is None or share.records.next_deadline() is None:
                self._locked.discard(place)
                continue
            if share.records.tick(now_ms):
                self._wake(place)
        if self._locked:
            self._watch()
