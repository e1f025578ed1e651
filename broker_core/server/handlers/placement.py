"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments: for one broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_core import errors
from broker_core.server.request import Request

if TYPE_CHECKING:
    from broker_core.server.runtime import Broker


def handle_elect(broker: Broker, request: Request) -> None:
    """ElectLeaders: the only replica leads already."""
    asked = request.body["topic_partitions"]
    if asked is None:
        # Of all partitions only those are told whose leader has changed.
        request.reply({"replica_election_results": []})
        return
    request.reply(
        {
            "replica_election_results": [
                {
                    "topic": topic["topic"],
                    "partition_result": [
                        _elect(broker, topic["topic"], index) for index in topic["partitions"]
                    ],
                }
                for topic in asked
            ]
        }
    )


def _elect(broker: Broker, topic: str, index: int) -> dict[str, Any]:
    error: errors.BrokerError = errors.ElectionNotNeeded(
        "Leader election not needed for topic partition."
    )
    if broker.topics.partition(topic, index) is None:
        error = errors.UnknownTopicOrPartition()
    return {"partition_id": index, "error_code": error.code, "error_message": str(error)}


def handle_reassign(broker: Broker, request: Request) -> None:
    """AlterPartitionReassignments: every replica can only stay where it is."""
    request.reply(
        {
            "error_message": None,
            "allow_replication_factor_change": request.body["allow_replication_factor_change"],
            "responses": [
                {
                    "name": topic["name"],
                    "partitions": [
                        _reassign(broker, topic["name"], asked) for asked in topic["partitions"]
                    ],
                }
                for topic in request.body["topics"]
            ],
        }
    )


def _reassign(broker: Broker, topic: str, asked: dict[str, Any]) -> dict[str, Any]:
    index, replicas = asked["partition_index"], asked["replicas"]
    error: errors.BrokerError | None = None
    if broker.topics.partition(topic, index) is None:
        error = errors.UnknownTopicOrPartition()
    elif replicas is None:
        error = errors.NoReassignmentInProgress()
    elif replicas != [broker.node_id]:
        error = errors.InvalidReplicaAssignment(f"broker {broker.node_id} is the only one")
    return {
        "partition_index": index,
        "error_code": errors.NONE if error is None else error.code,
        "error_message": None if error is None else str(error),
    }


def handle_list_reassignments(broker: Broker, request: Request) -> None:
    """ListPartitionReassignments: there are never any."""
    request.reply({"error_message": None, "topics": []})
