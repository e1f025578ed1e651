"""ListOffsets, API key 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import ListOffsetsRequest, ListOffsetsResponse

LIST_OFFSETS: Api[ListOffsetsRequest, ListOffsetsResponse] = Api(
    key=2,
    name="ListOffsets",
    versions=(1, 11),
    flexible_from=6,
    request="""
    replica_id int32 0+
    isolation_level int8 2+
    topics [] 0+
        name string 0+
        partitions [] 0+
            partition_index int32 0+
            current_leader_epoch int32 4+ default -1
            timestamp int64 0+
    timeout_ms int32 10+
""",
    response="""
    throttle_time_ms int32 2+
    topics [] 0+
        name string 0+
        partitions [] 0+
            partition_index int32 0+
            error_code int16 0+
            timestamp int64 1+ default -1
            offset int64 1+ default -1
            leader_epoch int32 4+ default -1
""",
)
