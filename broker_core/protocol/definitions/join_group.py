"""JoinGroup, API key 11."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import JoinGroupRequest, JoinGroupResponse

JOIN_GROUP: Api[JoinGroupRequest, JoinGroupResponse] = Api(
    key=11,
    name="JoinGroup",
    versions=(0, 9),
    flexible_from=6,
    request="""
    group_id string 0+
    session_timeout_ms int32 0+
    rebalance_timeout_ms int32 1+ default -1
    member_id string 0+
    group_instance_id string 5+ nullable 5+ default null
    protocol_type string 0+
    protocols [] 0+
        name string 0+
        metadata bytes 0+
    reason string 8+ nullable 8+ default null
""",
    response="""
    throttle_time_ms int32 2+
    error_code int16 0+
    generation_id int32 0+ default -1
    protocol_type string 7+ nullable 7+ default null
    protocol_name string 0+ nullable 7+
    leader string 0+
    skip_assignment bool 9+
    member_id string 0+
    members [] 0+
        member_id string 0+
        group_instance_id string 5+ nullable 5+ default null
        metadata bytes 0+
""",
)
