"""The state machine of one group of the consumer protocol (KIP-848).

Members send heartbeats with their subscription. The broker computes who gets which partitions (the
target assignment) and moves every member towards it step by step: a partition goes to its new owner
only after the old one has revoked it. Three epochs track this: that of the group (its
subscriptions), that of the target assignment, and that of each member.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from broker_core import errors
from broker_core.coordinator.effects import Moment
from broker_core.coordinator.groups import consumer_group_records as stored
from broker_core.coordinator.groups.assignors import (
    ASSIGNORS,
    Assignment,
    Subscriptions,
    TopicPartition,
)
from broker_core.coordinator.groups.consumer_group_records import StoredRecord
from broker_core.coordinator.groups.consumer_heartbeat import ConsumerHeartbeat
from broker_core.coordinator.groups.consumer_member import (
    LEAVES_FOR_A_WHILE,
    NO_PLACES,
    ConsumerMember,
    MemberState,
)
from broker_core.coordinator.groups.group_offsets import GroupOffsets
from broker_core.coordinator.groups.member_deadlines import MemberDeadlines, Wait
from broker_core.coordinator.groups.states import GroupState
from broker_core.coordinator.groups.topic_view import TopicRights, TopicView
from broker_core.coordinator.patterns import compile_pattern

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        ConsumerGroupHeartbeatResponse,
    )

logger = logging.getLogger(__name__)

_DEFAULT_ASSIGNOR: Final = next(iter(ASSIGNORS))


class ConsumerGroupSettings(NamedTuple):
    """The broker's `group.consumer.*` properties."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    size_max: int = 2**31 - 1


#: The topics that a member names, and those for which its regular expression stands.
_Names = tuple[frozenset[str], frozenset[str]]


class _Matches(NamedTuple):
    """The topics for which a regular expression stands, as of these versions of topics and ACLs."""

    names: frozenset[str]
    versions: tuple[int, int]


class ConsumerGroup(GroupOffsets):
    """One consumer group; every step returns the records to be stored."""

    protocol_type: Final = "consumer"

    def __init__(self, group_id: str, settings: ConsumerGroupSettings, topics: TopicView) -> None:
        super().__init__(group_id)
        self.members: dict[str, ConsumerMember] = {}
        self.epoch = 0
        self.target_epoch = 0
        self.target: Assignment = {}
        #: Wall ms when the last member left; offsets expire from then on.
        self.state_changed_ms = -1
        self.settings = settings
        self.topics = topics
        self.deadlines = MemberDeadlines()
        self._static_members: dict[str, str] = {}
        self._owners: dict[TopicPartition, str] = {}
        # Partition counts of the subscribed topics, by topic id, for a version of the topic view.
        self._shape: Mapping[bytes, int] | None = None
        self._topics_version = -1
        # The topics that members subscribe to, as of that version. Members with the same topics
        # share one set of names and one of ids: to compare these takes no time.
        self._names: dict[frozenset[str], frozenset[str]] = {}
        self._topic_ids: dict[_Names, frozenset[bytes]] = {}
        # The topics for which a regular expression stands, by it and the key of a client's rights;
        # a restart forgets them.
        self._matches: dict[tuple[str, Hashable], _Matches] = {}

    @property
    def state(self) -> GroupState:
        """The state of the group, derived from its members and epochs."""
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled(self.target_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for."""
        wanted = Counter(each.assignor for each in self.members.values() if each.assignor)
        return wanted.most_common(1)[0][0] if wanted else _DEFAULT_ASSIGNOR

    def is_subscribed(self, topic: str) -> bool:
        """Tell whether a member subscribes to a topic."""
        return any(
            topic in member.topic_names or topic in self._matching(member)
            for member in self.members.values()
        )

    # ---------------------------------------------------------------------------------- heartbeat

    def heartbeat(
        self, asked: ConsumerHeartbeat, now: Moment
    ) -> tuple[ConsumerGroupHeartbeatResponse, list[StoredRecord]]:
        """Handle a heartbeat, also of a new member; return the response and the records to store.

        Raises BrokerError, and then the group is unchanged.
        """
        if asked.epoch == LEAVES_FOR_A_WHILE:
            return self._leave_for_a_while(asked)
        regex = asked.topic_regex
        if regex:
            compile_pattern(regex)
        records: list[StoredRecord] = []
        before = self._find(asked, records)
        after = self._updated(before, asked)
        has_new_matches = self._match(before, after, asked.rights)
        after = self.subscribe(before, after, records, has_new_matches=has_new_matches)
        after = self.reconcile(after, () if asked.epoch == 0 else asked.owned, records, now)
        self.deadlines.clear(after.member_id, Wait.JOIN, Wait.SYNC)
        self.deadlines.set(
            after.member_id, Wait.SESSION, now.monotonic_ms + self.settings.session_timeout_ms
        )
        response: ConsumerGroupHeartbeatResponse = {
            "error_code": errors.NONE,
            "member_id": after.member_id,
            "member_epoch": after.epoch,
            "heartbeat_interval_ms": self.settings.heartbeat_interval_ms,
        }
        if asked.is_full or after.assigned != before.assigned:
            response["assignment"] = {"topic_partitions": stored.group_places(after.assigned)}
        return response, records

    def _find(self, asked: ConsumerHeartbeat, records: list[StoredRecord]) -> ConsumerMember:
        """Return the member that sent the heartbeat; a new one is not in `members` yet."""
        if asked.epoch != 0:
            known = self.expect(asked.member_id, asked.instance_id)
            self._check_epoch(known, asked)
            return known
        if asked.instance_id is None:
            return self.find_or_begin(asked.member_id)
        static = self.static_member(asked.instance_id)
        if static is None:
            return self.find_or_begin(asked.member_id)
        if static.classic is None and static.epoch != LEAVES_FOR_A_WHILE:
            raise errors.UnreleasedInstanceId(
                f"Static member {asked.member_id} with instance id {asked.instance_id} cannot "
                f"join the group because the instance id is owned by {static.member_id} member."
            )
        return self.replace_static(static, asked.member_id, records)

    def find_or_begin(self, member_id: str) -> ConsumerMember:
        """Return a member or a new one that is not in `members` yet; raises GroupMaxSizeReached."""
        known = self.members.get(member_id)
        if known is not None:
            return known
        self.check_size()
        logger.info("group %s: %s joins", self.group_id, member_id)
        return ConsumerMember(member_id)

    def check_size(self) -> None:
        """Raise GroupMaxSizeReached if the group is full."""
        if len(self.members) >= self.settings.size_max:
            raise errors.GroupMaxSizeReached(
                f"The consumer group has reached its maximum capacity of "
                f"{self.settings.size_max} members."
            )

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """Return the static member with an instance id."""
        return self.members.get(self._static_members.get(instance_id, ""))

    def expect(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Return the member with these ids; raises UnknownMemberId or FencedInstanceId."""
        known = self.members.get(member_id)
        if instance_id is not None:
            known = self.static_member(instance_id)
            if known is None:
                raise errors.UnknownMemberId(f"Instance id {instance_id} is unknown.")
            if known.member_id != member_id:
                raise errors.FencedInstanceId(
                    f"Static member {member_id} with instance id {instance_id} was fenced "
                    f"by member {known.member_id}."
                )
        if known is None:
            raise errors.UnknownMemberId(
                f"Member {member_id} is not a member of group {self.group_id}."
            )
        return known

    def _check_epoch(self, member: ConsumerMember, asked: ConsumerHeartbeat) -> None:
        if asked.epoch == member.epoch:
            return
        # The response with the new epoch may have been lost.
        is_late = (
            asked.epoch == member.previous_epoch
            and asked.owned is not None
            and set(asked.owned) <= member.assigned
        )
        if asked.epoch > member.epoch or not is_late:
            raise errors.FencedMemberEpoch(
                f"The consumer group member has epoch {asked.epoch}, the group coordinator knows "
                f"{member.epoch}. The member must abandon all its partitions and rejoin."
            )

    def replace_static(
        self, old: ConsumerMember, member_id: str, records: list[StoredRecord]
    ) -> ConsumerMember:
        """Let a static member that returns with a new id take over its old partitions."""
        new = replace(old, member_id=member_id, epoch=0, previous_epoch=0)
        records += stored.member_tombstones(self.group_id, old.member_id)
        target = self.target.pop(old.member_id, NO_PLACES)
        self.target[member_id] = target
        del self.members[old.member_id]
        self.members[member_id] = new
        self.deadlines.forget(old.member_id)
        for place in new.holds:
            self._owners[place] = member_id
        records += [
            stored.member_record(self.group_id, new),
            stored.target_record(self.group_id, member_id, target),
            stored.current_record(self.group_id, new),
        ]
        logger.info("group %s: instance %s is back", self.group_id, new.instance_id)
        return new

    def _updated(self, member: ConsumerMember, asked: ConsumerHeartbeat) -> ConsumerMember:
        return replace(
            member,
            instance_id=asked.instance_id,
            rack_id=member.rack_id if asked.rack_id is None else asked.rack_id,
            client_id=asked.client_id,
            client_host=asked.client_host,
            rebalance_timeout_ms=(
                member.rebalance_timeout_ms
                if asked.rebalance_timeout_ms == -1
                else asked.rebalance_timeout_ms
            ),
            topic_names=(
                member.topic_names if asked.topic_names is None else self.shared(asked.topic_names)
            ),
            topic_regex=member.topic_regex if asked.topic_regex is None else asked.topic_regex,
            assignor=member.assignor if asked.assignor is None else asked.assignor,
            classic=None,
            rights_key=asked.rights.key,
        )

    # --------------------------------------------------------------------------------- assignment

    def subscribe(
        self,
        before: ConsumerMember,
        after: ConsumerMember,
        records: list[StoredRecord],
        *,
        has_new_matches: bool = False,
    ) -> ConsumerMember:
        """Store a member's new subscription, and recompute the target assignment if necessary."""
        is_new = after.member_id not in self.members
        if after != before or is_new:
            records.append(stored.member_record(self.group_id, after))
        self.members[after.member_id] = after
        if after.instance_id is not None:
            self._static_members[after.instance_id] = after.member_id
        is_resubscribed = (
            is_new
            or has_new_matches
            or after.topic_names != before.topic_names
            or after.topic_regex != before.topic_regex
        )
        self._assign(records, is_resubscribed=is_resubscribed)
        return after

    def _assign(self, records: list[StoredRecord], *, is_resubscribed: bool) -> None:
        """Compute the target assignment if the members or their topics have changed."""
        is_outdated = is_resubscribed or self._topics_version != self.topics.version
        if not is_outdated and self.epoch == self.target_epoch:
            return
        subscriptions = self._subscriptions()
        shape = subscriptions.partitions
        if not is_resubscribed:
            if self._shape is None:
                # After a restart: compare with what the stored target assignment covers.
                targeted = {place for places in self.target.values() for place in places}
                is_outdated &= targeted != _places(shape)
            else:
                is_outdated &= shape != self._shape
        self._shape = shape
        self._topics_version = self.topics.version
        if is_outdated:
            self._bump(records)
        if self.epoch == self.target_epoch:
            return
        target = ASSIGNORS[self.assignor](subscriptions, self.target)
        records += [
            stored.target_record(self.group_id, member_id, places)
            for member_id, places in target.items()
            if self.target.get(member_id) != places
        ]
        records.append(stored.target_epoch_record(self.group_id, self.epoch))
        self.target = target
        self.target_epoch = self.epoch
        logger.info("group %s: epoch %d, %d members", self.group_id, self.epoch, len(self.members))

    def _bump(self, records: list[StoredRecord]) -> None:
        self.epoch += 1
        records.append(stored.epoch_record(self.group_id, self.epoch))

    def _match(self, before: ConsumerMember, after: ConsumerMember, rights: TopicRights) -> bool:
        """Look up what a member's regular expression stands for; return whether that has changed.

        Members with the same one and the same rights share the result.
        """
        if not after.topic_regex:
            return False
        key, versions = (after.topic_regex, rights.key), (self.topics.version, rights.version)
        known = self._matches.get(key)
        if known is not None and known.versions == versions:
            return False
        previous = self._matching(before)
        found = compile_pattern(after.topic_regex).matching(self.topics.names())
        names = frozenset(each for each in found if rights.allows(each))
        in_use = {(each.topic_regex, each.rights_key) for each in self.members.values()}
        self._matches = {each: of for each, of in self._matches.items() if each in in_use}
        self._matches[key] = _Matches(names, versions)
        return names != previous

    def _matching(self, member: ConsumerMember) -> frozenset[str]:
        """Return the topics for which a member's regular expression stands, as far as is known."""
        if not member.topic_regex:
            return frozenset()
        known = self._matches.get((member.topic_regex, member.rights_key))
        if known is not None:
            return known.names
        # Before the first heartbeat after a restart, what the member consumes stays with it.
        targeted = {topic_id for topic_id, _ in self.target.get(member.member_id, NO_PLACES)}
        return frozenset(filter(None, map(self.topics.name_of, targeted))) - member.topic_names

    def shared(self, names: Iterable[str]) -> frozenset[str]:
        """Return a set of topics; members with the same topics have one set."""
        found = frozenset(names)
        return self._names.setdefault(found, found)

    def _subscriptions(self) -> Subscriptions:
        """Return who subscribes to which topics; what members have in common is looked up once."""
        has_changed = self._topics_version != self.topics.version
        known = {} if has_changed else self._topic_ids
        counts = {} if has_changed or self._shape is None else dict(self._shape)
        ids: dict[_Names, frozenset[bytes]] = {}
        same: dict[frozenset[bytes], frozenset[bytes]] = {}
        topics: dict[str, frozenset[bytes]] = {}
        for member_id, member in self.members.items():
            names = member.topic_names, self._matching(member)
            if names not in ids:
                found = known.get(names)
                if found is None:
                    all_found = dict(filter(None, map(self.topics.find, names[0] | names[1])))
                    counts.update(all_found)
                    found = frozenset(all_found)
                ids[names] = same.setdefault(found, found)
            topics[member_id] = ids[names]
        self._names = {each: each for each, _ in ids}
        self._topic_ids = ids
        subscribed: set[bytes] = set().union(*same)
        return Subscriptions(topics, {each: counts[each] for each in subscribed})

    def reconcile(
        self,
        member: ConsumerMember,
        owned: Collection[TopicPartition] | None,
        records: list[StoredRecord],
        now: Moment,
    ) -> ConsumerMember:
        """Move a member one step towards its target assignment; see ConsumerMember.reconcile."""
        after = member.reconcile(
            self.target.get(member.member_id, NO_PLACES),
            self.target_epoch,
            owned,
            lambda place: place not in self._owners,
        )
        if after == member:
            return member
        records.append(stored.current_record(self.group_id, after))
        self._hold(member, after)
        if after.state is not MemberState.UNREVOKED_PARTITIONS:
            self.deadlines.clear(after.member_id, Wait.REVOCATION)
        else:
            self.deadlines.set(
                after.member_id, Wait.REVOCATION, now.monotonic_ms + after.rebalance_timeout_ms
            )
        return after

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Tell whether another member still holds a partition that this member is to get."""
        missing = self.target.get(member.member_id, NO_PLACES) - member.assigned
        return any(place in self._owners for place in missing)

    def _hold(self, before: ConsumerMember, after: ConsumerMember) -> None:
        self.members[after.member_id] = after
        for place in before.holds - after.holds:
            self._owners.pop(place, None)
        for place in after.holds:
            self._owners[place] = after.member_id

    # ------------------------------------------------------------------------------------ leaving

    def _leave_for_a_while(
        self, asked: ConsumerHeartbeat
    ) -> tuple[ConsumerGroupHeartbeatResponse, list[StoredRecord]]:
        member = self.expect(asked.member_id, asked.instance_id)
        after = replace(
            member,
            epoch=LEAVES_FOR_A_WHILE,
            state=MemberState.STABLE,
            pending_revocation=NO_PLACES,
        )
        self._hold(member, after)
        self.deadlines.clear(member.member_id, Wait.REVOCATION)
        return left(asked), [stored.current_record(self.group_id, after)]

    def remove(self, member: ConsumerMember, now: Moment) -> list[StoredRecord]:
        """Remove a member for good; return the records to store."""
        logger.info("group %s: %s leaves", self.group_id, member.member_id)
        del self.members[member.member_id]
        if self._static_members.get(member.instance_id or "") == member.member_id:
            del self._static_members[member.instance_id or ""]
        for place in member.holds:
            self._owners.pop(place, None)
        self.target.pop(member.member_id, None)
        self.deadlines.forget(member.member_id)
        if not self.members:
            self.state_changed_ms = now.wall_ms
        records = stored.member_tombstones(self.group_id, member.member_id)
        self._bump(records)
        return records

    def next_deadline(self) -> int | None:
        """Return the monotonic ms when the next deadline of a member passes; None if never."""
        return self.deadlines.next_deadline()

    # ------------------------------------------------------------------------------------ offsets

    def check_commit(self, member_id: str, instance_id: str | None, epoch: int, now: Moment) -> int:
        """Return an error code, NONE if the member may commit offsets."""
        if epoch < 0 and not self.members:
            return errors.NONE
        return self.check_member(member_id, epoch)

    def check_transactional_commit(
        self, member_id: str, instance_id: str | None, epoch: int
    ) -> int:
        """Return an error code, NONE if a transaction may commit offsets for the member."""
        if epoch < 0 and not member_id and instance_id is None:
            return errors.NONE
        code = self.check_member(member_id, epoch)
        return errors.IllegalGeneration.code if code == errors.StaleMemberEpoch.code else code

    def check_member(self, member_id: str, epoch: int) -> int:
        """Return NONE for a member with its current epoch, otherwise an error code."""
        member = self.members.get(member_id)
        if member is None:
            return errors.UnknownMemberId.code
        if epoch == member.epoch:
            return errors.NONE
        if member.classic is not None:
            return errors.IllegalGeneration.code
        return errors.StaleMemberEpoch.code

    # ------------------------------------------------------------------------------------ loading

    def restore(self, key: stored.ConsumerGroupKey, value: bytes | None) -> None:
        """Apply a stored record; raises RemoteProtocolError."""
        member_id = key.member_id
        fields = {} if value is None else stored.decode_value(key.kind, value)
        if key.kind == stored.GROUP and value is not None:
            self.epoch = fields["epoch"]
        elif key.kind == stored.TARGET and value is not None:
            self.target_epoch = fields["assignment_epoch"]
        elif key.kind == stored.TARGET_OF_MEMBER:
            self.target.pop(member_id, None)
            if value is not None:
                self.target[member_id] = stored.read_places(fields["topic_partitions"])
        elif key.kind == stored.MEMBER and value is None:
            self.members.pop(member_id, None)
        elif key.kind == stored.MEMBER:
            member = self.members.get(member_id) or ConsumerMember(member_id)
            after = stored.member_with_metadata(member, fields)
            self.members[member_id] = replace(after, topic_names=self.shared(after.topic_names))
        elif key.kind == stored.CURRENT and value is not None:
            member = self.members.get(member_id) or ConsumerMember(member_id)
            self.members[member_id] = stored.member_with_assignment(member, fields)

    def finish_loading(self, now: Moment) -> None:
        """Begin after loading: every restored member gets a full session timeout."""
        for member in self.members.values():
            if member.instance_id is not None:
                self._static_members[member.instance_id] = member.member_id
            for place in member.holds:
                self._owners[place] = member.member_id
            session_ms = self.settings.session_timeout_ms
            if member.classic is not None:
                session_ms = member.classic.session_timeout_ms
            self.deadlines.set(member.member_id, Wait.SESSION, now.monotonic_ms + session_ms)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self.deadlines.set(
                    member.member_id,
                    Wait.REVOCATION,
                    now.monotonic_ms + member.rebalance_timeout_ms,
                )


def left(asked: ConsumerHeartbeat) -> ConsumerGroupHeartbeatResponse:
    """Return the response to a member that leaves."""
    return {
        "error_code": errors.NONE,
        "member_id": asked.member_id,
        "member_epoch": asked.epoch,
        "heartbeat_interval_ms": 0,
    }


def _places(shape: Mapping[bytes, int]) -> set[TopicPartition]:
    return {(topic_id, each) for topic_id, count in shape.items() for each in range(count)}
