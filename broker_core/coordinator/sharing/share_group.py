"""The members of a share group and their partitions (KIP-932).

Several members may read a partition at the same time, so no member waits until another has released
it. Members are kept in memory only: after a restart they join again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

from broker_core import errors
from broker_core.coordinator.groups.assignors import Assignment, Subscriptions, TopicPartition
from broker_core.coordinator.groups.consumer_member import LEAVES, NO_PLACES, Places
from broker_core.coordinator.groups.states import GroupState
from broker_core.coordinator.groups.topic_view import TopicView

logger = logging.getLogger(__name__)

ASSIGNOR: Final = "simple"


class ShareGroupSettings(NamedTuple):
    """The broker's `group.share.*` properties for members."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    size_max: int = 200


@dataclass(slots=True)
class ShareHeartbeat:
    """A ShareGroupHeartbeat request; None means unchanged since the last one."""

    group_id: str
    member_id: str
    epoch: int
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: Collection[str] | None

    def check(self) -> None:
        """Raise InvalidRequest if the heartbeat is invalid."""
        problem = None
        if not self.group_id:
            problem = "GroupId can't be empty."
        elif not self.member_id:
            problem = "MemberId can't be empty."
        elif self.rack_id == "":
            problem = "RackId can't be empty."
        elif self.epoch == 0 and not self.topic_names:
            problem = "SubscribedTopicNames must be set in first request."
        elif self.epoch < LEAVES:
            problem = "MemberEpoch is invalid."
        if problem is not None:
            raise errors.InvalidRequest(problem)


@dataclass(slots=True)
class ShareMember:
    """A member as of its last heartbeat."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Places = NO_PLACES
    session_ends_ms: int = 0


class ShareAnswer(NamedTuple):
    """The response to a heartbeat; `assigned` is None if the member knows its assignment."""

    epoch: int
    assigned: Places | None


class ShareGroup:
    """One share group. Times are monotonic ms."""

    protocol_type: Final = "share"

    def __init__(self, group_id: str, topics: TopicView) -> None:
        self.group_id = group_id
        self.members: dict[str, ShareMember] = {}
        self.epoch = 0
        self.target: Assignment = {}
        self._topics = topics
        self._topics_version = -1
        self._shape: Mapping[bytes, int] = {}

    @property
    def state(self) -> GroupState:
        """STABLE if the group has members, otherwise EMPTY."""
        return GroupState.STABLE if self.members else GroupState.EMPTY

    def heartbeat(
        self, asked: ShareHeartbeat, settings: ShareGroupSettings, now_ms: int
    ) -> ShareAnswer:
        """Let a member join, stay or leave; raises BrokerError, and then nothing has changed."""
        if asked.epoch == LEAVES:
            self._find(asked)
            self._remove(asked.member_id)
            return ShareAnswer(LEAVES, None)
        member = self._member(asked, settings)
        before = (member.epoch, member.assigned)
        if asked.rack_id is not None:
            member.rack_id = asked.rack_id
        member.client_id = asked.client_id
        member.client_host = asked.client_host
        is_new = member.member_id not in self.members
        self.members[member.member_id] = member
        topic_names = member.topic_names
        if asked.topic_names is not None:
            topic_names = frozenset(asked.topic_names)
        if is_new or topic_names != member.topic_names:
            member.topic_names = topic_names
            self._assign()
        elif (
            self._topics_version != self._topics.version
            and self._subscriptions().partitions != self._shape
        ):
            self._assign()
        self._topics_version = self._topics.version
        if member.epoch != self.epoch:
            member.previous_epoch, member.epoch = member.epoch, self.epoch
            member.assigned = self.target.get(member.member_id, NO_PLACES)
        member.session_ends_ms = now_ms + settings.session_timeout_ms
        is_told = asked.epoch == before[0] and member.assigned == before[1]
        is_full = asked.epoch == 0 or asked.topic_names is not None
        return ShareAnswer(member.epoch, None if is_told and not is_full else member.assigned)

    def _find(self, asked: ShareHeartbeat) -> ShareMember:
        member = self.members.get(asked.member_id)
        if member is None:
            raise errors.UnknownMemberId(
                f"Member {asked.member_id} is not a member of group {self.group_id}."
            )
        return member

    def _member(self, asked: ShareHeartbeat, settings: ShareGroupSettings) -> ShareMember:
        if asked.epoch == 0:
            known = self.members.get(asked.member_id)
            if known is not None:
                return known
            if len(self.members) >= settings.size_max:
                raise errors.GroupMaxSizeReached(
                    f"The share group has reached its maximum capacity of {settings.size_max} "
                    "members."
                )
            logger.info("share group %s: %s joins", self.group_id, asked.member_id)
            return ShareMember(asked.member_id)
        member = self._find(asked)
        # The response with the new epoch may have been lost.
        if asked.epoch not in {member.epoch, member.previous_epoch}:
            raise errors.FencedMemberEpoch(
                f"The share group member has epoch {asked.epoch}, the group coordinator knows "
                f"{member.epoch}. The member must abandon all its partitions and rejoin."
            )
        return member

    def _subscriptions(self) -> Subscriptions:
        """Return who subscribes to which topics; what members have in common is looked up once."""
        found = {
            names: dict(filter(None, map(self._topics.find, names)))
            for names in {member.topic_names for member in self.members.values()}
        }
        ids = {names: frozenset(counts) for names, counts in found.items()}
        partitions: dict[bytes, int] = {}
        for counts in found.values():
            partitions |= counts
        return Subscriptions(
            {member_id: ids[member.topic_names] for member_id, member in self.members.items()},
            partitions,
        )

    def _assign(self) -> None:
        self.epoch += 1
        subscriptions = self._subscriptions()
        self._shape = subscriptions.partitions
        self.target = assign_simply(subscriptions)
        logger.info(
            "share group %s: epoch %d, %d members", self.group_id, self.epoch, len(self.members)
        )

    def _remove(self, member_id: str) -> None:
        del self.members[member_id]
        logger.info("share group %s: %s leaves", self.group_id, member_id)
        self._assign()

    def places(self) -> frozenset[TopicPartition]:
        """Return all partitions that members are assigned."""
        return frozenset(place for places in self.target.values() for place in places)

    def next_deadline(self) -> int | None:
        """Return when the next session times out; None if there are no members."""
        return min((each.session_ends_ms for each in self.members.values()), default=None)

    def tick(self, now_ms: int) -> None:
        """Remove members whose sessions have timed out."""
        for member in [each for each in self.members.values() if each.session_ends_ms <= now_ms]:
            self._remove(member.member_id)


def assign_simply(subscriptions: Subscriptions) -> Assignment:
    """Assign each partition to at least one member, and each member at least one partition.

    The latter holds for each topic to which a member subscribes.
    """
    assigned: dict[str, set[TopicPartition]] = {member: set() for member in subscriptions.topics}
    for topic_id, alike in subscriptions.subscribers().items():
        count = subscriptions.partitions.get(topic_id, 0)
        members = alike[0] if len(alike) == 1 else sorted(chain.from_iterable(alike))
        for turn in range(max(count, len(members)) if count else 0):
            assigned[members[turn % len(members)]].add((topic_id, turn % count))
    return {member: frozenset(places) for member, places in assigned.items()}
