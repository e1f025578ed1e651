"""ApiVersions, API key 18."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import ApiVersionsRequest, ApiVersionsResponse

API_VERSIONS: Api[ApiVersionsRequest, ApiVersionsResponse] = Api(
    key=18,
    name="ApiVersions",
    versions=(0, 4),
    flexible_from=3,
    request="""
    client_software_name string 3+
    client_software_version string 3+
""",
    response="""
    error_code int16 0+
    api_keys [] 0+
        api_key int16 0+
        min_version int16 0+
        max_version int16 0+
    throttle_time_ms int32 1+
    supported_features [] 3+ tag 0
        name string 3+
        min_version int16 3+
        max_version int16 3+
    finalized_features_epoch int64 3+ tag 1 default -1
    finalized_features [] 3+ tag 2
        name string 3+
        max_version_level int16 3+
        min_version_level int16 3+
    zk_migration_ready bool 3+ tag 3
""",
)
