"""ListGroups, API key 16."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import ListGroupsRequest, ListGroupsResponse

LIST_GROUPS: Api[ListGroupsRequest, ListGroupsResponse] = Api(
    key=16,
    name="ListGroups",
    versions=(0, 5),
    flexible_from=3,
    request="""
    states_filter []string 4+
    types_filter []string 5+
""",
    response="""
    throttle_time_ms int32 1+
    error_code int16 0+
    groups [] 0+
        group_id string 0+
        protocol_type string 0+
        group_state string 4+
        group_type string 5+
""",
)
