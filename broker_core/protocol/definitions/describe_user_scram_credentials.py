"""DescribeUserScramCredentials, API key 50."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
    )

DESCRIBE_USER_SCRAM_CREDENTIALS: Api[
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse
] = Api(
    key=50,
    name="DescribeUserScramCredentials",
    versions=(0, 0),
    flexible_from=0,
    request="""
    users [] 0+ nullable 0+
        name string 0+
""",
    response="""
    throttle_time_ms int32 0+
    error_code int16 0+
    error_message string 0+ nullable 0+
    results [] 0+
        user string 0+
        error_code int16 0+
        error_message string 0+ nullable 0+
        credential_infos [] 0+
            mechanism int8 0+
            iterations int32 0+
""",
)
