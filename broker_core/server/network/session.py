"""A connection's principal: anonymous, the owner of a certificate, or a SASL user."""

from __future__ import annotations

from typing import Any, Final

from broker_core.configuration.listeners import ListenerConfig
from broker_core.protocol.definitions import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from broker_core.protocol.errors import RemoteProtocolError
from broker_core.protocol.schema import AnyApi
from broker_core.security.principal import ANONYMOUS, Principal, PrincipalMapper, distinguished_name
from broker_core.security.sasl import SaslAuthentication, SaslSettings
from waylog.config import Endpoint

#: APIs that a client may use before its login.
_LOGIN_APIS: Final = frozenset({API_VERSIONS.key, SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key})


class ListenerSecurity:
    """Security settings that the connections of one listener share."""

    def __init__(
        self, config: ListenerConfig, sasl: SaslSettings | None, advertised: Endpoint
    ) -> None:
        self.config = config
        self.sasl = sasl
        self.advertised = advertised
        self.mapper = PrincipalMapper(
            config.properties.get("ssl.principal.mapping.rules", "DEFAULT")
        )

    def open_session(self, certificate: dict[str, Any] | None) -> ClientSession:
        """Return the session of a new connection, with the certificate of its client, if any."""
        return ClientSession(self, certificate)


class ClientSession:
    """State of one connection: the client's identity, and when a fetch was last answered."""

    __slots__ = ("_principal", "_security", "raw_tokens", "sasl", "told_at")

    def __init__(self, security: ListenerSecurity, certificate: dict[str, Any] | None) -> None:
        self._security = security
        self._principal = ANONYMOUS
        if certificate:
            self._principal = security.mapper.principal(distinguished_name(certificate))
        self.sasl = SaslAuthentication(security.sasl) if security.sasl is not None else None
        #: True if the client's login messages have no headers: after SaslHandshake version 0.
        self.raw_tokens = False
        #: Event loop time of the last answer to a fetch.
        self.told_at = float("-inf")

    @property
    def principal(self) -> Principal:
        """The client's principal."""
        if self.sasl is not None and self.sasl.principal is not None:
            return self.sasl.principal
        return self._principal

    @property
    def is_authenticated(self) -> bool:
        """Tell whether requests other than those of the login are answered."""
        return self.sasl is None or self.sasl.principal is not None

    def check_login(self, api: AnyApi, now_ms: int) -> None:
        """Raise RemoteProtocolError for a request that has to follow a login."""
        if api.key in _LOGIN_APIS:
            return
        if not self.is_authenticated:
            raise RemoteProtocolError(f"{api.name} before the login")
        if self.sasl is not None and self.sasl.is_expired(now_ms):
            raise RemoteProtocolError(f"{api.name} after the login has expired")

    @property
    def listener_name(self) -> str:
        """The name of the listener."""
        return self._security.config.name

    @property
    def advertised(self) -> Endpoint:
        """The broker's address for clients of the listener."""
        return self._security.advertised
