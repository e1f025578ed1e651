"""DescribeGroups, API key 15."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        DescribeGroupsRequest,
        DescribeGroupsResponse,
    )

DESCRIBE_GROUPS: Api[DescribeGroupsRequest, DescribeGroupsResponse] = Api(
    key=15,
    name="DescribeGroups",
    versions=(0, 6),
    flexible_from=5,
    request="""
    groups []string 0+
    include_authorized_operations bool 3+
""",
    response="""
    throttle_time_ms int32 1+
    groups [] 0+
        error_code int16 0+
        error_message string 6+ nullable 6+ default null
        group_id string 0+
        group_state string 0+
        protocol_type string 0+
        protocol_data string 0+
        members [] 0+
            member_id string 0+
            group_instance_id string 4+ nullable 4+ default null
            client_id string 0+
            client_host string 0+
            member_metadata bytes 0+
            member_assignment bytes 0+
        authorized_operations int32 3+ default -2147483648
""",
)
