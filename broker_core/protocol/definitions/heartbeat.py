"""Heartbeat, API key 12."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import HeartbeatRequest, HeartbeatResponse

HEARTBEAT: Api[HeartbeatRequest, HeartbeatResponse] = Api(
    key=12,
    name="Heartbeat",
    versions=(0, 4),
    flexible_from=4,
    request="""
    group_id string 0+
    generation_id int32 0+
    member_id string 0+
    group_instance_id string 3+ nullable 3+ default null
""",
    response="""
    throttle_time_ms int32 1+
    error_code int16 0+
""",
)
