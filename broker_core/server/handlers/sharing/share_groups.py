"""ShareGroupHeartbeat, ShareGroupDescribe, and the APIs for offsets of share groups (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from broker_core import errors
from broker_core.coordinator.groups.consumer_group_records import group_places
from broker_core.coordinator.groups.states import GroupState
from broker_core.coordinator.sharing.share_group import (
    ASSIGNOR,
    ShareAnswer,
    ShareGroup,
    ShareHeartbeat,
    ShareMember,
)
from broker_core.coordinator.sharing.share_records import SharePartitionKey
from broker_core.security.authorizer import Authorizer
from broker_core.server.authorization import may_read
from broker_core.server.handlers.groups.group_parts import GroupParts
from broker_core.server.handlers.metadata import GROUP_OPERATIONS
from broker_core.server.network.request import Request
from broker_core.server.partitions.topics import TopicRegistry
from broker_core.server.sharing.share_coordinator import NO_OFFSET
from broker_core.server.sharing.share_coordinator_client import ShareCoordinatorClient
from broker_core.server.sharing.share_groups import ShareGroups

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsResponse,
        AlterShareGroupOffsetsResponsePartition,
        AlterShareGroupOffsetsResponseResult,
        DeleteShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsResponse,
        DeleteShareGroupOffsetsResponseResult,
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
        DescribeShareGroupOffsetsResponse,
        DescribeShareGroupOffsetsResponseGroup,
        DescribeShareGroupOffsetsResponsePartition,
        ShareGroupDescribeRequest,
        ShareGroupDescribeResponse,
        ShareGroupDescribeResponseGroup,
        ShareGroupDescribeResponseMember,
        ShareGroupHeartbeatRequest,
        ShareGroupHeartbeatResponse,
    )

    _Result = (
        DescribeShareGroupOffsetsResponsePartition
        | AlterShareGroupOffsetsResponsePartition
        | DeleteShareGroupOffsetsResponseResult
    )

_NOT_ASKED: Final = -(2**31)


class ShareGroupParts(GroupParts, Protocol):
    """The parts of a broker that keep share groups and their offsets."""

    authorizer: Authorizer | None
    share_groups: ShareGroups
    share_states: ShareCoordinatorClient


def handle_heartbeat(
    broker: ShareGroupParts,
    request: Request[ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse],
) -> None:
    """Answer a ShareGroupHeartbeat request."""
    body = request.body
    groups = broker.share_groups
    asked = ShareHeartbeat(
        body["group_id"],
        body["member_id"],
        body["member_epoch"],
        body["rack_id"],
        request.client_id,
        request.client_host,
        body["subscribed_topic_names"],
    )
    settings = groups.settings.of_members(asked.group_id)

    def answered(code: int, answer: ShareAnswer) -> None:
        if code:
            request.reply({"error_code": code})
            return
        response: ShareGroupHeartbeatResponse = {
            "error_code": errors.NONE,
            "member_id": asked.member_id,
            "member_epoch": answer.epoch,
            "heartbeat_interval_ms": settings.heartbeat_interval_ms,
        }
        if answer.assigned is not None:
            response["assignment"] = {"topic_partitions": group_places(answer.assigned)}
        request.reply(response)

    try:
        asked.check()
        other = broker.groups.coordinator.groups.get(asked.group_id)
        if other is not None and (other.offsets or other.state is not GroupState.EMPTY):
            raise errors.GroupIdNotFound(f"Group {asked.group_id} is not a share group.")
        groups.heartbeat(asked, answered)
    except errors.BrokerError as error:
        request.reply({"error_code": error.code, "error_message": str(error)})


def handle_describe(
    broker: ShareGroupParts, request: Request[ShareGroupDescribeRequest, ShareGroupDescribeResponse]
) -> None:
    """Answer a ShareGroupDescribe request."""
    operations = GROUP_OPERATIONS if request.body["include_authorized_operations"] else _NOT_ASKED
    described: list[ShareGroupDescribeResponseGroup] = []
    for group_id in request.body["group_ids"]:
        group = broker.share_groups.groups.get(group_id)
        if group is not None:
            described.append(
                _describe(broker.topics, group) | {"authorized_operations": operations}
            )
            continue
        is_other = group_id in broker.groups.coordinator.groups
        described.append(
            {
                "group_id": group_id,
                "error_code": errors.GroupIdNotFound.code,
                "error_message": f"Group {group_id} is not a share group."
                if is_other
                else f"Group {group_id} not found.",
            }
        )
    request.reply({"groups": described})


def _describe(topics: TopicRegistry, group: ShareGroup) -> ShareGroupDescribeResponseGroup:
    return {
        "error_code": errors.NONE,
        "error_message": None,
        "group_id": group.group_id,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.epoch,
        "assignor_name": ASSIGNOR,
        "members": [_describe_member(topics, each) for each in group.members.values()],
    }


def _describe_member(
    topics: TopicRegistry, member: ShareMember
) -> ShareGroupDescribeResponseMember:
    return {
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topic_names),
        "assignment": {
            "topic_partitions": [
                {
                    "topic_id": each["topic_id"],
                    "topic_name": topic.name,
                    "partitions": each["partitions"],
                }
                for each in group_places(member.assigned)
                if (topic := topics.by_id(each["topic_id"])) is not None
            ]
        },
    }


# ------------------------------------------------------------------------------ offsets of groups


def handle_describe_offsets(
    broker: ShareGroupParts,
    request: Request[DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse],
) -> None:
    """Answer a DescribeShareGroupOffsets request."""
    described: list[DescribeShareGroupOffsetsResponseGroup] = []
    collected = _Collected(lambda: request.reply({"groups": described}))
    for asked in request.body["groups"]:
        described.append(_describe_offsets(broker, asked, collected))
    collected.end()


def _describe_offsets(
    broker: ShareGroupParts, asked: DescribeShareGroupOffsetsRequestGroup, collected: _Collected
) -> DescribeShareGroupOffsetsResponseGroup:
    group_id = asked["group_id"]
    groups = broker.share_groups
    if group_id not in groups.groups:
        return {
            "group_id": group_id,
            "error_code": errors.GroupIdNotFound.code,
            "error_message": f"Group {group_id} not found.",
        }
    wanted: dict[str, Sequence[int]] = {}
    if asked["topics"] is None:
        found: dict[str, list[int]] = {}
        for place in groups.places_of(group_id):
            topic = broker.topics.by_id(place.topic_id)
            if topic is not None:
                found.setdefault(topic.name, []).append(place.partition)
        wanted.update(found)
    else:
        wanted = {each["topic_name"]: each["partitions"] for each in asked["topics"]}
    return {
        "group_id": group_id,
        "error_code": errors.NONE,
        "error_message": None,
        "topics": [
            {
                "topic_name": name,
                "topic_id": topic.topic_id if (topic := broker.topics.get(name)) else bytes(16),
                "partitions": [
                    _describe_offset(broker, group_id, name, number, collected)
                    for number in numbers
                ],
            }
            for name, numbers in wanted.items()
        ],
    }


def _describe_offset(
    broker: ShareGroupParts, group_id: str, name: str, number: int, collected: _Collected
) -> DescribeShareGroupOffsetsResponsePartition:
    answer: DescribeShareGroupOffsetsResponsePartition = {
        "partition_index": number,
        "start_offset": NO_OFFSET,
        "leader_epoch": 0,
        "lag": NO_OFFSET,
        "error_code": errors.NONE,
        "error_message": None,
    }
    topic = broker.topics.get(name)
    if topic is None or not 0 <= number < topic.partition_count:
        return {**answer, "error_code": errors.UnknownTopicOrPartition.code}
    partition = topic.get(number)
    finish = collected.one(answer)

    def summarized(code: int, start_offset: int, done: int) -> None:
        if not code and start_offset != NO_OFFSET:
            answer["start_offset"] = start_offset
            # The lag is known only on a broker with a replica.
            if partition is not None:
                answer["leader_epoch"] = partition.leader_epoch
                lag = partition.high_watermark - start_offset - max(done, 0)
                answer["lag"] = max(lag, 0)
        finish(code)

    broker.share_states.summarize(SharePartitionKey(group_id, topic.topic_id, number), summarized)
    return answer


class _Collected:
    """Answers when all pending results have arrived."""

    def __init__(self, answer: Callable[[], None]) -> None:
        self._answer = answer
        self._waiting = 1

    def one(self, result: _Result) -> Callable[[int], None]:
        """Wait for one more result; return a callback that takes its error code."""
        self._waiting += 1

        def done(code: int) -> None:
            result["error_code"] = code
            self.end()

        return done

    def end(self) -> None:
        """Count down: a result has arrived, or all results have been requested."""
        self._waiting -= 1
        if not self._waiting:
            self._answer()


def handle_alter_offsets(
    broker: ShareGroupParts,
    request: Request[AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse],
) -> None:
    """Answer AlterShareGroupOffsets, for a group without members."""
    body = request.body
    groups = broker.share_groups
    group_id = body["group_id"]
    responses: list[AlterShareGroupOffsetsResponseResult] = []
    if group_id in groups.groups:
        try:
            groups.check_empty(group_id)
        except errors.BrokerError as error:
            request.reply({"error_code": error.code, "error_message": str(error), "responses": []})
            return
    collected = _Collected(
        lambda: request.reply(
            {"error_code": errors.NONE, "error_message": None, "responses": responses}
        )
    )
    for asked in body["topics"]:
        # Whoever may not read a topic is not told either whether there is one.
        is_allowed = may_read(broker.authorizer, request, asked["topic_name"])
        topic = broker.topics.get(asked["topic_name"]) if is_allowed else None
        results: list[AlterShareGroupOffsetsResponsePartition] = []
        responses.append(
            {
                "topic_name": asked["topic_name"],
                "topic_id": bytes(16) if topic is None else topic.topic_id,
                "partitions": results,
            }
        )
        for each in asked["partitions"]:
            number = each["partition_index"]
            result: AlterShareGroupOffsetsResponsePartition = {
                "partition_index": number,
                "error_code": errors.NONE,
                "error_message": None,
            }
            results.append(result)
            if not is_allowed:
                result["error_code"] = errors.TopicAuthorizationFailed.code
                continue
            if topic is None or not 0 <= number < topic.partition_count:
                result["error_code"] = errors.UnknownTopicOrPartition.code
                continue
            place = SharePartitionKey(group_id, topic.topic_id, number)
            groups.begin_at(place, each["start_offset"], collected.one(result))
    collected.end()


def handle_delete_offsets(
    broker: ShareGroupParts,
    request: Request[DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse],
) -> None:
    """Answer DeleteShareGroupOffsets, for a group without members."""
    body = request.body
    groups = broker.share_groups
    try:
        groups.check_empty(body["group_id"])
    except errors.BrokerError as error:
        request.reply({"error_code": error.code, "error_message": str(error), "responses": []})
        return
    responses: list[DeleteShareGroupOffsetsResponseResult] = []
    collected = _Collected(
        lambda: request.reply(
            {"error_code": errors.NONE, "error_message": None, "responses": responses}
        )
    )
    for asked in body["topics"]:
        is_allowed = may_read(broker.authorizer, request, asked["topic_name"])
        topic = broker.topics.get(asked["topic_name"]) if is_allowed else None
        result: DeleteShareGroupOffsetsResponseResult = {
            "topic_name": asked["topic_name"],
            "topic_id": bytes(16) if topic is None else topic.topic_id,
            "error_code": errors.NONE,
            "error_message": None,
        }
        responses.append(result)
        if not is_allowed:
            result["error_code"] = errors.TopicAuthorizationFailed.code
            continue
        if topic is None:
            result["error_code"] = errors.UnknownTopicOrPartition.code
            continue
        groups.forget_places(body["group_id"], topic.topic_id, collected.one(result))
    collected.end()
