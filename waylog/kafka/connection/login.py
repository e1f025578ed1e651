"""Logins at a broker: handshake and exchange of SASL (KIP-43, KIP-152)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from waylog.kafka.connection.sasl import (
    OAUTHBEARER,
    BearerClient,
    ClientExchange,
    LoginRefused,
    LoginUnwanted,
    SaslCredentials,
    client_exchange,
    readable,
)
from waylog.kafka.protocol import requests
from waylog.kafka.protocol.error_codes import ErrorCode, reason_of
from waylog.kafka.protocol.requests import MalformedAnswer

if TYPE_CHECKING:
    from waylog.kafka.connection.access_tokens import TokenSource

#: More messages than any mechanism has.
_MESSAGES_MAX: Final = 4

#: Sends a request and returns the body of its answer; raises OSError.
Ask = Callable[[int, Sequence[bytes]], Awaitable[bytes]]


class Login(Protocol):
    """What a client shows a broker of itself."""

    @property
    def mechanism(self) -> str: ...

    async def exchange(self) -> ClientExchange:
        """Begin a new exchange; raises LoginRefused, OSError."""


@dataclass(frozen=True, slots=True)
class PasswordLogin:
    """A login with a password, by PLAIN or SCRAM."""

    credentials: SaslCredentials

    @property
    def mechanism(self) -> str:
        """The name of the SASL mechanism."""
        return self.credentials.mechanism

    async def exchange(self) -> ClientExchange:
        """See Login."""
        return client_exchange(self.credentials)


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """A login with an access token."""

    source: TokenSource = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)

    @property
    def mechanism(self) -> str:
        """The name of the SASL mechanism."""
        return OAUTHBEARER

    async def exchange(self) -> ClientExchange:
        """See Login."""
        return BearerClient(await self.source.token(), self.extensions)


async def log_in(login: Login, ask: Ask) -> int:
    """Log in; return the ms for which the session lasts, 0 without a limit.

    Raises LoginRefused, MalformedAnswer, and OSError as `ask` does.
    """
    exchange = await login.exchange()
    handshake = requests.read_sasl_handshake(
        await ask(requests.SASL_HANDSHAKE, requests.sasl_handshake(login.mechanism))
    )
    if handshake.error == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = readable(", ".join(handshake.mechanisms))
        raise LoginRefused(
            f"the broker offers {offered}, not {login.mechanism}: set sasl.mechanism to one of them"
        )
    if handshake.error == ErrorCode.ILLEGAL_SASL_STATE:
        raise LoginUnwanted("the broker's listener has no logins")
    if handshake.error:
        raise LoginRefused(f"the broker refuses {login.mechanism}: {reason_of(handshake.error)}")
    loop = asyncio.get_running_loop()
    message = exchange.first()
    for _ in range(_MESSAGES_MAX):
        answer = requests.read_sasl_authenticate(
            await ask(requests.SASL_AUTHENTICATE, requests.sasl_authenticate(message))
        )
        if answer.error:
            reason = readable(answer.message) or reason_of(answer.error)
            raise LoginRefused(f"the broker refuses the login{_of(login)}: {reason}")
        # SCRAM salts the password here, for some milliseconds or as long as the broker wants.
        following = await loop.run_in_executor(None, exchange.evaluate, answer.data)
        if following is None:
            return answer.session_ms
        message = following
    raise MalformedAnswer("the login has no end")


def _of(login: Login) -> str:
    """Name who logs in, and what may be wrong; brokers do not tell whether the user exists."""
    if not isinstance(login, PasswordLogin):
        return ""
    user = readable(login.credentials.user)
    return f" of user {user} by {login.mechanism} (check sasl.username and sasl.password)"
