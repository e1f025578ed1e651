"""LeaveGroup, API key 13."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import LeaveGroupRequest, LeaveGroupResponse

LEAVE_GROUP: Api[LeaveGroupRequest, LeaveGroupResponse] = Api(
    key=13,
    name="LeaveGroup",
    versions=(0, 5),
    flexible_from=4,
    request="""
    group_id string 0+
    member_id string 0-2
    members [] 3+
        member_id string 3+
        group_instance_id string 3+ nullable 3+ default null
        reason string 5+ nullable 5+ default null
""",
    response="""
    throttle_time_ms int32 1+
    error_code int16 0+
    members [] 3+
        member_id string 3+
        group_instance_id string 3+ nullable 3+
        error_code int16 3+
""",
)
