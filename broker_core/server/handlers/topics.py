"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from broker_core import errors
from broker_core.log.config import LogConfig
from broker_core.server.handlers.administration import Administered, answer_each
from broker_core.server.handlers.config_entries import ConfigSources, describe_topic
from broker_core.server.network.request import Request
from broker_core.server.partitions.topics import INTERNAL_TOPICS, TopicRegistry
from broker_core.server.settings.admin_operations import AdminOperations, Done

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        CreatePartitionsRequest,
        CreatePartitionsRequestTopic,
        CreatePartitionsResponse,
        CreatePartitionsResponseResult,
        CreateTopicsRequest,
        CreateTopicsRequestTopic,
        CreateTopicsResponse,
        CreateTopicsResponseConfig,
        CreateTopicsResponseTopic,
        DeleteRecordsRequest,
        DeleteRecordsRequestPartition,
        DeleteRecordsResponse,
        DeleteRecordsResponsePartition,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
        DeleteTopicsResponseResult,
    )

_NO_ID: Final = bytes(16)
_TOPIC_IDS_FROM: Final = 6


class GrowingParts(Administered, Protocol):
    """The parts of a broker that add partitions."""

    def when_open(self, names: Iterable[str], timeout_ms: int, then: Callable[[], None]) -> None:
        """Call `then` when the replicas here of topics are open, or after the time."""


class TopicParts(ConfigSources, GrowingParts, Protocol):
    """The parts of a broker that create and delete topics."""


def handle_create(
    broker: TopicParts, request: Request[CreateTopicsRequest, CreateTopicsResponse]
) -> None:
    """Answer a CreateTopics request."""
    body = request.body
    counts = Counter(each["name"] for each in body["topics"])
    results: list[CreateTopicsResponseTopic] = []
    described = _DescribedConfigs(broker)

    def create(authority: AdminOperations) -> None:
        wanted = {each["name"]: each for each in body["topics"]}
        authority.announce(
            len(each["assignments"]) or authority.partitions_asked(each["num_partitions"])
            for each in wanted.values()
        )
        for name, asked in wanted.items():
            try:
                if counts[name] > 1:
                    raise errors.InvalidRequest(f"topic {name} appears more than once")
                created = _create(described, authority, asked, validate_only=body["validate_only"])
                results.append(created)
            except errors.BrokerError as error:
                results.append(
                    {
                        "name": name,
                        "configs": None,
                        "error_code": error.code,
                        "error_message": str(error),
                    }
                )

    broker.cluster.administer(
        create,
        _answer_when_open(
            broker, body["timeout_ms"], lambda: request.reply({"topics": results}), results
        ),
    )


def _answer_when_open(
    broker: GrowingParts,
    timeout_ms: int,
    reply: Callable[[], None],
    results: list[CreateTopicsResponseTopic] | list[CreatePartitionsResponseResult],
) -> Done:
    """Return a callback that answers when new partitions are durable and open."""

    def decided() -> None:
        names = [each["name"] for each in results if not each["error_code"]]
        broker.when_open(names, timeout_ms, reply)

    return answer_each(decided, results)


def _create(
    described: _DescribedConfigs,
    authority: AdminOperations,
    asked: CreateTopicsRequestTopic,
    *,
    validate_only: bool,
) -> CreateTopicsResponseTopic:
    overrides = {
        each["name"]: each["value"] for each in asked["configs"] if each["value"] is not None
    }
    created = authority.create_topic(
        asked["name"],
        asked["num_partitions"],
        asked["replication_factor"],
        _assignments(asked),
        overrides,
        validate_only=validate_only,
    )
    return {
        "name": asked["name"],
        "topic_id": created.topic_id,
        "error_code": errors.NONE,
        "error_message": None,
        "num_partitions": created.partitions,
        "replication_factor": created.replication_factor,
        "configs": described.of(created.config, overrides),
    }


class _DescribedConfigs:
    """The settings of new topics, described once for all topics that have the same."""

    def __init__(self, sources: ConfigSources) -> None:
        self._sources = sources
        self._described: dict[frozenset[tuple[str, str]], list[CreateTopicsResponseConfig]] = {}

    def of(self, config: LogConfig, overrides: dict[str, str]) -> list[CreateTopicsResponseConfig]:
        """Return the settings of a topic."""
        key = frozenset(overrides.items())
        described = self._described.get(key)
        if described is None:
            described = self._described[key] = [
                {
                    "name": each["name"],
                    "value": each["value"],
                    "read_only": each["read_only"],
                    "config_source": each["config_source"],
                    "is_sensitive": each["is_sensitive"],
                }
                for each in describe_topic(self._sources, config, overrides)
            ]
        return described


def _assignments(asked: CreateTopicsRequestTopic) -> list[list[int]]:
    """Return the brokers of each partition; [] if the client leaves them to the cluster."""
    assignments = asked["assignments"]
    if not assignments:
        return []
    if asked["num_partitions"] != -1 or asked["replication_factor"] != -1:
        raise errors.InvalidRequest(
            "partitions and replication factor are given by the assignment already"
        )
    by_index = sorted(assignments, key=lambda each: each["partition_index"])
    if [each["partition_index"] for each in by_index] != list(range(len(assignments))):
        raise errors.InvalidReplicaAssignment("the partitions are not numbered from 0")
    return [list(each["broker_ids"]) for each in by_index]


def handle_delete(
    broker: TopicParts, request: Request[DeleteTopicsRequest, DeleteTopicsResponse]
) -> None:
    """Answer a DeleteTopics request."""
    body = request.body
    asked = [(each["name"], each["topic_id"]) for each in body["topics"]]
    if request.version < _TOPIC_IDS_FROM:
        asked = [(name, _NO_ID) for name in body["topic_names"]]
    results: list[DeleteTopicsResponseResult] = []

    def delete(authority: AdminOperations) -> None:
        for name, topic_id in dict.fromkeys(asked):
            result: DeleteTopicsResponseResult = {
                "name": name,
                "topic_id": topic_id,
                "error_code": errors.NONE,
                "error_message": None,
            }
            results.append(result)
            try:
                found, result["topic_id"] = authority.find_topic(name, topic_id)
                result["name"] = found
                if not broker.config.delete_topics:
                    raise errors.TopicDeletionDisabled()
                if found in INTERNAL_TOPICS:
                    raise errors.InvalidTopic(f"{found} belongs to the broker")
                authority.delete_topic(found)
            except errors.BrokerError as error:
                result["error_code"] = error.code
                result["error_message"] = str(error)

    broker.cluster.administer(
        delete, answer_each(lambda: request.reply({"responses": results}), results)
    )


def handle_create_partitions(
    broker: GrowingParts, request: Request[CreatePartitionsRequest, CreatePartitionsResponse]
) -> None:
    """Answer a CreatePartitions request."""
    body = request.body
    counts = Counter(each["name"] for each in body["topics"])
    results: list[CreatePartitionsResponseResult] = []

    def grow(authority: AdminOperations) -> None:
        authority.announce(
            each["count"] - authority.partition_count(each["name"])
            for each in body["topics"]
            if authority.has_topic(each["name"])
        )
        wanted = {each["name"]: each for each in body["topics"]}
        for name, asked in wanted.items():
            result: CreatePartitionsResponseResult = {
                "name": name,
                "error_code": errors.NONE,
                "error_message": None,
            }
            results.append(result)
            try:
                if counts[name] > 1:
                    raise errors.InvalidRequest(f"topic {name} appears more than once")
                _grow(authority, asked, validate_only=body["validate_only"])
            except errors.BrokerError as error:
                result["error_code"] = error.code
                result["error_message"] = str(error)

    broker.cluster.administer(
        grow,
        _answer_when_open(
            broker, body["timeout_ms"], lambda: request.reply({"results": results}), results
        ),
    )


def _grow(
    authority: AdminOperations, asked: CreatePartitionsRequestTopic, *, validate_only: bool
) -> None:
    name, count = asked["name"], asked["count"]
    present = authority.partition_count(name)
    if count == present:
        raise errors.InvalidPartitions(f"Topic already has {present} partition(s).")
    if count < present:
        raise errors.InvalidPartitions(
            f"The topic {name} currently has {present} partition(s); {count} would not be "
            "an increase."
        )
    assignments: list[list[int]] | None = None
    if asked["assignments"] is not None:
        assignments = [list(each["broker_ids"]) for each in asked["assignments"]]
        if len(assignments) != count - present:
            raise errors.InvalidReplicaAssignment(
                f"{count - present} new partitions, but {len(assignments)} assignments"
            )
    authority.add_partitions(name, count, assignments, validate_only=validate_only)


def handle_delete_records(
    topics: TopicRegistry, request: Request[DeleteRecordsRequest, DeleteRecordsResponse]
) -> None:
    """Answer a DeleteRecords request."""
    request.reply(
        {
            "topics": [
                {
                    "name": topic["name"],
                    "partitions": [
                        _delete_records(topics, topic["name"], asked)
                        for asked in topic["partitions"]
                    ],
                }
                for topic in request.body["topics"]
            ]
        }
    )


def _delete_records(
    topics: TopicRegistry, name: str, asked: DeleteRecordsRequestPartition
) -> DeleteRecordsResponsePartition:
    index = asked["partition_index"]
    result: DeleteRecordsResponsePartition = {
        "partition_index": index,
        "low_watermark": -1,
        "error_code": errors.NONE,
    }
    try:
        topic = topics.get(name)
        if topic is None:
            raise errors.UnknownTopicOrPartition()
        partition = topic.partition(index)
        partition.check_is_led()
        if not topic.config.deletes:
            raise errors.PolicyViolation(f"{name} is compacted: its records stay")
        partition.log.delete_records(asked["offset"])
        result["low_watermark"] = partition.log.log_start_offset
    except errors.BrokerError as error:
        result["error_code"] = error.code
    return result
