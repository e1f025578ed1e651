"""SaslHandshake, API key 17."""

from broker_core.protocol.schema import Api

SASL_HANDSHAKE = Api(
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
