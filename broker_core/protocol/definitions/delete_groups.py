"""DeleteGroups, API key 42."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import DeleteGroupsRequest, DeleteGroupsResponse

DELETE_GROUPS: Api[DeleteGroupsRequest, DeleteGroupsResponse] = Api(
    key=42,
    name="DeleteGroups",
    versions=(0, 2),
    flexible_from=2,
    request="""
    groups_names []string 0+
""",
    response="""
    throttle_time_ms int32 0+
    results [] 0+
        group_id string 0+
        error_code int16 0+
""",
)
