"""Authorization rules of the APIs for topics."""

from __future__ import annotations

from typing import Any, Final

from broker_core import errors
from broker_core.security.acl import Operation, ResourceType
from broker_core.server.authorization.guard import Entry, Guard, Rule

_REFUSED: Final = errors.TopicAuthorizationFailed.code
_TRANSACTION_REFUSED: Final = errors.TransactionalIdAuthorizationFailed.code
_CLUSTER_REFUSED: Final = errors.ClusterAuthorizationFailed.code
_MESSAGE: Final = "Topic authorization failed."
_NO_ID: Final = bytes(16)
_ACKS_NONE: Final = 0
_CONFIG_REFUSED: Final = {"topic_config_error_code": _REFUSED, "configs": None}


def _partitions(
    entry: Entry, asked: str, index: str | None, answer: str, code: int = _REFUSED
) -> list[Entry]:
    """Return a refusal for each partition in an element of the request."""
    return [
        {answer: part if index is None else part[index], "error_code": code}
        for part in entry[asked]
    ]


def produce(guard: Guard) -> bool:
    """Require WRITE on the topics, and on the transactional id."""
    transactional_id = guard.body["transactional_id"]
    code = _REFUSED

    def permitted(entry: Entry) -> bool:
        name = guard.topic_name(entry)
        # The handler refuses unknown topic ids.
        return name is None or guard.may_topic(Operation.WRITE, name)

    if transactional_id is not None and not guard.may_transact(Operation.WRITE, transactional_id):
        code = _TRANSACTION_REFUSED
        refused = guard.keep("topic_data", lambda _: False)
    else:
        refused = guard.keep("topic_data", permitted)
    if refused and guard.body["acks"] == _ACKS_NONE:
        guard.request.disconnect()
        return False
    guard.add(
        "responses",
        (
            {
                "name": entry["name"],
                "topic_id": entry["topic_id"],
                "partition_responses": [
                    {"index": part["index"], "base_offset": -1, "error_code": code}
                    for part in entry["partition_data"]
                ],
            }
            for entry in refused
        ),
    )
    return True


def per_topic(operation: Operation, name: str, index: str | None, answer: str) -> Rule:
    """Return a rule that requires one operation on each element of `topics`.

    Refusals are given for each partition. `name` is the field with the topic's name, `index` the
    field with a partition's number (None if the partitions are plain numbers), `answer` the field
    with the number in the response.
    """

    def rule(guard: Guard) -> bool:
        refused = guard.keep("topics", lambda entry: guard.may_topic(operation, entry[name]))
        asked = "partitions" if refused and "partitions" in refused[0] else "partition_indexes"
        guard.add(
            "topics",
            (
                {name: entry[name], "partitions": _partitions(entry, asked, index, answer)}
                for entry in refused
            ),
        )
        return True

    return rule


def metadata(guard: Guard) -> bool:
    """Require DESCRIBE, and CREATE for topics that the request would create."""
    body = guard.body
    asked = body["topics"]
    everything = asked is None or (guard.request.version == 0 and not asked)
    refused = [] if everything else guard.keep("topics", lambda entry: _visible(guard, entry))
    nothing_left = not everything and not body["topics"]
    with_operations = body["include_topic_authorized_operations"]
    with_cluster = body["include_cluster_authorized_operations"]

    def amend(response: dict[str, Any]) -> None:
        topics = [] if nothing_left else list(response["topics"])
        if everything:
            topics = [each for each in topics if guard.may_topic(Operation.DESCRIBE, each["name"])]
        if with_operations:
            for each in topics:
                if each["name"] is not None:
                    each["topic_authorized_operations"] = guard.operations(
                        ResourceType.TOPIC, each["name"]
                    )
        if with_cluster:
            response["cluster_authorized_operations"] = _cluster_operations(guard)
        response["topics"] = topics + [
            {"name": each["name"], "topic_id": each["topic_id"], "error_code": _REFUSED}
            for each in refused
        ]

    guard.request.amend_with(amend)
    return True


def _cluster_operations(guard: Guard) -> int:
    return guard.operations(ResourceType.CLUSTER, "kafka-cluster")


def _visible(guard: Guard, entry: Entry) -> bool:
    name = guard.topic_name(entry)
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


def _may_create(guard: Guard, name: str) -> bool:
    return guard.may_cluster(Operation.CREATE) or guard.may_topic(Operation.CREATE, name)


def describe_cluster(guard: Guard) -> bool:
    """Permit the request; add the operations that the client may perform on the cluster."""
    if guard.body["include_cluster_authorized_operations"]:

        def amend(response: dict[str, Any]) -> None:
            response["cluster_authorized_operations"] = _cluster_operations(guard)

        guard.request.amend_with(amend)
    return True


def describe_topic_partitions(guard: Guard) -> bool:
    """Require DESCRIBE on each topic."""
    if not guard.body["topics"]:
        visible = [
            topic.name
            for topic in guard.broker.topics
            if guard.may_topic(Operation.DESCRIBE, topic.name)
        ]
        guard.body["topics"] = [{"name": name} for name in visible]
        if not visible:
            return guard.refuse({"topics": [], "next_cursor": None})
        refused = []
    else:
        refused = guard.keep(
            "topics", lambda entry: guard.may_topic(Operation.DESCRIBE, entry["name"])
        )
        if not guard.body["topics"]:
            return guard.refuse({"topics": _refused_names(refused), "next_cursor": None})

    def amend(response: dict[str, Any]) -> None:
        for each in response["topics"]:
            each["topic_authorized_operations"] = guard.operations(ResourceType.TOPIC, each["name"])
        response["topics"] = [*response["topics"], *_refused_names(refused)]

    guard.request.amend_with(amend)
    return True


def _refused_names(refused: list[Entry]) -> list[Entry]:
    return [{"name": each["name"], "topic_id": _NO_ID, "error_code": _REFUSED} for each in refused]


def create_topics(guard: Guard) -> bool:
    """Require CREATE on the cluster or the topic; show settings only with DESCRIBE_CONFIGS."""
    refused = guard.keep("topics", lambda entry: _may_create(guard, entry["name"]))
    answers = [
        {
            "name": each["name"],
            "error_code": _REFUSED,
            "error_message": "Authorization failed.",
            "configs": None,
        }
        for each in refused
    ]

    def amend(response: dict[str, Any]) -> None:
        for each in response["topics"]:
            if not each["error_code"] and not guard.may_topic(
                Operation.DESCRIBE_CONFIGS, each["name"]
            ):
                each.update(_CONFIG_REFUSED, num_partitions=-1, replication_factor=-1)
        response["topics"] = [*response["topics"], *answers]

    guard.request.amend_with(amend)
    return True


def delete_topics(guard: Guard) -> bool:
    """Require DELETE; without DESCRIBE the name behind a topic id is not shown."""
    body = guard.body
    answers: list[Entry] = []

    def permitted(name: str | None) -> bool:
        return name is None or guard.may_topic(Operation.DELETE, name)

    for each in guard.keep("topics", lambda entry: permitted(guard.topic_name(entry))):
        name = guard.topic_name(each)
        shown = name is not None and guard.may_topic(Operation.DESCRIBE, name)
        answers.append(
            {
                "name": name if shown or each["name"] is not None else None,
                "topic_id": each["topic_id"],
                "error_code": _REFUSED,
                "error_message": _MESSAGE,
            }
        )
    kept: list[str] = []
    for name in body["topic_names"]:
        if permitted(name):
            kept.append(name)
        else:
            refusal = {"error_code": _REFUSED, "error_message": _MESSAGE}
            answers.append({"name": name, "topic_id": _NO_ID} | refusal)
    body["topic_names"] = kept
    guard.add("responses", answers)
    return True


def create_partitions(guard: Guard) -> bool:
    """Require ALTER on each topic."""
    refused = guard.keep("topics", lambda entry: guard.may_topic(Operation.ALTER, entry["name"]))
    guard.add(
        "results",
        (
            {"name": each["name"], "error_code": _REFUSED, "error_message": _MESSAGE}
            for each in refused
        ),
    )
    return True


def configs(on_topic: Operation, answer: str) -> Rule:
    """Return a rule that requires an operation on each topic, or on the cluster otherwise."""
    topic = 2

    def permitted(guard: Guard, entry: Entry) -> bool:
        if entry["resource_type"] == topic:
            return guard.may_topic(on_topic, entry["resource_name"])
        return guard.may_cluster(on_topic)

    def rule(guard: Guard) -> bool:
        refused = guard.keep("resources", lambda entry: permitted(guard, entry))
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
        guard.add(answer, answers)
        return True

    return rule
