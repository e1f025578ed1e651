"""The state machine of one classic consumer group (KIP-62, 345, 394).

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
      ^________________|___________________|________________|     (the last member leaves)

A step takes a request and the time and appends effects to `effects`. The metadata of members is
opaque: Kafka Connect and others use protocols of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from broker_core import errors
from broker_core.coordinator.effects import Append, Effect, Moment, Respond, Token
from broker_core.coordinator.groups.classic_group_members import ClassicGroupMembers
from broker_core.coordinator.groups.group_offsets import GroupOffsets
from broker_core.coordinator.groups.member import (
    JoinRequest,
    Member,
    join_error,
    new_member_id,
    sync_error,
)
from broker_core.coordinator.groups.states import GroupState
from broker_core.coordinator.offsets import encode_group_key

if TYPE_CHECKING:
    from broker_core.coordinator.effects import GroupResponse
    from broker_core.protocol.definitions.bodies import (
        JoinGroupResponse,
        JoinGroupResponseMember,
        SyncGroupResponse,
    )

logger = logging.getLogger(__name__)

#: Time in ms that a new member may wait for a rebalance before it is removed (as in Kafka).
_NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60_000
#: Shortest time in ms after which members of whom none has rejoined are waited for anew.
_NOBODY_JOINED_MS: Final = 1_000


class Group(GroupOffsets):
    """One group: its members, its generation and its committed offsets."""

    def __init__(
        self,
        group_id: str,
        effects: list[Effect],
        *,
        new_id: Callable[[], str],
        initial_rebalance_delay_ms: int,
        size_max: int,
    ) -> None:
        super().__init__(group_id)
        self.state = GroupState.EMPTY
        #: Only increases; identifies one assignment of partitions.
        self.generation = 0
        self.protocol: str | None = None
        self.roster = ClassicGroupMembers()
        #: Wall ms of the last change of state; offsets expire from then on.
        self.state_changed_ms = -1
        self._effects = effects
        self._new_id = new_id
        self._initial_rebalance_delay_ms = initial_rebalance_delay_ms
        self._size_max = size_max
        # Monotonic ms when the current rebalance stops waiting for members.
        self._join_deadline: int | None = None
        # While a group forms, the rebalance also waits for members that have not joined yet.
        self._forming = False
        self._forming_until = 0
        self._joined_while_forming = False
        # Monotonic ms until which all members have to send SyncGroup.
        self._sync_deadline: int | None = None

    @property
    def members(self) -> dict[str, Member]:
        """The members by member id."""
        return self.roster.members

    @property
    def protocol_type(self) -> str | None:
        """The type of the group ("consumer", "connect"); None before the first member."""
        return self.roster.protocol_type

    @property
    def leader(self) -> str | None:
        """The id of the member that assigns the partitions."""
        return self.roster.leader

    # ------------------------------------------------------------------------------------ joining

    def join(self, request: JoinRequest, token: Token, now: Moment) -> None:
        """Handle JoinGroup of a new or a known member."""
        if not self.roster.supports(request):
            self._respond(
                token, join_error(errors.InconsistentGroupProtocol.code, request.member_id)
            )
        elif (
            request.member_id not in self.members
            and request.member_id not in self.roster.pending
            and request.instance_id not in self.roster.static_members
            and len(self.members) + len(self.roster.pending) >= self._size_max
        ):
            self._respond(token, join_error(errors.GroupMaxSizeReached.code, request.member_id))
        elif request.member_id:
            self._join_known(request, token, now)
        elif request.instance_id is not None:
            self._join_static(request, request.instance_id, token, now)
        else:
            self._join_new(request, token, now)

    def _join_new(self, request: JoinRequest, token: Token, now: Moment) -> None:
        member_id = new_member_id(request.client_id, self._new_id())
        if request.require_known_member_id:
            # A client that lost the response to its first join would leave an unused member behind.
            self.roster.pending[member_id] = now.monotonic_ms + request.session_timeout_ms
            self._respond(token, join_error(errors.MemberIdRequired.code, member_id))
        else:
            self._add_member(request, member_id, token, now)

    def _join_static(
        self, request: JoinRequest, instance_id: str, token: Token, now: Moment
    ) -> None:
        member_id = new_member_id(instance_id, self._new_id())
        old_id = self.roster.static_members.get(instance_id)
        if old_id is None:
            self._add_member(request, member_id, token, now)
            return
        member = self.members[old_id]
        self._refuse_waiting(member, errors.FencedInstanceId.code)
        logger.info("group %s: instance %s is back", self.group_id, instance_id)
        was_leader = self.leader == old_id
        self.roster.rename(member, member_id)
        if self.state is GroupState.STABLE and member.protocols == request.protocols:
            # The instance keeps its predecessor's assignment, without a rebalance.
            member.heard(now.monotonic_ms)
            response = self._join_response(member, skip_assignment=was_leader)
            if was_leader and not request.supports_skipping_assignment:
                # An older client would compute an assignment that the group does not need.
                response["leader"] = old_id
            self._persist([Respond(token, response)], now)
            return
        self._update_member(member, request, token, now)

    def _join_known(self, request: JoinRequest, token: Token, now: Moment) -> None:
        # Nobody with an instance id was told to come back with a pending one.
        if request.member_id in self.roster.pending and request.instance_id is None:
            del self.roster.pending[request.member_id]
            self._add_member(request, request.member_id, token, now)
            return
        error = self.roster.check(request.member_id, request.instance_id)
        if error:
            self._respond(token, join_error(error, request.member_id))
            return
        member = self.members[request.member_id]
        unchanged = member.protocols == request.protocols
        if self.state is GroupState.COMPLETING_REBALANCE and unchanged:
            # The response to its JoinGroup was lost.
            self._respond(token, self._join_response(member))
        elif self.state is GroupState.STABLE and unchanged and self.leader != member.member_id:
            self._respond(token, self._join_response(member))
        else:
            self._update_member(member, request, token, now)

    def _add_member(self, request: JoinRequest, member_id: str, token: Token, now: Moment) -> None:
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocol_type,
            request.protocols,
            join_token=token,
            new_member_deadline=now.monotonic_ms + _NEW_MEMBER_TIMEOUT_MS,
        )
        self.roster.add(member)
        self._joined_while_forming = True
        logger.info("group %s: %s joins", self.group_id, member_id)
        self._rebalance(now)

    def _update_member(
        self, member: Member, request: JoinRequest, token: Token, now: Moment
    ) -> None:
        if member.join_token is not None:
            # The client gave up on its first request and tries again.
            self._respond(
                member.join_token, join_error(errors.RebalanceInProgress.code, member.member_id)
            )
        member.protocols = request.protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id = request.client_id
        member.client_host = request.client_host
        member.join_token = token
        self._rebalance(now)

    # -------------------------------------------------------------------------------- rebalancing

    def _rebalance(self, now: Moment) -> None:
        """Start a rebalance unless one is waiting for members; complete it if all have joined."""
        if self.state is not GroupState.PREPARING_REBALANCE:
            self._start_rebalance(now)
        self._complete_join_if_all_here(now)

    def _start_rebalance(self, now: Moment) -> None:
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._cancel_sync(errors.RebalanceInProgress.code)
        timeout_ms = self.roster.rebalance_timeout_ms()
        delay_ms = self._initial_rebalance_delay_ms
        if self.state is GroupState.EMPTY and delay_ms > 0:
            self._forming = True
            self._joined_while_forming = False
            self._forming_until = now.monotonic_ms + max(timeout_ms, delay_ms)
            self._join_deadline = now.monotonic_ms + delay_ms
        else:
            self._forming = False
            self._join_deadline = now.monotonic_ms + timeout_ms
        self._change_state(GroupState.PREPARING_REBALANCE, now)

    def _complete_join_if_all_here(self, now: Moment) -> None:
        if self.state is not GroupState.PREPARING_REBALANCE or self._forming:
            return
        if not self.roster.pending and self.roster.all_joined():
            self._complete_join(now)

    def _join_deadline_passed(self, now: Moment) -> None:
        if self._forming and self._joined_while_forming:
            # A member joined: wait once more for others, within the rebalance timeout.
            self._joined_while_forming = False
            again = min(now.monotonic_ms + self._initial_rebalance_delay_ms, self._forming_until)
            if again > now.monotonic_ms:
                self._join_deadline = again
                return
        self._complete_join(now)

    def _complete_join(self, now: Moment) -> None:
        """Begin a new generation with the members that have joined."""
        for member in list(self.members.values()):
            if member.join_token is None and member.instance_id is None:
                logger.info("group %s: %s did not rejoin", self.group_id, member.member_id)
                self._drop(member)
        self._forming = False
        joined = [each for each in self.members.values() if each.join_token is not None]
        if self.members and not joined:
            # Only static members are left and none has rejoined: they stay members until their
            # sessions time out.
            timeout_ms = max(self.roster.rebalance_timeout_ms(), _NOBODY_JOINED_MS)
            self._join_deadline = now.monotonic_ms + timeout_ms
            return
        self._join_deadline = None
        self.generation += 1
        if not self.members:
            self.protocol = None
            self.roster.leader = None
            self._change_state(GroupState.EMPTY, now)
            logger.info("group %s: empty in generation %d", self.group_id, self.generation)
            self._persist([], now)
            return
        if self.leader not in self.members or self.members[self.leader].join_token is None:
            self.roster.leader = joined[0].member_id
        self.protocol = self.roster.elect_protocol()
        self._change_state(GroupState.COMPLETING_REBALANCE, now)
        self._sync_deadline = now.monotonic_ms + self.roster.rebalance_timeout_ms()
        count = len(self.members)
        logger.info("group %s: generation %d, %d members", self.group_id, self.generation, count)
        for member in joined:
            token, member.join_token = member.join_token, None
            member.new_member_deadline = None
            member.heard(now.monotonic_ms)
            assert token is not None
            self._respond(token, self._join_response(member))

    def _join_response(self, member: Member, *, skip_assignment: bool = False) -> JoinGroupResponse:
        members: list[JoinGroupResponseMember] = []
        if member.member_id == self.leader:
            protocol = self.protocol or ""
            members = [
                {
                    "member_id": each.member_id,
                    "group_instance_id": each.instance_id,
                    "metadata": each.metadata(protocol),
                }
                for each in self.members.values()
            ]
        return {
            "error_code": errors.NONE,
            "generation_id": self.generation,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol,
            "leader": self.leader or "",
            "skip_assignment": skip_assignment,
            "member_id": member.member_id,
            "members": members,
        }

    # ------------------------------------------------------------------------------------ syncing

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: dict[str, bytes],
        token: Token,
        now: Moment,
    ) -> None:
        """Handle SyncGroup: a member asks for its assignment; the leader sends all of them."""
        error = self.roster.check(member_id, instance_id) or self._check_generation(generation)
        if not error and any(
            given is not None and given != own
            for given, own in zip(protocol, (self.protocol_type, self.protocol), strict=True)
        ):
            error = errors.InconsistentGroupProtocol.code
        if error:
            self._respond(token, sync_error(error))
            return
        member = self.members[member_id]
        if self.state is GroupState.PREPARING_REBALANCE:
            self._respond(token, sync_error(errors.RebalanceInProgress.code))
        elif self.state is GroupState.STABLE:
            member.heard(now.monotonic_ms)
            self._respond(token, self._sync_response(member))
        else:
            if member.sync_token is not None:
                self._respond(member.sync_token, sync_error(errors.RebalanceInProgress.code))
            member.sync_token = token
            if member_id == self.leader:
                for each in self.members.values():
                    each.assignment = assignments.get(each.member_id, b"")
                self._persist([], now, stabilises=self.generation)

    def stabilise(self, generation: int, now: Moment) -> None:
        """Hand out the assignment, which is stored now."""
        if self.state is not GroupState.COMPLETING_REBALANCE or generation != self.generation:
            return
        self._change_state(GroupState.STABLE, now)
        for member in self.members.values():
            self._hand_out(member, now)
        # Other members get it with their SyncGroup, or are removed when their sessions time out.
        self._sync_deadline = None

    def cannot_stabilise(self, generation: int, code: int, now: Moment) -> None:
        """Start a rebalance because the assignment could not be stored; answer with `code`."""
        if self.state is GroupState.COMPLETING_REBALANCE and generation == self.generation:
            self._cancel_sync(code)
            self._rebalance(now)

    def _hand_out(self, member: Member, now: Moment) -> None:
        member.heard(now.monotonic_ms)
        if member.sync_token is not None:
            token, member.sync_token = member.sync_token, None
            self._respond(token, self._sync_response(member))

    def _sync_response(self, member: Member) -> SyncGroupResponse:
        return {
            "error_code": errors.NONE,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol,
            "assignment": member.assignment,
        }

    def _cancel_sync(self, code: int) -> None:
        self._sync_deadline = None
        for member in self.members.values():
            member.assignment = b""
            if member.sync_token is not None:
                token, member.sync_token = member.sync_token, None
                self._respond(token, sync_error(code))

    # ------------------------------------------------------------------------ living and leaving

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now: Moment
    ) -> int:
        """Handle Heartbeat; return the error code of the response."""
        error = self.roster.check(member_id, instance_id) or self._check_generation(generation)
        if error:
            return error
        self.members[member_id].heard(now.monotonic_ms)
        if self.state is GroupState.PREPARING_REBALANCE:
            return errors.RebalanceInProgress.code
        return errors.NONE

    def leave(self, member_id: str, instance_id: str | None, now: Moment) -> int:
        """Remove a member that leaves; return the error code of the response."""
        if member_id in self.roster.pending:
            del self.roster.pending[member_id]
            self._complete_join_if_all_here(now)
            return errors.NONE
        if instance_id is not None and not member_id:
            # An administrator removes a static member by its instance id.
            member_id = self.roster.static_members.get(instance_id, "")
        error = self.roster.check(member_id, instance_id)
        if not error:
            logger.info("group %s: %s leaves", self.group_id, member_id)
            self._remove(self.members[member_id], now)
        return error

    def _remove(self, member: Member, now: Moment) -> None:
        self._drop(member)
        if self.state is GroupState.PREPARING_REBALANCE:
            self._complete_join_if_all_here(now)
        elif self.state is not GroupState.EMPTY:
            self._rebalance(now)

    def _drop(self, member: Member) -> None:
        self.roster.remove(member)
        self._refuse_waiting(member, errors.UnknownMemberId.code)

    def refuse_all_waiting(self, code: int) -> None:
        """Answer all waiting requests with an error."""
        for member in self.members.values():
            self._refuse_waiting(member, code)

    def _refuse_waiting(self, member: Member, code: int) -> None:
        if member.join_token is not None:
            self._respond(member.join_token, join_error(code, member.member_id))
            member.join_token = None
        if member.sync_token is not None:
            self._respond(member.sync_token, sync_error(code))
            member.sync_token = None

    def next_deadline(self) -> int | None:
        """Return the monotonic ms at which `tick` has something to do; None if never."""
        deadlines = self.roster.deadlines()
        if self._join_deadline is not None:
            deadlines.append(self._join_deadline)
        if self._sync_deadline is not None:
            deadlines.append(self._sync_deadline)
        return min(deadlines, default=None)

    def tick(self, now: Moment) -> None:
        """End the sessions and rebalances that are due."""
        for member_id, deadline in list(self.roster.pending.items()):
            if deadline <= now.monotonic_ms:
                del self.roster.pending[member_id]
                self._complete_join_if_all_here(now)
        for member in list(self.members.values()):
            due = member.deadline
            if due is not None and due <= now.monotonic_ms:
                logger.info("group %s: no heartbeat of %s", self.group_id, member.member_id)
                self._remove(member, now)
        if self._sync_deadline is not None and self._sync_deadline <= now.monotonic_ms:
            self._sync_deadline = None
            if self.state is GroupState.COMPLETING_REBALANCE:
                for member in list(self.members.values()):
                    if member.sync_token is None:
                        logger.info("group %s: %s did not sync", self.group_id, member.member_id)
                        self._drop(member)
                self._rebalance(now)
        if self._join_deadline is not None and self._join_deadline <= now.monotonic_ms:
            self._join_deadline_passed(now)

    # ------------------------------------------------------------------------------------ offsets

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, now: Moment
    ) -> int:
        """Return an error code, NONE if offsets may be committed."""
        if generation < 0 and self.state is GroupState.EMPTY:
            # A consumer that assigns its own partitions uses the group only to store offsets.
            return errors.NONE
        if generation < 0 and not member_id and instance_id is None:
            return errors.UnknownMemberId.code
        error = self.roster.check(member_id, instance_id) or self._check_generation(generation)
        if error:
            return error
        self.members[member_id].heard(now.monotonic_ms)
        if self.state is GroupState.COMPLETING_REBALANCE:
            return errors.RebalanceInProgress.code
        return errors.NONE

    def check_transactional_commit(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> int:
        """Return an error code, NONE if a transaction may commit offsets.

        A producer that does not name the member (before KIP-447) is accepted.
        """
        if generation < 0 and not member_id and instance_id is None:
            return errors.NONE
        return self.roster.check(member_id, instance_id) or self._check_generation(generation)

    def is_subscribed(self, topic: str) -> bool:
        """Tell whether a member subscribes to a topic, or may do so."""
        return self.roster.is_subscribed(topic)

    # ------------------------------------------------------------------------------------- shared

    def _check_generation(self, generation: int) -> int:
        return errors.NONE if generation == self.generation else errors.IllegalGeneration.code

    def _change_state(self, state: GroupState, now: Moment) -> None:
        self.state = state
        self.state_changed_ms = now.wall_ms

    def _respond(self, token: Token, response: GroupResponse) -> None:
        self._effects.append(Respond(token, response))

    def _persist(
        self, responses: list[Respond], now: Moment, *, stabilises: int | None = None
    ) -> None:
        """Store the group, then send `responses`."""
        self._effects.append(
            Append(self.group_id, [self.stored_record()], responses, stabilises=stabilises)
        )

    def stored_record(self, *, generations_later: int = 0) -> tuple[bytes, bytes]:
        """Return the record of the group, with its generation increased by `generations_later`."""
        value = self.roster.encode(
            self.generation + generations_later, self.protocol, self.state_changed_ms
        )
        return encode_group_key(self.group_id), value

    def begin_with(self, members: list[Member], generation: int, now: Moment) -> None:
        """Start with the members of another group that has been converted to this one."""
        for member in members:
            member.heard(now.monotonic_ms)
            self.roster.add(member)
        self.generation = generation
        self.protocol = self.roster.elect_protocol()
        self._change_state(GroupState.STABLE, now)

    def ask_to_join_again(self, now: Moment) -> None:
        """Start a rebalance, so that all members join again."""
        self._rebalance(now)

    def restore(self, fields: dict[str, Any], now: Moment) -> None:
        """Load what `_persist` stored; every member gets a full session timeout."""
        self.roster.restore(fields, now.monotonic_ms)
        self.generation = fields["generation"]
        self.protocol = fields["protocol"]
        self.state_changed_ms = fields["current_state_timestamp"]
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
