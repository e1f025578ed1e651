"""SaslHandshake, API key 17."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import SaslHandshakeRequest, SaslHandshakeResponse

SASL_HANDSHAKE: Api[SaslHandshakeRequest, SaslHandshakeResponse] = Api(
    key=17,
    name="SaslHandshake",
    versions=(0, 1),
    flexible_from=None,
    request="""
    mechanism string 0+
""",
    response="""
    error_code int16 0+
    mechanisms []string 0+
""",
)
