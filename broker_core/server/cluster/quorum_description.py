"""The metadata quorum as its leader sees it, in the form of DescribeQuorum."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker_core.quorum.entries import ReplicaKey
from broker_core.quorum.leader import FollowerProgress, Leader
from broker_core.server.cluster.quorum_node import QuorumNode
from broker_core.server.cluster.wire import directory_bytes

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        DescribeQuorumResponseCurrentVoter,
        DescribeQuorumResponsePartition,
    )


def quorum_description(shell: QuorumNode, now_ms: int) -> DescribeQuorumResponsePartition | None:
    """Return leader, voters and observers; None if this node is not the leader."""
    replica = shell.node.replica
    role = replica.role
    if not isinstance(role, Leader):
        return None
    now = asyncio.get_running_loop().time()
    end_offset = replica.log.end_offset

    def describe(
        key: ReplicaKey, progress: FollowerProgress | None
    ) -> DescribeQuorumResponseCurrentVoter:
        fetched_ms = now_ms
        offset = end_offset
        if progress is not None:
            silent_s = now - progress.last_fetch
            fetched_ms = -1 if silent_s == float("inf") else now_ms - int(silent_s * 1000)
            offset = progress.fetch_offset
        return {
            "replica_id": key.node_id,
            "replica_directory_id": directory_bytes(key.directory_id),
            "log_end_offset": offset,
            "last_fetch_timestamp": fetched_ms,
            "last_caught_up_timestamp": fetched_ms if offset == end_offset else -1,
        }

    voters = sorted(replica.voters)
    observers = sorted(set(role.followers) - set(voters))
    return {
        "leader_id": replica.key.node_id,
        "leader_epoch": replica.epoch,
        "high_watermark": replica.high_watermark or 0,
        "current_voters": [describe(key, role.followers.get(key)) for key in voters],
        "observers": [describe(key, role.followers.get(key)) for key in observers],
    }
