"""DescribeConfigs, API key 32."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        DescribeConfigsRequest,
        DescribeConfigsResponse,
    )

DESCRIBE_CONFIGS: Api[DescribeConfigsRequest, DescribeConfigsResponse] = Api(
    key=32,
    name="DescribeConfigs",
    versions=(1, 4),
    flexible_from=4,
    request="""
    resources [] 0+
        resource_type int8 0+
        resource_name string 0+
        configuration_keys []string 0+ nullable 0+
    include_synonyms bool 1+
    include_documentation bool 3+
""",
    response="""
    throttle_time_ms int32 0+
    results [] 0+
        error_code int16 0+
        error_message string 0+ nullable 0+
        resource_type int8 0+
        resource_name string 0+
        configs [] 0+
            name string 0+
            value string 0+ nullable 0+
            read_only bool 0+
            config_source int8 1+ default -1
            is_sensitive bool 0+
            synonyms [] 1+
                name string 1+
                value string 1+ nullable 0+
                source int8 1+
            config_type int8 3+
            documentation string 3+ nullable 0+
""",
)
