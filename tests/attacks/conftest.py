"""The broker behind the attacked gateways, and whole platforms."""

from tests.end_to_end.conftest import platform_starter
from tests.gateway.conftest import gateway_broker

__all__ = ["gateway_broker", "platform_starter"]
