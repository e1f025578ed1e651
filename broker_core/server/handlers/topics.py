"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from broker_core import errors
from broker_core.log.config import LogConfig
from broker_core.server.handlers.config_entries import describe_topic
from broker_core.server.request import Request
from broker_core.server.topics import Topic

if TYPE_CHECKING:
    from broker_core.server.runtime import Broker

_NO_ID: Final = bytes(16)
_TOPIC_IDS_FROM: Final = 6


def handle_create(broker: Broker, request: Request) -> None:
    """CreateTopics."""
    body = request.body
    counts = Counter(each["name"] for each in body["topics"])
    results: list[dict[str, Any]] = []
    for name, asked in {each["name"]: each for each in body["topics"]}.items():
        try:
            if counts[name] > 1:
                raise errors.InvalidRequest(f"topic {name} appears more than once")
            results.append(_create(broker, asked, validate_only=body["validate_only"]))
        except errors.BrokerError as error:
            results.append(
                {
                    "name": name,
                    "error_code": error.code,
                    "error_message": str(error),
                    "configs": None,
                }
            )
    request.reply({"topics": results})


def _create(broker: Broker, asked: dict[str, Any], *, validate_only: bool) -> dict[str, Any]:
    name = asked["name"]
    partitions = _partition_count(broker, asked)
    overrides = {
        each["name"]: each["value"] for each in asked["configs"] if each["value"] is not None
    }
    config = broker.topics.check_new(name, partitions, overrides)
    topic_id = _NO_ID
    if not validate_only:
        topic_id = broker.create_topic(name, partitions, overrides).topic_id
    return {
        "name": name,
        "topic_id": topic_id,
        "error_code": errors.NONE,
        "error_message": None,
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": _created_configs(broker, config, overrides),
    }


def _created_configs(
    broker: Broker, config: LogConfig, overrides: dict[str, str]
) -> list[dict[str, Any]]:
    return [
        {
            "name": each["name"],
            "value": each["value"],
            "read_only": each["read_only"],
            "config_source": each["config_source"],
            "is_sensitive": each["is_sensitive"],
        }
        for each in describe_topic(broker, config, overrides)
    ]


def _partition_count(broker: Broker, asked: dict[str, Any]) -> int:
    assignments = asked["assignments"]
    count: int = asked["num_partitions"]
    factor = asked["replication_factor"]
    if assignments:
        if count != -1 or factor != -1:
            raise errors.InvalidRequest(
                "partitions and replication factor are given by the assignment already"
            )
        if sorted(each["partition_index"] for each in assignments) != list(range(len(assignments))):
            raise errors.InvalidReplicaAssignment("the partitions are not numbered from 0")
        if any(each["broker_ids"] != [broker.node_id] for each in assignments):
            raise errors.InvalidReplicaAssignment(f"broker {broker.node_id} is the only one")
        return len(assignments)
    if factor not in {-1, 1}:
        raise errors.InvalidReplicationFactor(
            f"Replication factor {factor} is not possible: there is one broker"
            if factor > 0
            else "Replication factor must be larger than 0, or -1 to use the default value."
        )
    return broker.config.num_partitions if count == -1 else count


def handle_delete(broker: Broker, request: Request) -> None:
    """DeleteTopics."""
    body = request.body
    asked = [(each["name"], each["topic_id"]) for each in body["topics"]]
    if request.version < _TOPIC_IDS_FROM:
        asked = [(name, _NO_ID) for name in body["topic_names"]]
    results: list[dict[str, Any]] = []
    for name, topic_id in dict.fromkeys(asked):
        result: dict[str, Any] = {"name": name, "topic_id": topic_id, "error_message": None}
        results.append(result)
        try:
            topic = _find(broker, name, topic_id)
            result["name"] = topic.name
            result["topic_id"] = topic.topic_id
            if not broker.config.delete_topics:
                raise errors.TopicDeletionDisabled()
            if topic.is_internal:
                raise errors.InvalidTopic(f"{topic.name} belongs to the broker")
            broker.delete_topic(topic)
            result["error_code"] = errors.NONE
        except errors.BrokerError as error:
            result["error_code"] = error.code
            result["error_message"] = str(error)
    request.reply({"responses": results})


def _find(broker: Broker, name: str | None, topic_id: bytes) -> Topic:
    if name is None:
        topic = broker.topics.by_id(topic_id)
        if topic is None:
            raise errors.UnknownTopicId()
        return topic
    topic = broker.topics.get(name)
    if topic is None:
        raise errors.UnknownTopicOrPartition()
    return topic


def handle_create_partitions(broker: Broker, request: Request) -> None:
    """CreatePartitions."""
    results: list[dict[str, Any]] = []
    for asked in request.body["topics"]:
        result = {"name": asked["name"], "error_code": errors.NONE, "error_message": None}
        results.append(result)
        try:
            topic = _find(broker, asked["name"], _NO_ID)
            _check_growth(broker, topic, asked)
            if not request.body["validate_only"]:
                broker.topics.add_partitions(topic, asked["count"])
        except errors.BrokerError as error:
            result["error_code"] = error.code
            result["error_message"] = str(error)
    request.reply({"results": results})


def _check_growth(broker: Broker, topic: Topic, asked: dict[str, Any]) -> None:
    present, count = topic.partition_count, asked["count"]
    if count == present:
        raise errors.InvalidPartitions(f"Topic already has {present} partition(s).")
    if count < present:
        raise errors.InvalidPartitions(
            f"The topic {topic.name} currently has {present} partition(s); {count} would not be "
            "an increase."
        )
    assignments = asked["assignments"]
    if assignments is not None:
        if len(assignments) != count - present:
            raise errors.InvalidReplicaAssignment(
                f"{count - present} new partitions, but {len(assignments)} assignments"
            )
        if any(each["broker_ids"] != [broker.node_id] for each in assignments):
            raise errors.InvalidReplicaAssignment(f"broker {broker.node_id} is the only one")


def handle_delete_records(broker: Broker, request: Request) -> None:
    """DeleteRecords."""
    request.reply(
        {
            "topics": [
                {
                    "name": topic["name"],
                    "partitions": [
                        _delete_records(broker, topic["name"], asked)
                        for asked in topic["partitions"]
                    ],
                }
                for topic in request.body["topics"]
            ]
        }
    )


def _delete_records(broker: Broker, name: str, asked: dict[str, Any]) -> dict[str, Any]:
    index = asked["partition_index"]
    result = {"partition_index": index, "low_watermark": -1, "error_code": errors.NONE}
    try:
        partition = broker.topics.partition(name, index)
        if partition is None:
            raise errors.UnknownTopicOrPartition()
        topic = broker.topics.get(name)
        if topic is not None and not topic.config.deletes:
            raise errors.PolicyViolation(f"{name} is compacted: its records stay")
        partition.log.delete_records(asked["offset"])
        result["low_watermark"] = partition.log.log_start_offset
    except errors.BrokerError as error:
        result["error_code"] = error.code
    return result
