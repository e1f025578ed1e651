"""How a client's connections are secured, from the properties of a file."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from waylog.config import ConfigError
from waylog.kafka.connection.tls import client_context
from waylog.kafka.properties import configured_properties

_PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")


@dataclass(frozen=True)
class ConnectionSecurity:
    """What a connection does before its first request: TLS, or nothing."""

    tls: ssl.SSLContext | None = None


#: Neither TLS nor a login.
PLAINTEXT: Final = ConnectionSecurity()


def connection_security(properties: Mapping[str, str]) -> ConnectionSecurity:
    """Return what `security.protocol` and its fellows ask for; raises ConfigError.

    The names are librdkafka's; others than `security.protocol`, `ssl.*` and `sasl.*` do not matter.
    """
    protocol = properties.get("security.protocol", "plaintext").lower()
    if protocol not in _PROTOCOLS:
        raise ConfigError(
            f"security.protocol={protocol}: {', '.join(_PROTOCOLS)} (or in capitals) is expected"
        )
    return ConnectionSecurity(client_context(properties) if protocol.endswith("ssl") else None)


def configured_security() -> ConnectionSecurity:
    """Return what the file of the environment asks for (WAYLOG_KAFKA_CONFIG); raises ConfigError.

    Reads the files that it names, so that a changed certificate counts for new clients.
    """
    return connection_security(configured_properties())
