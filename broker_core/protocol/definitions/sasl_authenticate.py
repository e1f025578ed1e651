"""SaslAuthenticate, API key 36."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        SaslAuthenticateRequest,
        SaslAuthenticateResponse,
    )

SASL_AUTHENTICATE: Api[SaslAuthenticateRequest, SaslAuthenticateResponse] = Api(
    key=36,
    name="SaslAuthenticate",
    versions=(0, 2),
    flexible_from=2,
    request="""
    auth_bytes bytes 0+
""",
    response="""
    error_code int16 0+
    error_message string 0+ nullable 0+
    auth_bytes bytes 0+
    session_lifetime_ms int64 1+
""",
)
