"""DeleteAcls, API key 31."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import DeleteAclsRequest, DeleteAclsResponse

DELETE_ACLS: Api[DeleteAclsRequest, DeleteAclsResponse] = Api(
    key=31,
    name="DeleteAcls",
    versions=(1, 3),
    flexible_from=2,
    request="""
    filters [] 0+
        resource_type_filter int8 0+
        resource_name_filter string 0+ nullable 0+
        pattern_type_filter int8 1+ default 3
        principal_filter string 0+ nullable 0+
        host_filter string 0+ nullable 0+
        operation int8 0+
        permission_type int8 0+
""",
    response="""
    throttle_time_ms int32 0+
    filter_results [] 0+
        error_code int16 0+
        error_message string 0+ nullable 0+
        matching_acls [] 0+
            error_code int16 0+
            error_message string 0+ nullable 0+
            resource_type int8 0+
            resource_name string 0+
            pattern_type int8 1+ default 3
            principal string 0+
            host string 0+
            operation int8 0+
            permission_type int8 0+
""",
)
