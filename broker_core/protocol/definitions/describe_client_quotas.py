"""DescribeClientQuotas, API key 48."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        DescribeClientQuotasRequest,
        DescribeClientQuotasResponse,
    )

DESCRIBE_CLIENT_QUOTAS: Api[DescribeClientQuotasRequest, DescribeClientQuotasResponse] = Api(
    key=48,
    name="DescribeClientQuotas",
    versions=(0, 1),
    flexible_from=1,
    request="""
    components [] 0+
        entity_type string 0+
        match_type int8 0+
        match string 0+ nullable 0+
    strict bool 0+
""",
    response="""
    throttle_time_ms int32 0+
    error_code int16 0+
    error_message string 0+ nullable 0+
    entries [] 0+ nullable 0+
        entity [] 0+
            entity_type string 0+
            entity_name string 0+ nullable 0+
        values [] 0+
            key string 0+
            value float64 0+
""",
)
