"""IncrementalAlterConfigs, API key 44."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )

INCREMENTAL_ALTER_CONFIGS: Api[IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse] = (
    Api(
        key=44,
        name="IncrementalAlterConfigs",
        versions=(0, 1),
        flexible_from=1,
        request="""
    resources [] 0+
        resource_type int8 0+
        resource_name string 0+
        configs [] 0+
            name string 0+
            config_operation int8 0+
            value string 0+ nullable 0+
    validate_only bool 0+
""",
        response="""
    throttle_time_ms int32 0+
    responses [] 0+
        error_code int16 0+
        error_message string 0+ nullable 0+
        resource_type int8 0+
        resource_name string 0+
""",
    )
)
