"""Changes of somebody's own account: by a session of the page, with a proof of who asks.

A session that was stolen, or left open, must not be enough to keep an account. So a change of what
one signs in with needs the password in the request, or a session that has just begun.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from aiohttp import web

from gateway.http.requests.authentication import Credentials, verify
from gateway.http.requests.browsers import session_of, session_secret
from gateway.http.requests.responses import Refused, unauthorized
from gateway.http.requests.services import Services
from gateway.users.browser_sessions import Session, session_hash
from gateway.users.database import OPERATOR
from waylog.observability.telemetry import now_ms

#: For how long a session that has begun is a proof of who asks.
FRESH_MS: Final = 10 * 60_000


class Account(NamedTuple):
    """A user who has signed in, and the session."""

    user: str
    session: Session


async def account_of(request: web.Request, services: Services) -> Account:
    """Return whose account a request is about. Raises Refused."""
    identity = session_of(request)
    secret = session_secret(request)
    if identity is None or secret is None:
        raise unauthorized("an account is for users who have signed in with a browser")
    if identity.device is not None:
        raise Refused(403, "a token of one device has no account")
    if identity.user == OPERATOR:
        raise Refused(403, "sign in as a user (`waylog link USER` prints a link)")
    session = await asyncio.to_thread(services.users.sessions.find, session_hash(secret))
    if session is None:
        raise unauthorized("the session has ended")
    return Account(identity.user, session)


async def require_proof(request: web.Request, account: Account, password: str) -> None:
    """Raise Refused unless the request shows who asks: by the password, or a new session."""
    if not password:
        if now_ms() - account.session.created > FRESH_MS:
            raise Refused(403, "your password is needed, or sign in again")
        return
    try:
        await verify(request, Credentials(account.user, password), first_factor=True)
    except Refused as error:
        # Not 401: who asks is signed in.
        status = 403 if error.status == 401 else error.status
        raise Refused(status, "the password is wrong", error.headers) from error
