"""The principal of a connection: nobody in particular, the owner of a certificate, or a user."""

from __future__ import annotations

from typing import Any

from broker_core.configuration.listeners import ListenerConfig
from broker_core.security.principal import ANONYMOUS, Principal, PrincipalMapper, distinguished_name
from broker_core.security.sasl import SaslAuthentication, SaslSettings
from waylog.config import Endpoint


class ListenerSecurity:
    """What the connections of one listener have in common."""

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
        """The session of a new connection, with the certificate that the client has shown."""
        return ClientSession(self, certificate)


class ClientSession:
    """What is known of one connection: who is on it, and when it was told something last."""

    __slots__ = ("_principal", "_security", "raw_tokens", "sasl", "told_at")

    def __init__(self, security: ListenerSecurity, certificate: dict[str, Any] | None) -> None:
        self._security = security
        self._principal = ANONYMOUS
        if certificate:
            self._principal = security.mapper.principal(distinguished_name(certificate))
        self.sasl = SaslAuthentication(security.sasl) if security.sasl is not None else None
        #: After a SaslHandshake of version 0 the client's messages come without headers.
        self.raw_tokens = False
        #: When a fetch was answered last, on the event loop's clock.
        self.told_at = float("-inf")

    @property
    def principal(self) -> Principal:
        """The principal."""
        if self.sasl is not None and self.sasl.principal is not None:
            return self.sasl.principal
        return self._principal

    @property
    def is_authenticated(self) -> bool:
        """Tell whether other requests than those of the login are answered."""
        return self.sasl is None or self.sasl.principal is not None

    def must_renew(self, now_ms: int) -> bool:
        """Tell whether the login has expired."""
        return self.sasl is not None and self.sasl.is_expired(now_ms)

    @property
    def listener_name(self) -> str:
        """The name of the listener."""
        return self._security.config.name

    @property
    def advertised(self) -> Endpoint:
        """The broker's address as clients of the listener see it."""
        return self._security.advertised
