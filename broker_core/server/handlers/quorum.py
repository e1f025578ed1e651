"""DescribeQuorum: the nodes that keep the metadata log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from broker_core import errors
from broker_core.configuration.config import BrokerConfig
from broker_core.server.cluster.membership import Cluster
from broker_core.server.network.request import Request

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        DescribeQuorumRequest,
        DescribeQuorumResponse,
        DescribeQuorumResponsePartition,
    )

_METADATA_TOPIC: Final = "__cluster_metadata"


class QuorumParts(Protocol):
    """The parts of a broker that know the metadata quorum."""

    config: BrokerConfig
    cluster: Cluster


def handle(
    broker: QuorumParts, request: Request[DescribeQuorumRequest, DescribeQuorumResponse]
) -> None:
    """Answer a DescribeQuorum request."""
    config = broker.config
    leads = broker.cluster.describe_quorum()
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
                # A broker that is alone has no controller listener: its own address is told.
                for node_id, each in config.voters or ((config.node_id, request.advertised),)
            ],
        }
    )


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
