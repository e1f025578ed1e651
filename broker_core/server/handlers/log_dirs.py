"""DescribeLogDirs, AlterReplicaLogDirs: the log directory, and the space that logs take.

Web consoles list no topics without DescribeLogDirs.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Protocol

from broker_core import errors
from broker_core.configuration.config import BrokerConfig
from broker_core.server.network.request import Request
from broker_core.server.partitions.topics import TopicRegistry

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirsResponse,
        AlterReplicaLogDirsResponsePartition,
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
        DescribeLogDirsResponsePartition,
        DescribeLogDirsResponseTopic,
    )


class LogDirParts(Protocol):
    """The parts of a broker that know its log directory and what is in it."""

    config: BrokerConfig
    topics: TopicRegistry


def handle(
    broker: LogDirParts, request: Request[DescribeLogDirsRequest, DescribeLogDirsResponse]
) -> None:
    """Answer a DescribeLogDirs request."""
    asked = request.body["topics"]
    wanted = None if asked is None else {each["topic"]: set(each["partitions"]) for each in asked}
    topics: list[DescribeLogDirsResponseTopic] = []
    for topic in broker.topics:
        if wanted is not None and topic.name not in wanted:
            continue
        partitions: list[DescribeLogDirsResponsePartition] = [
            {
                "partition_index": partition.index,
                "partition_size": partition.log.size_bytes,
                "offset_lag": 0,
                "is_future_key": False,
            }
            for partition in topic.partitions
            if wanted is None or partition.index in wanted[topic.name]
        ]
        if partitions:
            topics.append({"name": topic.name, "partitions": partitions})
    usage = shutil.disk_usage(broker.config.log_dir)
    request.reply(
        {
            "results": [
                {
                    "error_code": errors.NONE,
                    "log_dir": str(broker.config.log_dir.absolute()),
                    "topics": topics,
                    "total_bytes": usage.total,
                    "usable_bytes": usage.free,
                }
            ]
        }
    )


def handle_alter(
    broker: LogDirParts, request: Request[AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse]
) -> None:
    """Answer AlterReplicaLogDirs; there is one directory, which has all replicas already."""
    own = str(broker.config.log_dir.absolute())
    topics: dict[str, list[AlterReplicaLogDirsResponsePartition]] = {}
    for directory in request.body["dirs"]:
        for topic in directory["topics"]:
            for index in topic["partitions"]:
                code = errors.NONE
                if directory["path"] != own:
                    code = errors.LogDirNotFound.code
                elif broker.topics.partition(topic["name"], index) is None:
                    count = broker.topics.partition_count(topic["name"]) or 0
                    is_elsewhere = 0 <= index < count
                    code = (
                        errors.ReplicaNotAvailable
                        if is_elsewhere
                        else errors.UnknownTopicOrPartition
                    ).code
                topics.setdefault(topic["name"], []).append(
                    {"partition_index": index, "error_code": code}
                )
    request.reply(
        {
            "results": [
                {"topic_name": name, "partitions": partitions}
                for name, partitions in topics.items()
            ]
        }
    )
