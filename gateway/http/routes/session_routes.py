"""`/v1/session`: a browser signs in, asks who it is, signs out. `/v1/entrances` is for the guide.

The browser signs in with a one-time code (`waylog link`), with user and token or password (and a
code of the second factor, where the user has one), or with a passkey. It gets a cookie that scripts
cannot read and that is sent to this site's pages only, and only over TLS if the page came over TLS.
A second cookie, for this path only, marks the browser as known (gateway.users.known_browsers).
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec
from aiohttp import web

from gateway.factors.passkeys import CHALLENGES_SECRET, PasskeyRefused
from gateway.factors.second_factor import is_recovery_code
from gateway.http.ingest.ingest import Ingest
from gateway.http.requests.authentication import Credentials, reader, remote_of, verify
from gateway.http.requests.browsers import (
    is_of_other_site,
    is_over_tls,
    require_own_page,
    same_origin,
    session_secret,
    set_session_cookie,
    site_of,
)
from gateway.http.requests.responses import Refused, json_answer, unauthorized
from gateway.http.requests.services import Services
from gateway.limits.failed_logins import TooManyFailedLogins
from gateway.users.auth import Identity
from gateway.users.browser_sessions import session_hash
from gateway.users.database import OPERATOR, TOKEN_PREFIX, UserStore
from gateway.users.known_browsers import LIFETIME_S
from waylog.malformed import MALFORMED

_PATH: Final = "/v1/session"
#: The answer of a passkey takes a few kilobytes.
_BODY_BYTES_MAX: Final = 16 * 1024


class _SignIn(msgspec.Struct):
    code: str | None = None
    user: str = ""
    token: str = ""
    second_factor: str = ""
    passkey: dict[str, Any] | None = None


class _SecondFactorNeeded(Exception):
    """The password is right, and is not enough."""


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
            web.post(f"{_PATH}/passkey-options", self._passkey_options),
            web.get("/v1/entrances", self._device_endpoints, allow_head=False),
        ]

    async def _who(self, request: web.Request) -> web.Response:
        return json_answer(self._description(await reader(request)))

    async def _begin(self, request: web.Request) -> web.Response:
        _require_own_page(request)
        if request.content_type != "application/json":
            raise Refused(415, "application/json is expected")
        try:
            asked = msgspec.json.decode(
                await self._ingest.read_body(request, bytes_max=_BODY_BYTES_MAX), type=_SignIn
            )
        except MALFORMED as error:
            raise Refused(400, f"not a sign-in: {error}") from error
        try:
            identity, secret = await self._session(request, asked)
        except _SecondFactorNeeded:
            answer = json_answer(
                {"error": "a code of your second factor is needed", "second_factor": True}, 401
            )
            answer.headers["WWW-Authenticate"] = 'Bearer realm="waylog"'
            return answer
        answer = json_answer(self._description(identity))
        known = self._services.known_browsers
        # Somebody with a device's token may not be the user.
        value = None if identity.device else known.cookie_value(identity.user)
        if value is not None:
            answer.set_cookie(
                *(known.cookie_name(identity.user), value),
                max_age=LIFETIME_S,
                path=_PATH,
                httponly=True,
                samesite="Strict",
                secure=is_over_tls(request),
            )
        set_session_cookie(request, answer, secret)
        return answer

    async def _session(self, request: web.Request, asked: _SignIn) -> tuple[Identity, str]:
        users = self._services.users
        agent = request.headers.get("User-Agent", "")
        try:
            if asked.passkey is not None:
                return await self._session_of_passkey(request, asked.passkey, agent)
            if asked.code is None:
                known = self._services.known_browsers
                party = known.party(asked.user, request.cookies) if asked.user else None
                credentials = Credentials(asked.user or None, asked.token)
                identity = await verify(request, credentials, party, first_factor=True)
                if not asked.token.startswith(TOKEN_PREFIX):
                    await self._require_second_factor(identity, asked.second_factor)
                secret = await asyncio.to_thread(
                    partial(users.sessions.begin, agent=agent),
                    *(identity.user, identity.device, identity.credential),
                )
                return identity, secret
            self._services.failed_logins.require_room(remote_of(request))
            found_secret = await asyncio.to_thread(_redeemed, users, asked.code, agent)
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
        return self._begun(found_secret)

    def _begun(self, secret: str) -> tuple[Identity, str]:
        found = self._services.authenticator.authenticate_session(secret)
        if found is None:
            raise unauthorized("the user has been revoked")
        return found, secret

    async def _require_second_factor(self, identity: Identity, code: str) -> None:
        factors, failed_logins = self._services.users.second_factors, self._services.failed_logins
        user = identity.user
        if not await asyncio.to_thread(factors.is_on, user):
            return
        if not code:
            raise _SecondFactorNeeded
        # Somebody with the password who guesses codes must not keep the owner from a recovery code.
        is_guessable = not is_recovery_code(code)
        if is_guessable:
            failed_logins.begin_second_factor(user)
        if not await asyncio.to_thread(factors.take, user, code, time.time()):
            self._services.metrics.unauthorized += 1
            raise unauthorized("this code is wrong, or has been used")
        if is_guessable:
            failed_logins.right_second_factor(user)

    async def _session_of_passkey(
        self, request: web.Request, answer: dict[str, Any], agent: str
    ) -> tuple[Identity, str]:
        users, failed_logins = self._services.users, self._services.failed_logins
        failed_logins.require_room(remote_of(request))
        key = users.rights.secret(CHALLENGES_SECRET)
        try:
            user, passkey = await asyncio.to_thread(
                users.passkeys.verified, key, site_of(request), answer
            )
        except PasskeyRefused as error:
            self._services.metrics.unauthorized += 1
            with suppress(TooManyFailedLogins):
                failed_logins.wrong(remote_of(request))
            raise unauthorized(str(error)) from error
        begin = partial(users.sessions.begin, passkey=passkey, agent=agent)
        return self._begun(await asyncio.to_thread(begin, user))

    async def _passkey_options(self, request: web.Request) -> web.Response:
        _require_own_page(request)
        users = self._services.users
        key = users.rights.secret(CHALLENGES_SECRET)
        site = site_of(request)
        return json_answer(await asyncio.to_thread(users.passkeys.request_options, key, site))

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
            # The page begins anew where it changes.
            "sight": identity.rights.sight,
        }

    async def _device_endpoints(self, request: web.Request) -> web.Response:
        identity = await reader(request)
        endpoints = self._services.device_endpoints
        if not identity.admin:
            endpoints = msgspec.structs.replace(endpoints, demo_token=None, command=None)
        return json_answer(endpoints)


def _redeemed(users: UserStore, code: str, agent: str) -> str | None:
    """Return the secret of a new session for the code of a link; None for an invalid code."""
    user = users.sessions.redeem(code)
    return None if user is None else users.sessions.begin(user, agent=agent)


def _require_own_page(request: web.Request) -> None:
    """Raise Refused for other pages: none may sign the browser in unnoticed, as somebody else."""
    if not same_origin(request) or is_of_other_site(request):
        raise Refused(403, "a page of another site may not sign in here")
