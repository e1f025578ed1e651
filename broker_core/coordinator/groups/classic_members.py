"""Members of the classic protocol in a group of the consumer protocol (KIP-848, "migration").

The broker assigns partitions for these members as well. JoinGroup does what a full heartbeat does
and names no leader. SyncGroup returns the member's assignment. Heartbeat tells the member to join
again when its assignment changes. A member's generation is its member epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from broker_core import errors
from broker_core.coordinator.effects import Moment
from broker_core.coordinator.groups.consumer_group import ConsumerGroup
from broker_core.coordinator.groups.consumer_group_records import StoredRecord
from broker_core.coordinator.groups.consumer_member import (
    ClassicMetadata,
    ConsumerMember,
    MemberState,
)
from broker_core.coordinator.groups.member import JoinRequest, join_error, new_member_id
from broker_core.coordinator.groups.member_deadlines import Wait
from broker_core.coordinator.groups.subscription import (
    CONSUMER,
    Subscription,
    decode_subscription,
    encode_assignment,
    with_ids,
)
from broker_core.protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        JoinGroupResponse,
        SyncGroupRequest,
        SyncGroupResponse,
    )

_NO_MEMBER_YET: Final = ""


def join(
    group: ConsumerGroup, request: JoinRequest, new_id: Callable[[], str], now: Moment
) -> tuple[JoinGroupResponse, list[StoredRecord]]:
    """Handle JoinGroup; return the response and the records to store before it is sent.

    Raises BrokerError, and then the group is unchanged.
    """
    subscription = _check_join(group, request)
    is_unknown = request.member_id == _NO_MEMBER_YET
    member_id = new_member_id(request.client_id, new_id()) if is_unknown else request.member_id
    if is_unknown and request.instance_id is None and request.require_known_member_id:
        group.check_size()
        return join_error(errors.MemberIdRequired.code, member_id), []
    records: list[StoredRecord] = []
    before = _find(group, request.instance_id, member_id, records, is_unknown=is_unknown)
    classic = ClassicMetadata(request.session_timeout_ms, tuple(request.protocols))
    after = replace(
        before,
        instance_id=request.instance_id,
        rack_id=before.rack_id if subscription.rack_id is None else subscription.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=group.shared(subscription.topics),
        topic_regex=None,
        assignor=None,
        classic=classic,
    )
    after = group.subscribe(before, after, records)
    after = group.reconcile(after, with_ids(subscription.owned, group.topics), records, now)
    deadlines = group.deadlines
    deadlines.clear(member_id, Wait.JOIN)
    deadlines.set(member_id, Wait.SESSION, now.monotonic_ms + classic.session_timeout_ms)
    deadlines.set(member_id, Wait.SYNC, now.monotonic_ms + request.rebalance_timeout_ms)
    response: JoinGroupResponse = {
        "error_code": errors.NONE,
        "generation_id": after.epoch,
        "protocol_type": CONSUMER,
        "protocol_name": classic.protocols[0][0],
        # The broker is the leader.
        "leader": "",
        "member_id": member_id,
        "members": [],
    }
    return response, records


def _check_join(group: ConsumerGroup, request: JoinRequest) -> Subscription:
    refused = errors.InconsistentGroupProtocol(
        f"Protocols of member {request.member_id} are not supported."
    )
    if request.protocol_type != CONSUMER or not request.protocols:
        raise refused
    common = {name for name, _ in request.protocols}
    for member in group.members.values():
        if member.classic is not None and member.member_id != request.member_id:
            common &= {name for name, _ in member.classic.protocols}
    if not common:
        raise refused
    try:
        return decode_subscription(request.protocols[0][1])
    except RemoteProtocolError:
        raise refused from None


def _find(
    group: ConsumerGroup,
    instance_id: str | None,
    member_id: str,
    records: list[StoredRecord],
    *,
    is_unknown: bool,
) -> ConsumerMember:
    if instance_id is None:
        return group.find_or_begin(member_id)
    if not is_unknown:
        return group.expect(member_id, instance_id)
    static = group.static_member(instance_id)
    if static is None:
        return group.find_or_begin(member_id)
    return group.replace_static(static, member_id, records)


def sync(group: ConsumerGroup, request: SyncGroupRequest, now: Moment) -> SyncGroupResponse:
    """Handle SyncGroup; return the response, or raise BrokerError."""
    member, classic = _expect(
        group, request["member_id"], request["group_instance_id"], request["generation_id"]
    )
    protocol, metadata = classic.protocols[0]
    if request["protocol_type"] not in {None, CONSUMER} or request["protocol_name"] not in {
        None,
        protocol,
    }:
        raise errors.InconsistentGroupProtocol(
            f"Member {member.member_id} has joined with the protocol {protocol}."
        )
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        # A member that still has to revoke partitions has joined again, and does that first.
        _expect_join(group, member, now)
        raise errors.RebalanceInProgress(f"Member {member.member_id} has to join again.")
    group.deadlines.clear(member.member_id, Wait.SYNC)
    _heard(group, member, classic, now)
    return {
        "error_code": errors.NONE,
        "protocol_type": request["protocol_type"],
        "protocol_name": request["protocol_name"],
        "assignment": encode_assignment(member.assigned, metadata, group.topics),
    }


def heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, now: Moment
) -> None:
    """Handle Heartbeat; raises BrokerError: RebalanceInProgress if the member has to rejoin."""
    member, classic = _expect(group, member_id, instance_id, generation)
    _heard(group, member, classic, now)
    can_get_more = member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(
        member
    )
    if (
        member.epoch < group.epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or can_get_more
    ):
        _expect_join(group, member, now)
        raise errors.RebalanceInProgress(f"Member {member.member_id} has to join again.")


def _expect(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicMetadata]:
    member = group.expect(member_id, instance_id)
    if member.classic is None:
        raise errors.UnknownMemberId(f"Member {member_id} does not speak the classic protocol.")
    if generation != member.epoch:
        raise errors.IllegalGeneration(
            f"Generation {generation} of member {member_id} is not {member.epoch}."
        )
    return member, member.classic


def _heard(
    group: ConsumerGroup, member: ConsumerMember, classic: ClassicMetadata, now: Moment
) -> None:
    group.deadlines.set(
        member.member_id, Wait.SESSION, now.monotonic_ms + classic.session_timeout_ms
    )


def _expect_join(group: ConsumerGroup, member: ConsumerMember, now: Moment) -> None:
    group.deadlines.set_if_absent(
        member.member_id, Wait.JOIN, now.monotonic_ms + member.rebalance_timeout_ms
    )
