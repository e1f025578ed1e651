"""Share groups of this broker: stores the groups, and ends sessions of members by timer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from broker_core import errors
from broker_core.coordinator.groups.states import GroupState
from broker_core.coordinator.sharing.share_group import ShareAnswer, ShareGroup, ShareHeartbeat
from broker_core.coordinator.sharing.share_records import (
    KINDS,
    SharePartitionKey,
    StoredGroup,
    group_records,
    read_group_record,
)
from broker_core.coordinator.stored import stored_version
from broker_core.environment import Clock
from broker_core.protocol.errors import RemoteProtocolError
from broker_core.server.coordination.groups import Stored, SubscribableTopics
from broker_core.server.partitions.topics import TopicRegistry
from broker_core.server.settings.group_settings import GroupSettings
from broker_core.server.sharing.share_coordinator_client import ShareCoordinatorClient
from broker_core.server.sharing.share_partitions import SharePartitions
from waylog.process.background import failure_ends_process

logger = logging.getLogger(__name__)

#: Seconds by which the end of a member's session may be noticed late.
_TICK_S: Final = 0.1

#: Appends records to the group's partition of `__consumer_offsets`: (group id, keys and values,
#: callback).
AppendRecords = Callable[[str, list[tuple[bytes, bytes | None]], Stored], None]


class ShareGroups:
    """The share groups that this broker coordinates."""

    def __init__(
        self,
        topics: TopicRegistry,
        settings: GroupSettings,
        states: ShareCoordinatorClient,
        partitions: SharePartitions,
        clock: Clock,
        append: AppendRecords,
    ) -> None:
        self.settings = settings
        self.groups: dict[str, ShareGroup] = {}
        self._stored: dict[str, StoredGroup] = {}
        # For groups that are being stored: number of the last write, and callbacks for its end.
        self._writes: dict[str, int] = {}
        self._waiting: dict[str, list[Stored]] = {}
        self._topics = topics
        self._view = SubscribableTopics(topics)
        self._states = states
        self._partitions = partitions
        self._clock = clock
        self._append = append
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    # ------------------------------------------------------------------------------ start and end

    def take(self, key: bytes, value: bytes | None) -> bool:
        """Load a record of `__consumer_offsets`; return False if it is of another kind."""
        if stored_version(key) not in KINDS:
            return False
        try:
            group_id, stored = read_group_record(key, value, self._stored)
        except RemoteProtocolError as error:
            logger.error("a record of __consumer_offsets is skipped: %s", error)
            return True
        if stored is None:
            self._stored.pop(group_id, None)
            self.groups.pop(group_id, None)
        else:
            self._stored[group_id] = stored
            self._group(group_id).epoch = stored.epoch
        return True

    def unload(self, is_gone: Callable[[str], bool]) -> None:
        """Forget groups that are coordinated elsewhere now."""
        for group_id in [each for each in self.groups if is_gone(each)]:
            del self.groups[group_id]
            self._stored.pop(group_id, None)

    def close(self) -> None:
        """Stop the timer."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    # ------------------------------------------------------------------------------------ members

    def heartbeat(self, asked: ShareHeartbeat, answer: Callable[[int, ShareAnswer], None]) -> None:
        """See ShareGroup.heartbeat; `answer` gets an error code and the answer.

        An epoch is told only after it has been stored: the group's next coordinator must not begin
        with an older one.
        """
        is_new = asked.group_id not in self.groups
        if is_new and asked.epoch != 0:
            raise errors.GroupIdNotFound(f"Group {asked.group_id} not found.")
        group = self._group(asked.group_id)
        try:
            told = group.heartbeat(asked, self.settings.of_members(asked.group_id), self._now_ms())
        except errors.BrokerError:
            if is_new:
                del self.groups[asked.group_id]
            raise
        self._watch()
        self._keep(group, lambda code: answer(code, told))

    def _group(self, group_id: str) -> ShareGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ShareGroup(group_id, self._view)
        return group

    def _keep(self, group: ShareGroup, kept: Stored) -> None:
        """Store what the group's next coordinator has to know, unless it is stored."""
        known = self._stored.get(group.group_id, StoredGroup(-1, frozenset()))
        # What a group is assigned changes with its epoch only.
        if group.epoch != known.epoch:
            there = (each for each in known.places if self._topics.by_id(each[0]) is not None)
            stored = StoredGroup(group.epoch, group.places().union(there))
            self._stored[group.group_id] = stored

            def written(code: int) -> None:
                if code and self._stored.get(group.group_id) is stored:
                    # The next heartbeat tries again.
                    self._stored[group.group_id] = known
                kept(code)

            self._write(group.group_id, stored, written)
        elif (waiting := self._waiting.get(group.group_id)) is not None:
            waiting.append(kept)
        else:
            kept(errors.NONE)

    def _write(self, group_id: str, stored: StoredGroup | None, kept: Stored | None = None) -> None:
        topic_ids = {each for each, _ in stored.places} if stored is not None else set()
        names = {each: self._view.name_of(each) or "" for each in topic_ids}
        # All waiting callbacks get the result of the newest write, which is appended last.
        waiting = self._waiting[group_id] = self._waiting.get(group_id, [])
        if kept is not None:
            waiting.append(kept)
        self._writes[group_id] = write = self._writes.get(group_id, 0) + 1

        def written(code: int) -> None:
            if self._writes.get(group_id) != write and not code:
                return
            if self._waiting.get(group_id) is waiting:
                del self._waiting[group_id], self._writes[group_id]
            for each in waiting:
                each(code)
            waiting.clear()

        with failure_ends_process(self._loop, "the coordinator of share groups"):
            self._append(group_id, group_records(group_id, stored, names), written)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _watch(self) -> None:
        if self._timer is None and not self._closed:
            self._timer = self._loop.call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        for group in self.groups.values():
            group.tick(now_ms)
        if any(group.members for group in self.groups.values()):
            self._watch()

    # ----------------------------------------------------------------------------- administration

    def places_of(self, group_id: str) -> list[SharePartitionKey]:
        """Return the share partitions that a group has been assigned."""
        stored = self._stored.get(group_id)
        return (
            []
            if stored is None
            else [SharePartitionKey(group_id, *each) for each in sorted(stored.places)]
        )

    def check_empty(self, group_id: str) -> ShareGroup:
        """Return a group without members; raises GroupIdNotFound, NonEmptyGroup."""
        group = self.groups.get(group_id)
        if group is None:
            raise errors.GroupIdNotFound(f"Group {group_id} not found.")
        if group.state is not GroupState.EMPTY:
            raise errors.NonEmptyGroup(f"Group {group_id} is not empty.")
        return group

    def begin_at(self, place: SharePartitionKey, offset: int, stored: Stored) -> None:
        """Have a group continue at an offset; delivered records are forgotten."""
        group = self._group(place.group_id)
        group.epoch += 1
        known = self._stored.get(place.group_id, StoredGroup(0, frozenset()))
        known = StoredGroup(group.epoch, known.places | {(place.topic_id, place.partition)})
        self._stored[place.group_id] = known
        self._write(place.group_id, known)
        self._partitions.forget(place)
        self._states.initialize(place, group.epoch, offset, stored)

    def delete_group(self, group_id: str, done: Stored) -> None:
        """Delete a group without members; raises GroupIdNotFound, NonEmptyGroup."""
        self.check_empty(group_id)
        places = self.places_of(group_id)
        del self.groups[group_id]
        self._stored.pop(group_id, None)
        self._write(group_id, None)
        self._delete(places, done)

    def forget_places(self, group_id: str, topic_id: bytes, done: Stored) -> None:
        """Delete what is stored of a group's share partitions of a topic."""
        known = self._stored.get(group_id)
        if known is not None:
            left = frozenset(each for each in known.places if each[0] != topic_id)
            self._stored[group_id] = known._replace(places=left)
            self._write(group_id, self._stored[group_id])
            gone = [SharePartitionKey(group_id, *each) for each in sorted(known.places - left)]
            self._delete(gone, done)
        else:
            done(errors.NONE)

    def _delete(self, places: Iterable[SharePartitionKey], done: Stored) -> None:
        left = list(places)
        if not left:
            done(errors.NONE)
            return
        codes: list[int] = []

        def deleted(code: int) -> None:
            codes.append(code)
            if len(codes) == len(left):
                done(max(codes, key=abs))

        for place in left:
            self._partitions.forget(place)
            self._states.delete(place, deleted)
