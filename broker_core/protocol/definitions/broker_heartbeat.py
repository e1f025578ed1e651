"""BrokerHeartbeat, API key 63, from brokers to the controller (KIP-631)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        BrokerHeartbeatRequest,
        BrokerHeartbeatResponse,
    )

BROKER_HEARTBEAT: Api[BrokerHeartbeatRequest, BrokerHeartbeatResponse] = Api(
    key=63,
    name="BrokerHeartbeat",
    versions=(0, 1),
    flexible_from=0,
    request="""
    broker_id int32 0+
    broker_epoch int64 0+ default -1
    current_metadata_offset int64 0+
    want_fence bool 0+
    want_shut_down bool 0+
    offline_log_dirs []uuid 1+ tag 0
""",
    response="""
    throttle_time_ms int32 0+
    error_code int16 0+
    is_caught_up bool 0+
    is_fenced bool 0+ default true
    should_shut_down bool 0+
""",
)
