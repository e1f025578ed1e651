"""Authorization rules of the APIs for topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker_core import errors
from broker_core.security.acl import Operation, ResourceType
from broker_core.server.authorization.guard import Guard, Rule, split

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreatePartitionsResponseResult,
        CreateTopicsRequest,
        CreateTopicsResponse,
        CreateTopicsResponseTopic,
        DeleteTopicsRequest,
        DeleteTopicsRequestTopic,
        DeleteTopicsResponse,
        DeleteTopicsResponseResult,
        DescribeClusterRequest,
        DescribeClusterResponse,
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsRequestTopic,
        DescribeTopicPartitionsResponse,
        DescribeTopicPartitionsResponseTopic,
        MetadataRequest,
        MetadataRequestTopic,
        MetadataResponse,
        ProduceRequest,
        ProduceRequestTopicData,
        ProduceResponse,
        ProduceResponseResult,
    )

_REFUSED: Final = errors.TopicAuthorizationFailed.code
_TRANSACTION_REFUSED: Final = errors.TransactionalIdAuthorizationFailed.code
_CLUSTER_REFUSED: Final = errors.ClusterAuthorizationFailed.code
_MESSAGE: Final = "Topic authorization failed."
_NO_ID: Final = bytes(16)
_ACKS_NONE: Final = 0


def produce(guard: Guard[ProduceRequest, ProduceResponse]) -> bool:
    """Require WRITE on the topics, and on the transactional id."""
    body = guard.body
    transactional_id = body["transactional_id"]
    code = _REFUSED
    is_permitted = transactional_id is None or guard.may_transact(Operation.WRITE, transactional_id)
    if not is_permitted:
        code = _TRANSACTION_REFUSED

    def permitted(entry: ProduceRequestTopicData) -> bool:
        name = guard.topic_name(entry["name"], entry["topic_id"])
        # The handler refuses unknown topic ids.
        return is_permitted and (name is None or guard.may_topic(Operation.WRITE, name))

    body["topic_data"], refused = split(body["topic_data"], permitted)
    if not refused:
        return True
    if body["acks"] == _ACKS_NONE:
        guard.request.disconnect()
        return False
    answers: list[ProduceResponseResult] = [
        {
            "name": entry["name"],
            "topic_id": entry["topic_id"],
            "partition_responses": [
                {"index": part["index"], "base_offset": -1, "error_code": code}
                for part in entry["partition_data"]
            ],
        }
        for entry in refused
    ]

    def amend(response: ProduceResponse) -> None:
        response["responses"] = [*response["responses"], *answers]

    if answers:
        guard.request.amend_with(amend)
    return True


def per_topic(operation: Operation, name: str, index: str | None, answer: str) -> Rule:
    """Return a rule that requires one operation on each element of `topics`.

    Refusals are given for each partition. `name` is the field with the topic's name, `index` the
    field with a partition's number (None if the partitions are plain numbers), `answer` the field
    with the number in the response.
    """

    def rule(guard: Guard[Any, Any]) -> bool:
        body = guard.body
        body["topics"], refused = split(
            body["topics"], lambda entry: guard.may_topic(operation, entry[name])
        )
        if not refused:
            return True
        asked = "partitions" if "partitions" in refused[0] else "partition_indexes"
        answers = [
            {
                name: entry[name],
                "partitions": [
                    {answer: part if index is None else part[index], "error_code": _REFUSED}
                    for part in entry[asked]
                ],
            }
            for entry in refused
        ]

        def amend(response: Any) -> None:
            response["topics"] = [*response["topics"], *answers]

        if answers:
            guard.request.amend_with(amend)
        return True

    return rule


def metadata(guard: Guard[MetadataRequest, MetadataResponse]) -> bool:
    """Require DESCRIBE, and CREATE for topics that the request would create."""
    body = guard.body
    asked = body["topics"]
    refused: list[MetadataRequestTopic] = []
    if asked is not None:
        body["topics"], refused = split(asked, lambda entry: _visible(guard, entry))
    with_operations = body["include_topic_authorized_operations"]
    with_cluster = body["include_cluster_authorized_operations"]

    def amend(response: MetadataResponse) -> None:
        topics = list(response["topics"])
        if asked is None:
            topics = [
                each for each in topics if guard.may_topic(Operation.DESCRIBE, each["name"] or "")
            ]
        if with_operations:
            for each in topics:
                if each["name"] is not None:
                    each["topic_authorized_operations"] = guard.operations(
                        ResourceType.TOPIC, each["name"]
                    )
        if with_cluster:
            response["cluster_authorized_operations"] = _cluster_operations(guard)
        topics += [
            {"name": each["name"], "topic_id": each["topic_id"], "error_code": _REFUSED}
            for each in refused
        ]
        response["topics"] = topics

    guard.request.amend_with(amend)
    return True


def _cluster_operations(guard: Guard[Any, Any]) -> int:
    return guard.operations(ResourceType.CLUSTER, "kafka-cluster")


def _visible(guard: Guard[MetadataRequest, MetadataResponse], entry: MetadataRequestTopic) -> bool:
    name = guard.topic_name(entry["name"], entry["topic_id"])
    if name is None:
        return True  # unknown topic id
    if not guard.may_topic(Operation.DESCRIBE, name):
        return False
    would_create = (
        name not in guard.broker.topics
        and guard.body["allow_auto_topic_creation"]
        and guard.broker.config.auto_create_topics
    )
    return not would_create or _may_create(guard, name)


def _may_create(guard: Guard[Any, Any], name: str) -> bool:
    return guard.may_cluster(Operation.CREATE) or guard.may_topic(Operation.CREATE, name)


def describe_cluster(guard: Guard[DescribeClusterRequest, DescribeClusterResponse]) -> bool:
    """Permit the request; add the operations that the client may perform on the cluster."""
    if guard.body["include_cluster_authorized_operations"]:

        def amend(response: DescribeClusterResponse) -> None:
            response["cluster_authorized_operations"] = _cluster_operations(guard)

        guard.request.amend_with(amend)
    return True


def describe_topic_partitions(
    guard: Guard[DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse],
) -> bool:
    """Require DESCRIBE on each topic."""
    body = guard.body
    refused: list[DescribeTopicPartitionsRequestTopic] = []
    if body["topics"]:
        body["topics"], refused = split(
            body["topics"], lambda entry: guard.may_topic(Operation.DESCRIBE, entry["name"])
        )
    else:
        body["topics"] = [
            {"name": topic.name}
            for topic in guard.broker.topics
            if guard.may_topic(Operation.DESCRIBE, topic.name)
        ]
    answers: list[DescribeTopicPartitionsResponseTopic] = [
        {"name": each["name"], "topic_id": _NO_ID, "error_code": _REFUSED} for each in refused
    ]
    if not body["topics"]:
        return guard.refuse({"topics": answers, "next_cursor": None})

    def amend(response: DescribeTopicPartitionsResponse) -> None:
        for each in response["topics"]:
            each["topic_authorized_operations"] = guard.operations(
                ResourceType.TOPIC, each["name"] or ""
            )
        response["topics"] = [*response["topics"], *answers]

    guard.request.amend_with(amend)
    return True


def create_topics(guard: Guard[CreateTopicsRequest, CreateTopicsResponse]) -> bool:
    """Require CREATE on the cluster or the topic; show settings only with DESCRIBE_CONFIGS."""
    body = guard.body
    body["topics"], refused = split(body["topics"], lambda entry: _may_create(guard, entry["name"]))
    answers: list[CreateTopicsResponseTopic] = [
        {
            "name": each["name"],
            "error_code": _REFUSED,
            "error_message": "Authorization failed.",
            "configs": None,
        }
        for each in refused
    ]

    def amend(response: CreateTopicsResponse) -> None:
        for each in response["topics"]:
            if not each["error_code"] and not guard.may_topic(
                Operation.DESCRIBE_CONFIGS, each["name"]
            ):
                each["topic_config_error_code"] = _REFUSED
                each["configs"] = None
                each["num_partitions"] = each["replication_factor"] = -1
        response["topics"] = [*response["topics"], *answers]

    guard.request.amend_with(amend)
    return True


def delete_topics(guard: Guard[DeleteTopicsRequest, DeleteTopicsResponse]) -> bool:
    """Require DELETE; without DESCRIBE the name behind a topic id is not shown."""
    body = guard.body
    answers: list[DeleteTopicsResponseResult] = []

    def permitted(name: str | None) -> bool:
        return name is None or guard.may_topic(Operation.DELETE, name)

    def name_of(entry: DeleteTopicsRequestTopic) -> str | None:
        return guard.topic_name(entry["name"], entry["topic_id"])

    body["topics"], refused = split(body["topics"], lambda entry: permitted(name_of(entry)))
    for each in refused:
        name = name_of(each)
        shown = name is not None and guard.may_topic(Operation.DESCRIBE, name)
        answers.append(
            {
                "name": name if shown or each["name"] is not None else None,
                "topic_id": each["topic_id"],
                "error_code": _REFUSED,
                "error_message": _MESSAGE,
            }
        )
    body["topic_names"], refused_names = split(body["topic_names"], permitted)
    answers += [
        {"name": each, "topic_id": _NO_ID, "error_code": _REFUSED, "error_message": _MESSAGE}
        for each in refused_names
    ]

    def amend(response: DeleteTopicsResponse) -> None:
        response["responses"] = [*response["responses"], *answers]

    if answers:
        guard.request.amend_with(amend)
    return True


def create_partitions(guard: Guard[CreatePartitionsRequest, CreatePartitionsResponse]) -> bool:
    """Require ALTER on each topic."""
    body = guard.body
    body["topics"], refused = split(
        body["topics"], lambda entry: guard.may_topic(Operation.ALTER, entry["name"])
    )
    answers: list[CreatePartitionsResponseResult] = [
        {"name": each["name"], "error_code": _REFUSED, "error_message": _MESSAGE}
        for each in refused
    ]

    def amend(response: CreatePartitionsResponse) -> None:
        response["results"] = [*response["results"], *answers]

    if answers:
        guard.request.amend_with(amend)
    return True


def configs(on_topic: Operation, answer: str) -> Rule:
    """Return a rule that requires an operation on each topic, or on the cluster otherwise."""
    topic = 2

    def rule(guard: Guard[Any, Any]) -> bool:
        def permitted(entry: Any) -> bool:
            if entry["resource_type"] == topic:
                return guard.may_topic(on_topic, entry["resource_name"])
            return guard.may_cluster(on_topic)

        guard.body["resources"], refused = split(guard.body["resources"], permitted)
        answers = []
        for each in refused:
            code = _REFUSED if each["resource_type"] == topic else _CLUSTER_REFUSED
            message = _MESSAGE if code == _REFUSED else "Cluster authorization failed."
            answers.append(
                {
                    "error_code": code,
                    "error_message": message,
                    "resource_type": each["resource_type"],
                    "resource_name": each["resource_name"],
                }
            )

        def amend(response: Any) -> None:
            response[answer] = [*response[answer], *answers]

        if answers:
            guard.request.amend_with(amend)
        return True

    return rule
