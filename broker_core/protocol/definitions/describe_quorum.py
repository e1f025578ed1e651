"""DescribeQuorum, API key 55."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        DescribeQuorumRequest,
        DescribeQuorumResponse,
    )

DESCRIBE_QUORUM: Api[DescribeQuorumRequest, DescribeQuorumResponse] = Api(
    key=55,
    name="DescribeQuorum",
    versions=(0, 2),
    flexible_from=0,
    request="""
    topics [] 0+
        topic_name string 0+
        partitions [] 0+
            partition_index int32 0+
""",
    response="""
    error_code int16 0+
    error_message string 2+ nullable 2+
    topics [] 0+
        topic_name string 0+
        partitions [] 0+
            partition_index int32 0+
            error_code int16 0+
            error_message string 2+ nullable 2+
            leader_id int32 0+
            leader_epoch int32 0+
            high_watermark int64 0+
            current_voters [] 0+
                replica_id int32 0+
                replica_directory_id uuid 2+
                log_end_offset int64 0+
                last_fetch_timestamp int64 1+ default -1
                last_caught_up_timestamp int64 1+ default -1
            observers [] 0+
                replica_id int32 0+
                replica_directory_id uuid 2+
                log_end_offset int64 0+
                last_fetch_timestamp int64 1+ default -1
                last_caught_up_timestamp int64 1+ default -1
    nodes [] 2+
        node_id int32 2+
        listeners [] 2+
            name string 2+
            host string 2+
            port uint16 2+
""",
)
