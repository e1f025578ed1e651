"""The broker behind the gateways that are attacked."""

from tests.gateway.conftest import gateway_broker

__all__ = ["gateway_broker"]
