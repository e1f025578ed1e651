"""OffsetForLeaderEpoch, API key 23."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse,
    )

OFFSET_FOR_LEADER_EPOCH: Api[OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse] = Api(
    key=23,
    name="OffsetForLeaderEpoch",
    versions=(2, 4),
    flexible_from=4,
    request="""
    replica_id int32 3+ default -2
    topics [] 0+
        topic string 0+
        partitions [] 0+
            partition int32 0+
            current_leader_epoch int32 2+ default -1
            leader_epoch int32 0+
""",
    response="""
    throttle_time_ms int32 2+
    topics [] 0+
        topic string 0+
        partitions [] 0+
            error_code int16 0+
            partition int32 0+
            leader_epoch int32 1+ default -1
            end_offset int64 0+ default -1
""",
)
