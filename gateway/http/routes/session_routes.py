"""`/v1/session`: a browser signs in, asks who it is, signs out. `/v1/entrances` is for the guide.

The browser signs in with a one-time code (`waylog link`) or with user and token. It gets a cookie
that scripts cannot read and that is sent to this site's pages only, and only over TLS if the page
came over TLS. A second cookie, for this path only, marks the browser as known
(gateway.users.known_browsers).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec
from aiohttp import web

from gateway.http.ingest.ingest import Ingest
from gateway.http.requests.authentication import Credentials, reader, remote_of, verify
from gateway.http.requests.browsers import (
    is_of_other_site,
    require_own_page,
    same_origin,
    session_secret,
)
from gateway.http.requests.responses import Refused, json_answer, unauthorized
from gateway.http.requests.services import Services
from gateway.limits.failed_logins import TooManyFailedLogins
from gateway.users.auth import Identity
from gateway.users.browser_sessions import SESSION_LIFETIME_S, session_hash
from gateway.users.database import OPERATOR, UserStore
from gateway.users.known_browsers import LIFETIME_S
from waylog.malformed import MALFORMED

_PATH: Final = "/v1/session"
_BODY_BYTES_MAX: Final = 4096


class _SignIn(msgspec.Struct):
    code: str | None = None
    user: str = ""
    token: str = ""


class SessionRoutes:
    """The handlers of sessions and of the guide."""

    def __init__(self, services: Services, ingest: Ingest) -> None:
        self._services = services
        self._ingest = ingest

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of the session and of the guide."""
        return [
            web.get(_PATH, self._who, allow_head=False),
            web.post(_PATH, self._begin),
            web.delete(_PATH, self._end),
            web.get("/v1/entrances", self._device_endpoints, allow_head=False),
        ]

    async def _who(self, request: web.Request) -> web.Response:
        return json_answer(self._description(await reader(request)))

    async def _begin(self, request: web.Request) -> web.Response:
        # Login CSRF: no other page may sign the browser in unnoticed, as somebody else.
        if not same_origin(request) or is_of_other_site(request):
            raise Refused(403, "a page of another site may not sign in here")
        if request.content_type != "application/json":
            raise Refused(415, "application/json is expected")
        try:
            asked = msgspec.json.decode(
                await self._ingest.read_body(request, bytes_max=_BODY_BYTES_MAX), type=_SignIn
            )
        except MALFORMED as error:
            raise Refused(400, f"not a sign-in: {error}") from error
        identity, secret = await self._session(request, asked)
        answer = json_answer(self._description(identity))
        set_cookie = partial(
            answer.set_cookie,
            httponly=True,
            samesite="Strict",
            # The Origin comes from the browser itself: a reverse proxy may have terminated TLS.
            secure=request.headers.get("Origin", "").startswith("https://"),
        )
        known = self._services.known_browsers
        # Somebody with a device's token may not be the user.
        value = None if identity.device else known.cookie_value(identity.user)
        if value is not None:
            name = known.cookie_name(identity.user)
            set_cookie(name, value, max_age=LIFETIME_S, path=_PATH)
        set_cookie(self._services.session_cookie, secret, max_age=SESSION_LIFETIME_S, path="/")
        return answer

    async def _session(self, request: web.Request, asked: _SignIn) -> tuple[Identity, str]:
        users = self._services.users
        try:
            if asked.code is None:
                known = self._services.known_browsers
                party = known.party(asked.user, request.cookies) if asked.user else None
                identity = await verify(
                    request, Credentials(asked.user or None, asked.token), party
                )
                secret = await asyncio.to_thread(
                    users.sessions.begin, identity.user, identity.device, identity.credential
                )
                return identity, secret
            self._services.failed_logins.require_room(remote_of(request))
            found_secret = await asyncio.to_thread(_redeemed, users, asked.code)
        except TooManyFailedLogins as error:
            raise Refused(429, str(error), {"Retry-After": error.retry_after}) from error
        except KeyError as error:
            raise Refused(403, "only users of this platform can sign in") from error
        if found_secret is None:
            with suppress(TooManyFailedLogins):
                self._services.failed_logins.wrong(remote_of(request))
            raise unauthorized(
                "this link has been used, or is too old; `waylog link` prints a new one"
            )
        found = self._services.authenticator.authenticate_session(found_secret)
        if found is None:
            raise unauthorized("the user has been revoked")
        return found, found_secret

    async def _end(self, request: web.Request) -> web.Response:
        secret = session_secret(request)
        if secret is not None:
            require_own_page(request)
            sessions = self._services.users.sessions
            await asyncio.to_thread(sessions.end, session_hash(secret))
        answer = web.Response(status=204)
        answer.del_cookie(self._services.session_cookie, path="/")
        return answer

    def _description(self, identity: Identity) -> dict[str, object]:
        access = self._services.metrics_access.audience
        return {
            "user": None if identity.user == OPERATOR else identity.user,
            "device": identity.device,
            "admin": identity.admin,
            "open": self._services.authenticator.open_mode,
            "oversees": identity.admin or access != "admin",
        }

    async def _device_endpoints(self, request: web.Request) -> web.Response:
        identity = await reader(request)
        endpoints = self._services.device_endpoints
        if not identity.admin:
            endpoints = msgspec.structs.replace(endpoints, demo_token=None, command=None)
        return json_answer(endpoints)


def _redeemed(users: UserStore, code: str) -> str | None:
    """Return the secret of a new session for the code of a link; None for an invalid code."""
    user = users.sessions.redeem(code)
    return None if user is None else users.sessions.begin(user)
