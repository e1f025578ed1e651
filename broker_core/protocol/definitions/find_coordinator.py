"""FindCoordinator, API key 10."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        FindCoordinatorRequest,
        FindCoordinatorResponse,
    )

FIND_COORDINATOR: Api[FindCoordinatorRequest, FindCoordinatorResponse] = Api(
    key=10,
    name="FindCoordinator",
    versions=(0, 6),
    flexible_from=3,
    request="""
    key string 0-3
    key_type int8 1+
    coordinator_keys []string 4+
""",
    response="""
    throttle_time_ms int32 1+
    error_code int16 0-3
    error_message string 1-3 nullable 1-3
    node_id int32 0-3
    host string 0-3
    port int32 0-3
    coordinators [] 4+
        key string 4+
        node_id int32 4+
        host string 4+
        port int32 4+
        error_code int16 4+
        error_message string 4+ nullable 4+
""",
)
