"""DescribeShareGroupOffsets, API key 90."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsResponse,
    )

DESCRIBE_SHARE_GROUP_OFFSETS: Api[
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse
] = Api(
    key=90,
    name="DescribeShareGroupOffsets",
    versions=(0, 1),
    flexible_from=0,
    request="""
    groups [] 0+
        group_id string 0+
        topics [] 0+ nullable 0+
            topic_name string 0+
            partitions []int32 0+
""",
    response="""
    throttle_time_ms int32 0+
    groups [] 0+
        group_id string 0+
        topics [] 0+
            topic_name string 0+
            topic_id uuid 0+
            partitions [] 0+
                partition_index int32 0+
                start_offset int64 0+
                leader_epoch int32 0+
                lag int64 1+ default -1
                error_code int16 0+
                error_message string 0+ nullable 0+ default null
        error_code int16 0+
        error_message string 0+ nullable 0+ default null
""",
)
