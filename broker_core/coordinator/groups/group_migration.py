"""Conversion of groups between protocols while they have members (KIP-848, "online migration")."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from broker_core import errors
from broker_core.coordinator.effects import Moment
from broker_core.coordinator.groups import consumer_group_records as stored
from broker_core.coordinator.groups.consumer_group import ConsumerGroup
from broker_core.coordinator.groups.consumer_group_records import StoredRecord
from broker_core.coordinator.groups.consumer_member import (
    NO_PLACES,
    ClassicMetadata,
    ConsumerMember,
    Places,
)
from broker_core.coordinator.groups.group import Group
from broker_core.coordinator.groups.member import Member
from broker_core.coordinator.groups.states import GroupState
from broker_core.coordinator.groups.subscription import (
    CONSUMER,
    CustomUserData,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    with_ids,
)
from broker_core.coordinator.offsets import encode_group_key
from broker_core.protocol.errors import RemoteProtocolError

logger = logging.getLogger(__name__)


def upgrade(classic: Group, new: ConsumerGroup, now: Moment) -> list[StoredRecord]:
    """Convert `classic` into `new`; members whose requests wait are told to join again.

    Returns the records to store. Raises GroupIdNotFound if the metadata of members is not that of
    consumers, or if an assignor has added user data; then nothing has changed.
    """
    try:
        subscriptions = {
            member_id: decode_subscription(member.metadata(classic.protocol or _favourite(member)))
            for member_id, member in classic.members.items()
        }
        assigned = _holdings(classic, subscriptions, new)
    except (RemoteProtocolError, CustomUserData) as error:
        logger.warning("group %s cannot be upgraded: %s", classic.group_id, error)
        raise errors.GroupIdNotFound(
            f"Cannot upgrade classic group {classic.group_id} to consumer group: {error}."
        ) from None
    logger.info("group %s: goes on with the consumer protocol", classic.group_id)
    classic.refuse_all_waiting(errors.RebalanceInProgress.code)
    new.take_offsets(classic)
    new.epoch = new.target_epoch = classic.generation
    for member_id, member in classic.members.items():
        new.members[member_id] = ConsumerMember(
            member_id,
            instance_id=member.instance_id,
            rack_id=subscriptions[member_id].rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            topic_names=new.shared(subscriptions[member_id].topics),
            epoch=classic.generation,
            previous_epoch=classic.generation,
            assigned=assigned[member_id],
            classic=ClassicMetadata(member.session_timeout_ms, tuple(member.protocols)),
        )
        new.target[member_id] = assigned[member_id]
    new.finish_loading(now)
    return [(encode_group_key(classic.group_id), None), *stored.group_records(new)]


def _favourite(member: Member) -> str:
    return member.protocols[0][0]


def _holdings(
    classic: Group, subscriptions: Mapping[str, Subscription], new: ConsumerGroup
) -> dict[str, Places]:
    """Return the partitions that each member consumes: assigned, or still owned when it joined.

    Cooperative members keep consuming during a rebalance; no other member may get their partitions.
    """
    given = {
        member_id: decode_assignment(member.assignment, new.topics)
        for member_id, member in classic.members.items()
    }
    holdings: dict[str, Places] = {}
    for member_id, member in classic.members.items():
        has_joined_since = (
            classic.state is GroupState.COMPLETING_REBALANCE or member.join_token is not None
        )
        holdings[member_id] = NO_PLACES if has_joined_since else given[member_id]
    taken = set().union(*holdings.values())
    for member_id, subscription in subscriptions.items():
        kept = with_ids(subscription.owned, new.topics) - taken
        holdings[member_id] |= kept
        taken |= kept
    return holdings


def is_classic_without(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Tell whether only classic members, at least one, are left if a member leaves."""
    return (
        member.classic is None
        and len(group.members) > 1
        and all(each.classic is not None for each in group.members.values() if each is not member)
    )


def downgrade(
    group: ConsumerGroup, new: Group, now: Moment, *, without: ConsumerMember | None
) -> list[StoredRecord]:
    """Convert `group` into `new`, without the member `without`; the others must be classic.

    Returns the records to store.
    """
    logger.info("group %s: goes on with the classic protocol", group.group_id)
    records = [
        record
        for member_id in group.members
        for record in stored.member_tombstones(group.group_id, member_id)
    ]
    records += stored.group_tombstones(group.group_id)
    new.take_offsets(group)
    new.begin_with(
        [
            _downgraded(member, member.classic)
            for member in group.members.values()
            if member is not without and member.classic is not None
        ],
        group.epoch,
        now,
    )
    for member_id, each in new.members.items():
        each.assignment = encode_assignment(
            group.target.get(member_id, ()), each.metadata(new.protocol or ""), group.topics
        )
    # Nobody owns the partitions of the leaving member until all have joined again. If a restart
    # interrupts that, the loaded generation is one that no member has.
    records.append(new.stored_record(generations_later=0 if without is None else 1))
    return records


def _downgraded(member: ConsumerMember, classic: ClassicMetadata) -> Member:
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        classic.session_timeout_ms,
        CONSUMER,
        list(classic.protocols),
    )
