"""Envelope, API key 58: a client's request that a broker forwards to the controller (KIP-590)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import EnvelopeRequest, EnvelopeResponse

ENVELOPE: Api[EnvelopeRequest, EnvelopeResponse] = Api(
    key=58,
    name="Envelope",
    versions=(0, 0),
    flexible_from=0,
    request="""
    request_data bytes 0+
    request_principal bytes 0+ nullable 0+
    client_host_address bytes 0+
""",
    response="""
    response_data bytes 0+ nullable 0+ default null
    error_code int16 0+
""",
)
