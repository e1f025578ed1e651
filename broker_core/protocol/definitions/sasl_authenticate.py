"""SaslAuthenticate, API key 36."""

from broker_core.protocol.schema import Api

SASL_AUTHENTICATE = Api(
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
