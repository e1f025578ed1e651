"""OffsetFetch, API key 9."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import OffsetFetchRequest, OffsetFetchResponse

OFFSET_FETCH: Api[OffsetFetchRequest, OffsetFetchResponse] = Api(
    key=9,
    name="OffsetFetch",
    versions=(1, 10),
    flexible_from=6,
    request="""
    group_id string 0-7
    topics [] 0-7 nullable 2-7
        name string 0-7
        partition_indexes []int32 0-7
    groups [] 8+
        group_id string 8+
        member_id string 9+ nullable 9+ default null
        member_epoch int32 9+ default -1
        topics [] 8+ nullable 8+
            name string 8-9
            topic_id uuid 10+
            partition_indexes []int32 8+
    require_stable bool 7+
""",
    response="""
    throttle_time_ms int32 3+
    topics [] 0-7
        name string 0-7
        partitions [] 0-7
            partition_index int32 0-7
            committed_offset int64 0-7
            committed_leader_epoch int32 5-7 default -1
            metadata string 0-7 nullable 0-7
            error_code int16 0-7
    error_code int16 2-7
    groups [] 8+
        group_id string 8+
        topics [] 8+
            name string 8-9
            topic_id uuid 10+
            partitions [] 8+
                partition_index int32 8+
                committed_offset int64 8+
                committed_leader_epoch int32 8+ default -1
                metadata string 8+ nullable 8+
                error_code int16 8+
        error_code int16 8+
""",
)
