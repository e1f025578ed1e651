"""ConsumerGroupHeartbeat, ConsumerGroupDescribe: groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from broker_core import errors
from broker_core.coordinator.groups.consumer_group import ConsumerGroup
from broker_core.coordinator.groups.consumer_group_records import group_places, read_places
from broker_core.coordinator.groups.consumer_heartbeat import ConsumerHeartbeat, check_heartbeat
from broker_core.coordinator.groups.consumer_member import NO_PLACES, ConsumerMember, Places
from broker_core.coordinator.groups.topic_view import ALL_TOPICS, TopicRights
from broker_core.security.acl import Operation, ResourceType
from broker_core.security.authorizer import Authorizer
from broker_core.server.coordination.groups import Groups
from broker_core.server.handlers.groups.group_parts import GroupParts
from broker_core.server.handlers.metadata import GROUP_OPERATIONS
from broker_core.server.network.request import AnyRequest, Request
from broker_core.server.partitions.topics import TopicRegistry

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
        ConsumerGroupDescribeResponseGroup,
        ConsumerGroupDescribeResponseMember,
        ConsumerGroupDescribeResponseTopicPartition,
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )

_MEMBER_ID_FROM_CLIENT_FROM: Final = 1
_NOT_ASKED: Final = -(2**31)
_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


class ConsumerGroupParts(Protocol):
    """The parts of a broker that keep consumer groups, and know what clients may describe."""

    authorizer: Authorizer | None
    groups: Groups


def handle_heartbeat(
    broker: ConsumerGroupParts,
    request: Request[ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse],
) -> None:
    """Answer a ConsumerGroupHeartbeat request."""
    body, groups = request.body, broker.groups
    owned = body["topic_partitions"]
    asked = ConsumerHeartbeat(
        body["group_id"],
        body["member_id"],
        body["member_epoch"],
        body["instance_id"],
        body["rack_id"],
        request.client_id,
        request.client_host,
        body["rebalance_timeout_ms"],
        body["subscribed_topic_names"],
        body["subscribed_topic_regex"],
        body["server_assignor"],
        None if owned is None else read_places(owned),
        _rights(broker.authorizer, request),
    )
    try:
        check_heartbeat(asked, needs_member_id=request.version >= _MEMBER_ID_FROM_CLIENT_FROM)
        groups.check_can_store(asked.group_id, _stored_bytes(asked))
    except errors.BrokerError as error:
        request.reply({"error_code": error.code, "error_message": str(error)})
        return
    if not asked.member_id:
        asked.member_id = groups.new_member_id()
    groups.coordinator.consumer_heartbeat(asked, request.reply, groups.moment())
    groups.perform()


def _stored_bytes(asked: ConsumerHeartbeat) -> int:
    texts = (asked.instance_id, asked.rack_id, asked.client_id, asked.topic_regex, asked.assignor)
    stored = (each for each in (*texts, *(asked.topic_names or ())) if each is not None)
    return sum(len(each.encode()) for each in stored)


def _rights(authorizer: Authorizer | None, request: AnyRequest) -> TopicRights:
    if authorizer is None:
        return ALL_TOPICS
    asks = (request.principal, request.host, Operation.DESCRIBE, ResourceType.TOPIC)
    return TopicRights(partial(authorizer.allows, *asks), asks, authorizer.version)


def handle_describe(
    broker: GroupParts,
    request: Request[ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse],
) -> None:
    """Answer a ConsumerGroupDescribe request."""
    broker.groups.catch_up()
    operations = GROUP_OPERATIONS if request.body["include_authorized_operations"] else _NOT_ASKED
    described: list[ConsumerGroupDescribeResponseGroup] = []
    for group_id in request.body["group_ids"]:
        group = broker.groups.coordinator.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            described.append(
                _describe(broker.topics, group) | {"authorized_operations": operations}
            )
        else:
            problem = f"Group {group_id} is not a consumer group."
            if group is None:
                problem = f"Group {group_id} not found."
            described.append(
                {
                    "group_id": group_id,
                    "error_code": errors.GroupIdNotFound.code,
                    "error_message": problem,
                }
            )
    request.reply({"groups": described})


def _describe(topics: TopicRegistry, group: ConsumerGroup) -> ConsumerGroupDescribeResponseGroup:
    return {
        "error_code": errors.NONE,
        "group_id": group.group_id,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": group.assignor,
        "members": [_describe_member(topics, group, each) for each in group.members.values()],
    }


def _describe_member(
    topics: TopicRegistry, group: ConsumerGroup, member: ConsumerMember
) -> ConsumerGroupDescribeResponseMember:
    target = group.target.get(member.member_id, NO_PLACES)
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topic_names),
        "subscribed_topic_regex": member.topic_regex or None,
        "assignment": {"topic_partitions": _named(topics, member.assigned)},
        "target_assignment": {"topic_partitions": _named(topics, target)},
        "member_type": _CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    }


def _named(
    topics: TopicRegistry, places: Places
) -> list[ConsumerGroupDescribeResponseTopicPartition]:
    return [
        {"topic_id": each["topic_id"], "topic_name": topic.name, "partitions": each["partitions"]}
        for each in group_places(places)
        if (topic := topics.by_id(each["topic_id"])) is not None
    ]
