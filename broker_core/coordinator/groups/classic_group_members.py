"""The members of a classic group, and what can be derived from them alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_core import errors
from broker_core.coordinator.groups.member import JoinRequest, Member
from broker_core.coordinator.groups.subscription import subscribed_topics
from broker_core.coordinator.offsets import encode_group_value


class ClassicGroupMembers:
    """The members of a classic group, without generations and rebalances."""

    def __init__(self) -> None:
        self.protocol_type: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        #: Static members by their instance id; every value is a key of `members`.
        self.static_members: dict[str, str] = {}
        #: Member ids that were given out but have not joined; monotonic ms until when they may.
        self.pending: dict[str, int] = {}

    def add(self, member: Member) -> None:
        """Add a new member; the first one becomes leader."""
        if not self.members:
            self.protocol_type = member.protocol_type
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: Member) -> None:
        """Remove a member; if it was the leader, the longest-serving member becomes leader."""
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member that returned its new id; the old id becomes unknown."""
        del self.members[member.member_id]
        if self.leader == member.member_id:
            self.leader = member_id
        member.member_id = member_id
        self.members[member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id

    def check(self, member_id: str, instance_id: str | None) -> int:
        """Return NONE for the ids of a member, otherwise an error code."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is not None and current != member_id:
                return errors.FencedInstanceId.code
        if member_id not in self.members:
            return errors.UnknownMemberId.code
        return errors.NONE

    def supports(self, request: JoinRequest) -> bool:
        """Tell whether a joining member shares a protocol with all others."""
        if not request.protocol_type or not request.protocols:
            return False
        if not self.members:
            return True
        common = self._common_protocols()
        return request.protocol_type == self.protocol_type and any(
            name in common for name, _ in request.protocols
        )

    def _common_protocols(self) -> set[str]:
        return set.intersection(
            *({name for name, _ in member.protocols} for member in self.members.values())
        )

    def elect_protocol(self) -> str:
        """Return the protocol with most votes among those that all members support."""
        candidates = self._common_protocols()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def rebalance_timeout_ms(self) -> int:
        """Return the largest rebalance timeout of the members."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    def all_joined(self) -> bool:
        """Tell whether all members have sent JoinGroup for the next generation."""
        return all(member.join_token is not None for member in self.members.values())

    def deadlines(self) -> list[int]:
        """Return the deadlines (monotonic ms) of members and of ids that have not joined."""
        alive = [
            deadline
            for member in self.members.values()
            if (deadline := member.deadline) is not None
        ]
        return alive + list(self.pending.values())

    def is_subscribed(self, topic: str) -> bool:
        """True if a member subscribes to a topic, or may do so: its metadata is unreadable."""
        for member in self.members.values():
            topics = subscribed_topics(member.protocols[0][1] if member.protocols else b"")
            if topics is None or topic in topics:
                return True
        return False

    def encode(self, generation: int, protocol: str | None, state_changed_ms: int) -> bytes:
        """Encode the record value of a group with these members."""
        return encode_group_value(
            {
                "protocol_type": self.protocol_type or "",
                "generation": generation,
                "protocol": protocol,
                "leader": self.leader,
                "current_state_timestamp": state_changed_ms,
                "members": self.to_fields(protocol),
            }
        )

    def to_fields(self, protocol: str | None) -> list[Mapping[str, object]]:
        """Return the members as fields of a GroupMetadataValue."""
        return [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "rebalance_timeout": member.rebalance_timeout_ms,
                "session_timeout": member.session_timeout_ms,
                "subscription": member.metadata(protocol or ""),
                "assignment": member.assignment,
            }
            for member in self.members.values()
        ]

    def restore(self, fields: dict[str, Any], now_ms: int) -> None:
        """Load the fields of a GroupMetadataValue; every member gets a full session timeout."""
        self.members.clear()
        self.static_members.clear()
        self.pending.clear()
        self.protocol_type = fields["protocol_type"] or None
        for each in fields["members"]:
            member = Member(
                each["member_id"],
                each["group_instance_id"],
                each["client_id"],
                each["client_host"],
                # Version 0 of the record had no rebalance timeout.
                each["rebalance_timeout"] or each["session_timeout"],
                each["session_timeout"],
                self.protocol_type or "",
                [(fields["protocol"] or "", each["subscription"])],
                assignment=each["assignment"],
            )
            member.heard(now_ms)
            self.members[member.member_id] = member
            if member.instance_id is not None:
                self.static_members[member.instance_id] = member.member_id
        self.leader = fields["leader"]
