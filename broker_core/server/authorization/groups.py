"""Authorization rules of the APIs for groups and their offsets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from broker_core import errors
from broker_core.security.acl import Operation, ResourceType
from broker_core.server.authorization.guard import Guard, Rule, split

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
        DeleteGroupsRequest,
        DeleteGroupsResponse,
        DeleteGroupsResponseResult,
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsResponse,
        DescribeShareGroupOffsetsResponseGroup,
        DescribeShareGroupOffsetsResponsePartition,
        DescribeShareGroupOffsetsResponseTopic,
        FindCoordinatorRequest,
        FindCoordinatorResponse,
        FindCoordinatorResponseCoordinator,
        ListGroupsRequest,
        ListGroupsResponse,
        OffsetCommitRequest,
        OffsetCommitRequestTopic,
        OffsetCommitResponse,
        OffsetCommitResponseTopic,
        OffsetDeleteRequest,
        OffsetDeleteResponse,
        OffsetFetchRequest,
        OffsetFetchResponse,
        OffsetFetchResponseGroup,
        OffsetFetchResponseGroupTopic,
        OffsetFetchResponsePartition,
        OffsetFetchResponseTopic,
        ShareAcknowledgeRequest,
        ShareFetchRequest,
        ShareFetchResponse,
        ShareGroupHeartbeatRequest,
    )

    _Heartbeat = ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest
    _HeartbeatResponse = ConsumerGroupHeartbeatResponse
    _ShareRequest = ShareFetchRequest | ShareAcknowledgeRequest
    _ShareResponse = ShareFetchResponse

_TOPIC_REFUSED: Final = errors.TopicAuthorizationFailed.code
_GROUP_REFUSED: Final = errors.GroupAuthorizationFailed.code
_TRANSACTION_REFUSED: Final = errors.TransactionalIdAuthorizationFailed.code
_KEY_TYPE_GROUP: Final = 0
_GROUPS_IN_BATCHES_FROM: Final = 8
_NO_ID: Final = bytes(16)
_TOPICS_HIDDEN: Final = (
    "The group has described topic(s) that the client is not authorized to describe."
)


def of_group(operation: Operation) -> Rule:
    """Return a rule that requires one operation on the request's group."""

    def rule(guard: Guard[Any, Any]) -> bool:
        if guard.may_group(operation, guard.body["group_id"]):
            return True
        return guard.refuse({"error_code": _GROUP_REFUSED})

    return rule


def consumer_group_heartbeat(guard: Guard[_Heartbeat, _HeartbeatResponse]) -> bool:
    """Require READ on the group, and DESCRIBE on the topics that the member subscribes to."""
    if not guard.may_group(Operation.READ, guard.body["group_id"]):
        return guard.refuse({"error_code": _GROUP_REFUSED, "error_message": None})
    names = guard.body["subscribed_topic_names"] or ()
    if all(guard.may_topic(Operation.DESCRIBE, name) for name in names):
        return True
    return guard.refuse({"error_code": _TOPIC_REFUSED, "error_message": None})


def refused_topic(
    name: str, topic_id: bytes, partitions: Iterable[int], code: int
) -> OffsetCommitResponseTopic:
    """Return an error for each partition, in a form that OffsetDelete and TxnOffsetCommit share."""
    return {
        "name": name,
        "topic_id": topic_id,
        "partitions": [{"partition_index": each, "error_code": code} for each in partitions],
    }


def _refused_commits(
    topics: Iterable[OffsetCommitRequestTopic], code: int
) -> list[OffsetCommitResponseTopic]:
    return [
        refused_topic(
            topic["name"],
            topic["topic_id"],
            [each["partition_index"] for each in topic["partitions"]],
            code,
        )
        for topic in topics
    ]


def offset_commit(guard: Guard[OffsetCommitRequest, OffsetCommitResponse]) -> bool:
    """Require READ on the group and the topics."""
    body = guard.body
    if not guard.may_group(Operation.READ, body["group_id"]):
        return guard.refuse({"topics": _refused_commits(body["topics"], _GROUP_REFUSED)})

    def permitted(topic: OffsetCommitRequestTopic) -> bool:
        name = guard.topic_name(topic["name"], topic["topic_id"])
        return name is None or guard.may_topic(Operation.READ, name)

    body["topics"], refused = split(body["topics"], permitted)
    answers = _refused_commits(refused, _TOPIC_REFUSED)

    def amend(response: OffsetCommitResponse) -> None:
        response["topics"] = [*response["topics"], *answers]

    if answers:
        guard.request.amend_with(amend)
    return True


def offset_fetch(guard: Guard[OffsetFetchRequest, OffsetFetchResponse]) -> bool:
    """Require DESCRIBE on the groups and the topics."""
    if guard.request.version < _GROUPS_IN_BATCHES_FROM:
        return _offset_fetch_of_one_group(guard)
    body = guard.body
    body["groups"], refused = split(
        body["groups"], lambda group: guard.may_group(Operation.DESCRIBE, group["group_id"])
    )
    answers: list[OffsetFetchResponseGroup] = [
        {"group_id": group["group_id"], "topics": [], "error_code": _GROUP_REFUSED}
        for group in refused
    ]
    hidden: dict[str, list[OffsetFetchResponseGroupTopic]] = {}
    for group in body["groups"]:
        if group["topics"] is not None:
            group["topics"], unseen = split(
                group["topics"], lambda topic: _shown(guard, topic["name"], topic["topic_id"])
            )
            hidden[group["group_id"]] = [
                {
                    "name": topic["name"],
                    "topic_id": topic["topic_id"],
                    "partitions": _no_offsets(topic["partition_indexes"]),
                }
                for topic in unseen
            ]

    def amend(response: OffsetFetchResponse) -> None:
        for group in response["groups"]:
            # A request for all topics returns the permitted ones; a named topic is refused.
            group["topics"] = [
                *(
                    topic
                    for topic in group["topics"]
                    if _shown(guard, topic["name"], topic["topic_id"])
                ),
                *hidden.get(group["group_id"], ()),
            ]
        response["groups"] = [*response["groups"], *answers]

    guard.request.amend_with(amend)
    return True


def _offset_fetch_of_one_group(guard: Guard[OffsetFetchRequest, OffsetFetchResponse]) -> bool:
    """Do the same for versions that have the fields of one group in the request itself."""
    body = guard.body
    if not guard.may_group(Operation.DESCRIBE, body["group_id"]):
        return guard.refuse({"topics": [], "error_code": _GROUP_REFUSED})
    hidden: list[OffsetFetchResponseTopic] = []
    if body["topics"] is not None:
        body["topics"], unseen = split(
            body["topics"], lambda topic: _shown(guard, topic["name"], _NO_ID)
        )
        hidden = [
            {"name": topic["name"], "partitions": _no_offsets(topic["partition_indexes"])}
            for topic in unseen
        ]

    def amend(response: OffsetFetchResponse) -> None:
        response["topics"] = [
            *(topic for topic in response["topics"] if _shown(guard, topic["name"], _NO_ID)),
            *hidden,
        ]

    guard.request.amend_with(amend)
    return True


def _shown(guard: Guard[Any, Any], name: str, topic_id: bytes) -> bool:
    found = guard.topic_name(name, topic_id)
    return found is None or guard.may_topic(Operation.DESCRIBE, found)


def _no_offsets(partitions: Iterable[int]) -> list[OffsetFetchResponsePartition]:
    return [
        {
            "partition_index": index,
            "committed_offset": -1,
            "metadata": "",
            "error_code": _TOPIC_REFUSED,
        }
        for index in partitions
    ]


def offset_delete(guard: Guard[OffsetDeleteRequest, OffsetDeleteResponse]) -> bool:
    """Require DELETE on the group, and READ on the topics."""
    body = guard.body
    if not guard.may_group(Operation.DELETE, body["group_id"]):
        return guard.refuse({"error_code": _GROUP_REFUSED, "topics": []})
    body["topics"], refused = split(
        body["topics"], lambda topic: guard.may_topic(Operation.READ, topic["name"])
    )
    answers = [
        refused_topic(
            topic["name"],
            _NO_ID,
            [each["partition_index"] for each in topic["partitions"]],
            _TOPIC_REFUSED,
        )
        for topic in refused
    ]

    def amend(response: OffsetDeleteResponse) -> None:
        response["topics"] = [*response.get("topics", ()), *answers]

    if answers:
        guard.request.amend_with(amend)
    return True


def find_coordinator(guard: Guard[FindCoordinatorRequest, FindCoordinatorResponse]) -> bool:
    """Require DESCRIBE on the group or the transactional id."""
    body = guard.body
    keys = body["coordinator_keys"] or [body["key"]]
    if body["key_type"] == _KEY_TYPE_GROUP:
        kind, code = ResourceType.GROUP, _GROUP_REFUSED
    else:
        kind, code = ResourceType.TRANSACTIONAL_ID, _TRANSACTION_REFUSED
    refused = dict.fromkeys(key for key in keys if not guard.may(Operation.DESCRIBE, kind, key))
    answers: list[FindCoordinatorResponseCoordinator] = [
        {"key": key, "node_id": -1, "host": "", "port": -1, "error_code": code} for key in refused
    ]
    if len(refused) == len(set(keys)):
        return guard.refuse(
            {"error_code": code, "node_id": -1, "host": "", "port": -1, "coordinators": answers}
        )
    if refused:
        body["coordinator_keys"] = [key for key in keys if key not in refused]

        def amend(response: FindCoordinatorResponse) -> None:
            response["coordinators"] = [*response["coordinators"], *answers]

        if answers:
            guard.request.amend_with(amend)
    return True


def describe_groups(field: str) -> Rule:
    """Return a rule that requires DESCRIBE on each group; `field` contains their ids.

    As in Kafka, a group is also refused if members are assigned a topic without DESCRIBE. Not so
    the groups of the classic protocol, whose assignments the broker does not read.
    """

    def rule(guard: Guard[Any, Any]) -> bool:
        guard.body[field], refused = split(
            guard.body[field], lambda name: guard.may_group(Operation.DESCRIBE, name)
        )
        answers = [
            {"group_id": name, "error_code": _GROUP_REFUSED, "members": []} for name in refused
        ]
        with_operations = guard.body["include_authorized_operations"]

        def amend(response: Any) -> None:
            if with_operations:
                for group in response["groups"]:
                    group["authorized_operations"] = guard.operations(
                        ResourceType.GROUP, group["group_id"]
                    )
            shown = [
                group
                if all(guard.may_topic(Operation.DESCRIBE, name) for name in _assigned(group))
                else {
                    "group_id": group["group_id"],
                    "error_code": _TOPIC_REFUSED,
                    "error_message": _TOPICS_HIDDEN,
                    "members": [],
                }
                for group in response["groups"]
            ]
            response["groups"] = [*shown, *answers]

        guard.request.amend_with(amend)
        return True

    return rule


def _assigned(group: Any) -> set[str]:
    """Return the names of the topics that the members of a described group are assigned."""
    return {
        topic["topic_name"]
        for member in group.get("members", ())
        for assignment in (member.get("assignment"), member.get("target_assignment"))
        if isinstance(assignment, dict)
        for topic in assignment["topic_partitions"]
    }


def share_group(guard: Guard[_ShareRequest, _ShareResponse]) -> bool:
    """Require READ on the group of a share session."""
    if guard.may_group(Operation.READ, guard.body["group_id"] or ""):
        return True
    return guard.refuse({"error_code": _GROUP_REFUSED, "error_message": None})


def describe_share_group_offsets(
    guard: Guard[DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse],
) -> bool:
    """Require DESCRIBE on the groups and the topics."""
    body = guard.body
    body["groups"], refused = split(
        body["groups"], lambda entry: guard.may_group(Operation.DESCRIBE, entry["group_id"])
    )
    hidden: dict[str, list[DescribeShareGroupOffsetsResponseTopic]] = {}
    for group in body["groups"]:
        if group["topics"] is not None:
            group["topics"], unseen = split(
                group["topics"],
                lambda topic: guard.may_topic(Operation.DESCRIBE, topic["topic_name"]),
            )
            hidden[group["group_id"]] = [
                {
                    "topic_name": topic["topic_name"],
                    "topic_id": _NO_ID,
                    "partitions": [_no_share_offset(each) for each in topic["partitions"]],
                }
                for topic in unseen
            ]
    answers: list[DescribeShareGroupOffsetsResponseGroup] = [
        {"group_id": each["group_id"], "error_code": _GROUP_REFUSED, "error_message": None}
        for each in refused
    ]

    def amend(response: DescribeShareGroupOffsetsResponse) -> None:
        for group in response["groups"]:
            # A request for all topics returns the permitted ones; a named topic is refused.
            if "topics" in group:
                group["topics"] = [
                    *(
                        topic
                        for topic in group["topics"]
                        if guard.may_topic(Operation.DESCRIBE, topic["topic_name"])
                    ),
                    *hidden.get(group["group_id"], ()),
                ]
        response["groups"] = [*response["groups"], *answers]

    guard.request.amend_with(amend)
    return True


def _no_share_offset(index: int) -> DescribeShareGroupOffsetsResponsePartition:
    return {
        "partition_index": index,
        "start_offset": -1,
        "leader_epoch": 0,
        "lag": -1,
        "error_code": _TOPIC_REFUSED,
        "error_message": None,
    }


def list_groups(guard: Guard[ListGroupsRequest, ListGroupsResponse]) -> bool:
    """List all groups if DESCRIBE on the cluster is permitted, else those with DESCRIBE."""
    if not guard.may_cluster(Operation.DESCRIBE):

        def amend(response: ListGroupsResponse) -> None:
            response["groups"] = [
                group
                for group in response.get("groups", ())
                if guard.may_group(Operation.DESCRIBE, group["group_id"])
            ]

        guard.request.amend_with(amend)
    return True


def delete_groups(guard: Guard[DeleteGroupsRequest, DeleteGroupsResponse]) -> bool:
    """Require DELETE on each group."""
    body = guard.body
    body["groups_names"], refused = split(
        body["groups_names"], lambda name: guard.may_group(Operation.DELETE, name)
    )
    answers: list[DeleteGroupsResponseResult] = [
        {"group_id": name, "error_code": _GROUP_REFUSED} for name in refused
    ]

    def amend(response: DeleteGroupsResponse) -> None:
        response["results"] = [*response["results"], *answers]

    if answers:
        guard.request.amend_with(amend)
    return True
