"""SaslHandshake, SaslAuthenticate: the login of clients."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from broker_core import errors
from broker_core.security.failures import LoginFailures
from broker_core.security.scram import AuthenticationFailed
from broker_core.server.network.request import Request

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        SaslAuthenticateRequest,
        SaslAuthenticateResponse,
        SaslHandshakeRequest,
        SaslHandshakeResponse,
    )

logger = logging.getLogger(__name__)

_TOKENS_WITH_HEADERS_FROM: Final = 1


def handle_handshake(request: Request[SaslHandshakeRequest, SaslHandshakeResponse]) -> None:
    """Answer SaslHandshake, by which the client chooses a mechanism."""
    session = request.session
    if session.sasl is None:
        request.reply({"error_code": errors.IllegalSaslState.code, "mechanisms": []})
        request.disconnect_after_reply()
        return
    response: SaslHandshakeResponse = {
        "error_code": errors.NONE,
        "mechanisms": session.sasl.mechanisms,
    }
    try:
        session.sasl.handshake(request.body["mechanism"])
    except (errors.UnsupportedSaslMechanism, errors.IllegalSaslState) as error:
        logger.warning("%s: %s", request.client_host, error)
        response["error_code"] = error.code
        request.reply(response)
        request.disconnect_after_reply()
        return
    request.reply(response)
    session.raw_tokens = request.version < _TOKENS_WITH_HEADERS_FROM


def handle_authenticate(
    failures: LoginFailures, request: Request[SaslAuthenticateRequest, SaslAuthenticateResponse]
) -> None:
    """Answer SaslAuthenticate, which carries the mechanism's messages."""
    session = request.session
    if session.sasl is None:
        request.reply({"error_code": errors.IllegalSaslState.code, "error_message": None})
        request.disconnect_after_reply()
        return
    try:
        answer = session.sasl.authenticate(
            request.body["auth_bytes"], time.monotonic_ns() // 1_000_000
        )
    except (AuthenticationFailed, errors.IllegalSaslState) as error:
        _refuse(failures, request, error)
        return
    if session.raw_tokens:
        session.raw_tokens = not session.is_authenticated
        request.reply_encoded([len(answer).to_bytes(4, "big") + answer])
        return
    request.reply(
        {
            "error_code": errors.NONE,
            "error_message": None,
            "auth_bytes": answer,
            "session_lifetime_ms": session.sasl.session_lifetime_ms,
        }
    )


def _refuse(
    failures: LoginFailures,
    request: Request[SaslAuthenticateRequest, SaslAuthenticateResponse],
    error: Exception,
) -> None:
    logger.warning("%s could not log in: %s", request.client_host, error)
    code = getattr(error, "code", errors.SaslAuthenticationFailed.code)
    raw_tokens = request.session.raw_tokens

    def answer() -> None:
        if raw_tokens:
            request.disconnect()
        else:
            request.reply({"error_code": code, "error_message": str(error), "auth_bytes": b""})

    # Against guessing: read nothing more from this client, and delay its answer.
    request.disconnect_after_reply()
    delay_ms = failures.delay_ms(request.host, time.monotonic())
    asyncio.get_running_loop().call_later(delay_ms / 1000, request.run, answer)
