"""OffsetCommit, API key 8."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import OffsetCommitRequest, OffsetCommitResponse

OFFSET_COMMIT: Api[OffsetCommitRequest, OffsetCommitResponse] = Api(
    key=8,
    name="OffsetCommit",
    versions=(2, 10),
    flexible_from=8,
    request="""
    group_id string 0+
    generation_id_or_member_epoch int32 1+ default -1
    member_id string 1+
    group_instance_id string 7+ nullable 7+ default null
    retention_time_ms int64 2-4 default -1
    topics [] 0+
        name string 0-9
        topic_id uuid 10+
        partitions [] 0+
            partition_index int32 0+
            committed_offset int64 0+
            committed_leader_epoch int32 6+ default -1
            committed_metadata string 0+ nullable 0+
""",
    response="""
    throttle_time_ms int32 3+
    topics [] 0+
        name string 0-9
        topic_id uuid 10+
        partitions [] 0+
            partition_index int32 0+
            error_code int16 0+
""",
)
