"""AlterClientQuotas, API key 49."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
    )

ALTER_CLIENT_QUOTAS: Api[AlterClientQuotasRequest, AlterClientQuotasResponse] = Api(
    key=49,
    name="AlterClientQuotas",
    versions=(0, 1),
    flexible_from=1,
    request="""
    entries [] 0+
        entity [] 0+
            entity_type string 0+
            entity_name string 0+ nullable 0+
        ops [] 0+
            key string 0+
            value float64 0+
            remove bool 0+
    validate_only bool 0+
""",
    response="""
    throttle_time_ms int32 0+
    entries [] 0+
        error_code int16 0+
        error_message string 0+ nullable 0+
        entity [] 0+
            entity_type string 0+
            entity_name string 0+ nullable 0+
""",
)
