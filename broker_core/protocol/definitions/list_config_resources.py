"""ListConfigResources, API key 74; version 0 was called ListClientMetricsResources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        ListConfigResourcesRequest,
        ListConfigResourcesResponse,
    )

LIST_CONFIG_RESOURCES: Api[ListConfigResourcesRequest, ListConfigResourcesResponse] = Api(
    key=74,
    name="ListConfigResources",
    versions=(0, 1),
    flexible_from=0,
    request="""
    resource_types []int8 1+
""",
    response="""
    throttle_time_ms int32 0+
    error_code int16 0+
    config_resources [] 0+
        resource_name string 0+
        resource_type int8 1+ default 16
""",
)
