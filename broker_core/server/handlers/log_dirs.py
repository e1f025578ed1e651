"""DescribeLogDirs: how much room the logs take. Web consoles list no topics without it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from broker_core import errors
from broker_core.server.request import Request

if TYPE_CHECKING:
    from broker_core.server.runtime import Broker


def handle(broker: Broker, request: Request) -> None:
    """DescribeLogDirs."""
    asked = request.body["topics"]
    wanted = None if asked is None else {each["topic"]: set(each["partitions"]) for each in asked}
    topics: list[dict[str, Any]] = []
    for topic in broker.topics:
        if wanted is not None and topic.name not in wanted:
            continue
        partitions = [
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
