"""Metadata, DescribeCluster, DescribeTopicPartitions, FindCoordinator: brokers and partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from broker_core import errors
from broker_core.cluster.topic_names import check_name
from broker_core.configuration.config import BrokerConfig
from broker_core.coordinator.offsets import OFFSETS_TOPIC
from broker_core.coordinator.transaction import TRANSACTIONS_TOPIC
from broker_core.server.cluster.membership import Cluster
from broker_core.server.cluster.view import ClusterView, Node
from broker_core.server.coordination.coordinator_gate import Coordinators
from broker_core.server.network.request import AnyRequest, Request
from broker_core.server.partitions.topics import Topic, TopicRegistry

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        DescribeClusterRequest,
        DescribeClusterResponse,
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
        DescribeTopicPartitionsResponsePartition,
        DescribeTopicPartitionsResponseTopic,
        FindCoordinatorRequest,
        FindCoordinatorResponse,
        FindCoordinatorResponseCoordinator,
        MetadataRequest,
        MetadataRequestTopic,
        MetadataResponse,
        MetadataResponseTopic,
    )

_NO_ID: Final = bytes(16)
_TOPIC_IDS_FROM: Final = 12
_NOT_ASKED: Final = -(2**31)

# Kafka's operations as bits, by their numbers (AclOperation). Without an authorizer every client
# may perform all of them.
_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = (1 << bit for bit in range(3, 9))
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = (
    1 << bit for bit in range(9, 13)
)
TOPIC_OPERATIONS: Final = (
    _READ | _WRITE | _CREATE | _DELETE | _ALTER | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
)
GROUP_OPERATIONS: Final = _READ | _DELETE | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
CLUSTER_OPERATIONS: Final = (
    _CREATE
    | _ALTER
    | _DESCRIBE
    | _CLUSTER_ACTION
    | _DESCRIBE_CONFIGS
    | _ALTER_CONFIGS
    | _IDEMPOTENT_WRITE
)

_GROUP, _TRANSACTION = 0, 1  # kinds of keys that have a coordinator
_COORDINATED: Final = frozenset({_GROUP, _TRANSACTION})
_ENDPOINTS_OF_BROKERS: Final = 1


class MetadataParts(Protocol):
    """The parts of a broker that know the brokers and topics of its cluster."""

    cluster_id: str
    config: BrokerConfig
    cluster: Cluster
    topics: TopicRegistry
    view: ClusterView


class CoordinatorParts(Coordinators, Protocol):
    """The parts of a broker that know which broker coordinates a group or a transaction."""

    cluster: Cluster
    view: ClusterView


def handle(broker: MetadataParts, request: Request[MetadataRequest, MetadataResponse]) -> None:
    """Answer a Metadata request."""
    body = request.body
    asked = body["topics"]
    if request.version < _TOPIC_IDS_FROM and any(each["name"] is None for each in asked or ()):
        # Versions 10 and 11 have a field for the id, but their responses need a name.
        refused = [
            _missing(each["name"] or "", _NO_ID, errors.InvalidRequest.code) for each in asked or ()
        ]
        request.reply({"brokers": [], "cluster_id": None, "controller_id": -1, "topics": refused})
        return
    operations = TOPIC_OPERATIONS if body["include_topic_authorized_operations"] else _NOT_ASKED
    if asked is None:
        topics = [_describe(broker.view, topic, operations) for topic in broker.topics]
    else:
        create = body["allow_auto_topic_creation"] and broker.config.auto_create_topics
        topics = [_answer(broker, request, each, operations, create=create) for each in asked]
    nodes = broker.view.named(request)
    request.reply(
        {
            "brokers": [
                {"node_id": each.node_id, "host": each.host, "port": each.port, "rack": each.rack}
                for each in nodes
            ],
            "cluster_id": broker.cluster_id,
            "controller_id": broker.view.controller_of(nodes),
            "topics": topics,
            "cluster_authorized_operations": (
                CLUSTER_OPERATIONS if body["include_cluster_authorized_operations"] else _NOT_ASKED
            ),
        }
    )


def _answer(
    broker: MetadataParts,
    request: Request[MetadataRequest, MetadataResponse],
    asked: MetadataRequestTopic,
    operations: int,
    *,
    create: bool,
) -> MetadataResponseTopic:
    name: str | None = asked["name"]
    if name is None:
        topic = broker.topics.by_id(asked["topic_id"])
        if topic is None:
            return _missing(None, asked["topic_id"], errors.UnknownTopicId.code)
        return _describe(broker.view, topic, operations)
    topic = broker.topics.get(name)
    if topic is None:
        try:
            check_name(name)
            if not create:
                raise errors.UnknownTopicOrPartition()
            topic = broker.cluster.create_on_demand(name, request.principal)
        except errors.BrokerError as error:
            return _missing(name, _NO_ID, error.code)
    return _describe(broker.view, topic, operations)


def _missing(name: str | None, topic_id: bytes, code: int) -> MetadataResponseTopic:
    return {"name": name, "topic_id": topic_id, "error_code": code}


def _describe(view: ClusterView, topic: Topic, operations: int) -> MetadataResponseTopic:
    return {
        "error_code": errors.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": _partitions(view, topic),
        "topic_authorized_operations": operations,
    }


def _partitions(view: ClusterView, topic: Topic) -> list[DescribeTopicPartitionsResponsePartition]:
    """Describe all partitions; Metadata leaves out what only DescribeTopicPartitions has."""
    return [
        {
            "error_code": partition.error_code,
            "partition_index": partition.number,
            "leader_id": partition.leader_id,
            "leader_epoch": partition.leader_epoch,
            "replica_nodes": partition.replicas,
            "isr_nodes": partition.isr,
            "offline_replicas": partition.offline,
            # Java's admin client fails on null, which the schema allows.
            "eligible_leader_replicas": partition.eligible,
            "last_known_elr": (),
        }
        for partition in view.partitions(topic)
    ]


def handle_describe_cluster(
    broker: MetadataParts, request: Request[DescribeClusterRequest, DescribeClusterResponse]
) -> None:
    """Answer a DescribeCluster request."""
    if request.body["endpoint_type"] != _ENDPOINTS_OF_BROKERS:
        request.reply(
            {
                "error_code": errors.MismatchedEndpointType.code,
                "error_message": "the addresses of controllers are not for clients",
                "cluster_id": broker.cluster_id,
            }
        )
        return
    nodes = broker.view.nodes(request)
    request.reply(
        {
            "error_message": None,
            "cluster_id": broker.cluster_id,
            "controller_id": broker.view.controller_of(nodes),
            "brokers": [
                {
                    "broker_id": each.node_id,
                    "host": each.host,
                    "port": each.port,
                    "rack": each.rack,
                }
                for each in nodes
            ],
            "cluster_authorized_operations": (
                CLUSTER_OPERATIONS
                if request.body["include_cluster_authorized_operations"]
                else _NOT_ASKED
            ),
        }
    )


def handle_topic_partitions(
    broker: MetadataParts,
    request: Request[DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse],
) -> None:
    """Answer DescribeTopicPartitions: topics in the order of their names, in pages (KIP-966)."""
    body = request.body
    cursor = body["cursor"]
    left = max(body["response_partition_limit"], 1)
    names = sorted({each["name"] for each in body["topics"]}) or sorted(
        topic.name for topic in broker.topics
    )
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        first = 0
        if cursor is not None:
            if name < cursor["topic_name"]:
                continue
            first = cursor["partition_index"] if name == cursor["topic_name"] else 0
        if left <= 0:
            request.reply(
                {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": 0}}
            )
            return
        topic = broker.topics.get(name)
        if topic is None:
            topics.append(
                {
                    "name": name,
                    "topic_id": _NO_ID,
                    "error_code": errors.UnknownTopicOrPartition.code,
                }
            )
            continue
        partitions = _partitions(broker.view, topic)
        total = len(partitions)
        partitions = partitions[max(first, 0) : max(first, 0) + left]
        left -= len(partitions)
        topics.append(
            {
                "error_code": errors.NONE,
                "name": topic.name,
                "topic_id": topic.topic_id,
                "is_internal": topic.is_internal,
                "partitions": partitions,
                "topic_authorized_operations": TOPIC_OPERATIONS,
            }
        )
        last = max(first, 0) + len(partitions)
        if last < total:
            request.reply(
                {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": last}}
            )
            return
    request.reply({"topics": topics, "next_cursor": None})


def handle_find_coordinator(
    broker: CoordinatorParts, request: Request[FindCoordinatorRequest, FindCoordinatorResponse]
) -> None:
    """Answer FindCoordinator with the leader of the partition that holds the key's records."""
    body = request.body
    keys = body["coordinator_keys"] or [body["key"]]
    answers = [_find_coordinator(broker, request, body["key_type"], key) for key in keys]
    first = answers[0]
    request.reply(
        {
            "error_code": first["error_code"],
            "error_message": first["error_message"],
            "node_id": first["node_id"],
            "host": first["host"],
            "port": first["port"],
            "coordinators": answers,
        }
    )


def _find_coordinator(
    broker: CoordinatorParts, request: AnyRequest, kind: int, key: str
) -> FindCoordinatorResponseCoordinator:
    try:
        if kind not in _COORDINATED:
            raise errors.InvalidRequest(f"no coordinator of kind {kind}")
        node = _coordinator(broker, request, kind, key)
    except errors.BrokerError as refusal:
        return {
            "key": key,
            "node_id": -1,
            "host": "",
            "port": -1,
            "error_code": refusal.code,
            "error_message": str(refusal),
        }
    return {
        "key": key,
        "node_id": node.node_id,
        "host": node.host,
        "port": node.port,
        "error_code": errors.NONE,
        "error_message": None,
    }


def _coordinator(broker: CoordinatorParts, request: AnyRequest, kind: int, key: str) -> Node:
    """Return the broker that coordinates a group or a transaction.

    Raises CoordinatorNotAvailable.
    """
    coordinated = broker.transactions if kind == _TRANSACTION else broker.groups
    try:
        place = coordinated.place_of(key)
    except errors.CoordinatorNotAvailable:
        topic = TRANSACTIONS_TOPIC if kind == _TRANSACTION else OFFSETS_TOPIC
        broker.cluster.create_internal_topic(topic)
        raise
    node = broker.view.leader(place, request)
    if node is None:
        raise errors.CoordinatorNotAvailable(f"nobody leads {place[0]}-{place[1]}")
    return node
