"""DescribeQuorum: the nodes that keep the metadata log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from broker_core import errors
from broker_core.server.network.request import AnyRequest, Request
from waylog.config import Endpoint

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        DescribeQuorumRequest,
        DescribeQuorumResponse,
        DescribeQuorumResponseCurrentVoter,
        DescribeQuorumResponsePartition,
    )
    from broker_core.server.runtime import Broker

_METADATA_TOPIC: Final = "__cluster_metadata"
_EPOCH: Final = 1


def handle(broker: Broker, request: Request[DescribeQuorumRequest, DescribeQuorumResponse]) -> None:
    """Answer a DescribeQuorum request."""
    leads = _alone(broker) if broker.cluster is None else broker.cluster.describe_quorum()
    request.reply(
        {
            "error_message": None,
            "topics": [
                {
                    "topic_name": topic["topic_name"],
                    "partitions": [
                        _describe(topic["topic_name"], each["partition_index"], leads)
                        for each in topic["partitions"]
                    ],
                }
                for topic in request.body["topics"]
            ],
            "nodes": [
                {
                    "node_id": node_id,
                    "listeners": [{"name": "CONTROLLER", "host": each.host, "port": each.port}],
                }
                for node_id, each in _controllers(broker, request)
            ],
        }
    )


def _controllers(broker: Broker, request: AnyRequest) -> Sequence[tuple[int, Endpoint]]:
    return broker.config.voters or ((broker.node_id, request.advertised),)


def _alone(broker: Broker) -> DescribeQuorumResponsePartition:
    """Describe a quorum of one: a standalone broker keeps its own metadata."""
    now_ms = broker.now_ms()
    # Every change of the metadata counts as a record.
    end_offset = broker.topics.version
    voter: DescribeQuorumResponseCurrentVoter = {
        "replica_id": broker.node_id,
        "replica_directory_id": bytes(16),
        "log_end_offset": end_offset,
        "last_fetch_timestamp": now_ms,
        "last_caught_up_timestamp": now_ms,
    }
    return {
        "leader_id": broker.node_id,
        "leader_epoch": _EPOCH,
        "high_watermark": end_offset,
        "current_voters": [voter],
        "observers": [],
    }


def _describe(
    topic: str, index: int, leads: DescribeQuorumResponsePartition | None
) -> DescribeQuorumResponsePartition:
    error: errors.BrokerError = errors.UnknownTopicOrPartition()
    if leads is None:
        error = errors.NotLeaderOrFollower()
    elif (topic, index) == (_METADATA_TOPIC, 0):
        return {"partition_index": index, "error_message": None} | leads
    return {
        "partition_index": index,
        "error_code": error.code,
        "error_message": str(error),
        "leader_id": -1,
        "leader_epoch": -1,
        "high_watermark": -1,
        "current_voters": [],
        "observers": [],
    }
