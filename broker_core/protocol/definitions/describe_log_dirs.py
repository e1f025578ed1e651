"""DescribeLogDirs, API key 35."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
    )

DESCRIBE_LOG_DIRS: Api[DescribeLogDirsRequest, DescribeLogDirsResponse] = Api(
    key=35,
    name="DescribeLogDirs",
    versions=(1, 5),
    flexible_from=2,
    request="""
    topics [] 0+ nullable 0+
        topic string 0+
        partitions []int32 0+
""",
    response="""
    throttle_time_ms int32 0+
    error_code int16 3+
    results [] 0+
        error_code int16 0+
        log_dir string 0+
        topics [] 0+
            name string 0+
            partitions [] 0+
                partition_index int32 0+
                partition_size int64 0+
                offset_lag int64 0+
                is_future_key bool 0+
        total_bytes int64 4+ default -1
        usable_bytes int64 4+ default -1
        is_cordoned bool 5+
""",
)
