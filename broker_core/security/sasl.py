"""SASL authentication of one connection: handshake, exchange, re-authentication (KIP-368).

There is no I/O here: bytes and times are arguments, responses are results.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from broker_core.errors import IllegalSaslState, UnsupportedSaslMechanism
from broker_core.security.access_tokens import AccessToken
from broker_core.security.oauthbearer import OAUTHBEARER, OAuthBearerServer
from broker_core.security.principal import USER, Principal
from broker_core.security.scram import BY_NAME, AuthenticationFailed, CredentialLookup, ScramServer

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *BY_NAME, OAUTHBEARER)


class _Exchange(Protocol):
    user: str | None

    def evaluate(self, data: bytes) -> bytes:
        """Return the response to the client's next message; raises AuthenticationFailed."""


class PlainServer:
    """PLAIN (RFC 4616): user and password in clear text; meant for listeners with TLS."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.user: str | None = None

    def evaluate(self, data: bytes) -> bytes:
        """See ScramServer."""
        try:
            authorization, user, password = data.decode().split("\0")
        except ValueError:  # too few or too many parts, or not UTF-8
            raise AuthenticationFailed("Invalid SASL/PLAIN response: expected 3 tokens") from None
        expected = self._passwords.get(user)
        # Unknown users are compared too, so that the time does not tell which users exist.
        matches = hmac.compare_digest(
            password.encode(), (expected if expected is not None else "\0").encode()
        )
        if expected is None or not matches or not user:
            raise AuthenticationFailed("Authentication failed: Invalid username or password")
        if authorization not in {"", user}:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        self.user = user
        return b""


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The SASL settings of one listener."""

    mechanisms: Sequence[str]
    #: Passwords for PLAIN, by user.
    passwords: Mapping[str, str]
    lookup: CredentialLookup
    #: `connections.max.reauth.ms`; 0 means no limit.
    session_ms_max: int = 0
    #: Validates an access token; raises AuthenticationFailed. None if tokens are not accepted.
    validate_token: Callable[[str], AccessToken] | None = None


class SaslAuthentication:
    """The state of a connection's authentication.

    `principal` is None until the first exchange succeeds. After `expires_ms` (monotonic) the client
    must authenticate again, as the same user, before it may send anything else.
    """

    def __init__(self, settings: SaslSettings) -> None:
        self._settings = settings
        self._exchange: _Exchange | None = None
        self._mechanism: str | None = None
        self.principal: Principal | None = None
        self.expires_ms: int | None = None
        self._session_ms = 0

    @property
    def mechanisms(self) -> Sequence[str]:
        """The mechanisms offered to clients."""
        return self._settings.mechanisms

    def handshake(self, mechanism: str) -> None:
        """Handle the client's choice; raises UnsupportedSaslMechanism, IllegalSaslState."""
        if mechanism not in self._settings.mechanisms:
            raise UnsupportedSaslMechanism(
                f"Unsupported SASL mechanism {mechanism}: "
                f"{', '.join(self._settings.mechanisms)} are enabled"
            )
        if self._mechanism not in {None, mechanism}:
            raise IllegalSaslState("a session is renewed by the mechanism it began with")
        self._exchange = self._begin(mechanism)
        self._mechanism = mechanism

    def _begin(self, mechanism: str) -> _Exchange:
        if mechanism == PLAIN:
            return PlainServer(self._settings.passwords)
        if mechanism == OAUTHBEARER and self._settings.validate_token is not None:
            return OAuthBearerServer(self._settings.validate_token)
        return ScramServer(BY_NAME[mechanism], self._settings.lookup)

    def authenticate(self, data: bytes, now_ms: int) -> bytes:
        """Return the response to a message; raises AuthenticationFailed, IllegalSaslState."""
        exchange = self._exchange
        if exchange is None:
            raise IllegalSaslState("SaslAuthenticate needs a SaslHandshake before it")
        answer = exchange.evaluate(data)
        if exchange.user is not None:
            principal = Principal(USER, exchange.user)
            if self.principal not in {None, principal}:
                raise AuthenticationFailed("a session is renewed by the user it began with")
            self.principal = principal
            self._exchange = None
            limit = self._settings.session_ms_max
            if limit and isinstance(exchange, OAuthBearerServer):
                # A session does not outlive its token, but lasts at least 1 ms.
                limit = max(min(limit, exchange.lifetime_ms), 1)
            self._session_ms = limit
            self.expires_ms = now_ms + limit if limit else None
        return answer

    @property
    def session_lifetime_ms(self) -> int:
        """The session lifetime to send at the end of an exchange; 0 means no limit."""
        return self._session_ms if self._exchange is None else 0

    def is_expired(self, now_ms: int) -> bool:
        """Tell whether the client must authenticate again."""
        return self.expires_ms is not None and now_ms >= self.expires_ms
