"""AlterUserScramCredentials, API key 51."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
    )

ALTER_USER_SCRAM_CREDENTIALS: Api[
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
] = Api(
    key=51,
    name="AlterUserScramCredentials",
    versions=(0, 0),
    flexible_from=0,
    request="""
    deletions [] 0+
        name string 0+
        mechanism int8 0+
    upsertions [] 0+
        name string 0+
        mechanism int8 0+
        iterations int32 0+
        salt bytes 0+
        salted_password bytes 0+
""",
    response="""
    throttle_time_ms int32 0+
    results [] 0+
        user string 0+
        error_code int16 0+
        error_message string 0+ nullable 0+
""",
)
