"""CreateAcls, API key 30."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import CreateAclsRequest, CreateAclsResponse

CREATE_ACLS: Api[CreateAclsRequest, CreateAclsResponse] = Api(
    key=30,
    name="CreateAcls",
    versions=(1, 3),
    flexible_from=2,
    request="""
    creations [] 0+
        resource_type int8 0+
        resource_name string 0+
        resource_pattern_type int8 1+ default 3
        principal string 0+
        host string 0+
        operation int8 0+
        permission_type int8 0+
""",
    response="""
    throttle_time_ms int32 0+
    results [] 0+
        error_code int16 0+
        error_message string 0+ nullable 0+
""",
)
