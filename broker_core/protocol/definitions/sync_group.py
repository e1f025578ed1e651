"""SyncGroup, API key 14."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import SyncGroupRequest, SyncGroupResponse

SYNC_GROUP: Api[SyncGroupRequest, SyncGroupResponse] = Api(
    key=14,
    name="SyncGroup",
    versions=(0, 5),
    flexible_from=4,
    request="""
    group_id string 0+
    generation_id int32 0+
    member_id string 0+
    group_instance_id string 3+ nullable 3+ default null
    protocol_type string 5+ nullable 5+ default null
    protocol_name string 5+ nullable 5+ default null
    assignments [] 0+
        member_id string 0+
        assignment bytes 0+
""",
    response="""
    throttle_time_ms int32 1+
    error_code int16 0+
    protocol_type string 5+ nullable 5+ default null
    protocol_name string 5+ nullable 5+ default null
    assignment bytes 0+
""",
)
