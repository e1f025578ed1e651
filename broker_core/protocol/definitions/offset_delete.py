"""OffsetDelete, API key 47."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import OffsetDeleteRequest, OffsetDeleteResponse

OFFSET_DELETE: Api[OffsetDeleteRequest, OffsetDeleteResponse] = Api(
    key=47,
    name="OffsetDelete",
    versions=(0, 0),
    flexible_from=None,
    request="""
    group_id string 0+
    topics [] 0+
        name string 0+
        partitions [] 0+
            partition_index int32 0+
""",
    response="""
    error_code int16 0+
    throttle_time_ms int32 0+
    topics [] 0+
        name string 0+
        partitions [] 0+
            partition_index int32 0+
            error_code int16 0+
""",
)
