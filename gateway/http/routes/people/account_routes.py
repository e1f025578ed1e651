"""`/v1/account`: users see and change what they sign in with, and end their sessions."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Final

import msgspec
from aiohttp import web

from gateway.factors.passkeys import Passkey
from gateway.factors.second_factor import uri_of
from gateway.http.ingest.ingest import Ingest
from gateway.http.requests.accounts import Account, account_of, require_proof
from gateway.http.requests.browsers import set_session_cookie
from gateway.http.requests.responses import Refused, json_answer
from gateway.http.requests.services import Services
from gateway.http.routes.bodies import Asked, asked_of
from gateway.limits.failed_logins import TooManyFailedLogins
from gateway.users.browser_sessions import shown_id
from gateway.users.database import UnknownUser
from gateway.users.invitations import qr_picture

_PATH: Final = "/v1/account"
_SECOND_FACTOR: Final = f"{_PATH}/second-factor"


class _NewPassword(msgspec.Struct):
    new: str
    password: str = ""  # the present one


class _Proof(msgspec.Struct):
    password: str = ""


class _Code(msgspec.Struct):
    code: str


class OwnSession(msgspec.Struct, frozen=True):
    """A session of one's own; times in ms."""

    id: str
    created: int
    expires: int
    agent: str
    current: bool


class OwnAccount(msgspec.Struct, frozen=True):
    """What a user signs in with, and where the user is signed in."""

    user: str
    password: bool
    second_factor: bool
    recovery_codes: int
    passkeys: list[Passkey]
    sessions: list[OwnSession]


class AccountRoutes:
    """The handlers of `/v1/account`."""

    def __init__(self, services: Services, ingest: Ingest) -> None:
        self._services = services
        self._ingest = ingest

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of accounts, without those of passkeys."""
        return [
            web.get(_PATH, self._show, allow_head=False),
            web.put(f"{_PATH}/password", self._set_password),
            web.delete(f"{_PATH}/sessions", self._end_others),
            web.delete(f"{_PATH}/sessions/{{session}}", self._end_one),
            web.post(_SECOND_FACTOR, self._propose_factor),
            web.put(_SECOND_FACTOR, self._confirm_factor),
            web.delete(_SECOND_FACTOR, self._end_factor),
        ]

    async def _asked(self, request: web.Request, type_: type[Asked]) -> tuple[Account, Asked]:
        account = await account_of(request, self._services)
        return account, await asked_of(request, self._ingest, type_)

    async def _show(self, request: web.Request) -> web.Response:
        account = await account_of(request, self._services)
        return json_answer(await asyncio.to_thread(self._account, account))

    def _account(self, account: Account) -> OwnAccount:
        users, user = self._services.users, account.user
        current = shown_id(account.session.hash)
        return OwnAccount(
            user,
            users.password_of_user(user) is not None,
            users.second_factors.is_on(user),
            users.second_factors.recovery_codes_left(user),
            users.passkeys.of_user(user),
            [OwnSession(*each, each.id == current) for each in users.sessions.of_user(user)],
        )

    # --- password -------------------------------------------------------------------------------

    async def _set_password(self, request: web.Request) -> web.Response:
        account, asked = await self._asked(request, _NewPassword)
        await require_proof(request, account, asked.password)
        users = self._services.users
        try:
            await asyncio.to_thread(users.set_password, account.user, asked.new)
        except ValueError as error:
            raise Refused(400, str(error)) from error
        except UnknownUser as error:
            raise Refused(403, "only users of this platform have passwords") from error
        # Whoever knew the old one is signed out. So is this browser, which gets a new session.
        await asyncio.to_thread(users.sessions.end_of_user, account.user)
        self._services.authenticator.recheck()
        return await self._signed_in_anew(request, account)

    async def _signed_in_anew(self, request: web.Request, account: Account) -> web.Response:
        agent = request.headers.get("User-Agent", "")
        begin = partial(self._services.users.sessions.begin, account.user, agent=agent)
        answer = web.Response(status=204)
        set_session_cookie(request, answer, await asyncio.to_thread(begin))
        return answer

    # --- sessions -------------------------------------------------------------------------------

    async def _end_others(self, request: web.Request) -> web.Response:
        account = await account_of(request, self._services)
        end = partial(self._services.users.sessions.end_of_user, but=account.session.hash)
        await asyncio.to_thread(end, account.user)
        self._services.permissions.look()
        return web.Response(status=204)

    async def _end_one(self, request: web.Request) -> web.Response:
        account = await account_of(request, self._services)
        shown = request.match_info["session"]
        end = partial(self._services.users.sessions.end_of_user, shown=shown)
        if not await asyncio.to_thread(end, account.user):
            raise Refused(404, "you have no such session")
        self._services.permissions.look()
        return web.Response(status=204)

    # --- second factor --------------------------------------------------------------------------

    async def _propose_factor(self, request: web.Request) -> web.Response:
        account, asked = await self._asked(request, _Proof)
        await require_proof(request, account, asked.password)
        users, user = self._services.users, account.user
        if await asyncio.to_thread(users.password_of_user, user) is None:
            raise Refused(409, "a second factor goes with a password: set one first")
        secret = await asyncio.to_thread(users.second_factors.propose, user)
        if secret is None:
            raise Refused(409, "your second factor is on already")
        uri = uri_of(user, secret, f"Waylog {request.host}")
        picture = (await asyncio.to_thread(qr_picture, uri)).decode()
        answer = json_answer({"secret": secret, "uri": uri, "qr_code": picture}, 201)
        answer.headers["Cache-Control"] = "no-store"
        return answer

    async def _confirm_factor(self, request: web.Request) -> web.Response:
        account, asked = await self._asked(request, _Code)
        users, user = self._services.users, account.user
        failed_logins = self._services.failed_logins
        try:
            failed_logins.begin_second_factor(user)
        except TooManyFailedLogins as error:
            raise Refused(429, str(error), {"Retry-After": error.retry_after}) from error
        confirm = users.second_factors.confirm
        codes = await asyncio.to_thread(confirm, user, asked.code, time.time())
        if codes is None:
            raise Refused(400, "this code is wrong: is the clock of the phone right?")
        failed_logins.right_second_factor(user)
        # Sessions of whoever has had the password alone end.
        end = partial(users.sessions.end_of_user, but=account.session.hash)
        await asyncio.to_thread(end, user)
        self._services.authenticator.recheck()
        answer = json_answer({"recovery_codes": codes})
        answer.headers["Cache-Control"] = "no-store"
        return answer

    async def _end_factor(self, request: web.Request) -> web.Response:
        account, asked = await self._asked(request, _Proof)
        await require_proof(request, account, asked.password)
        await asyncio.to_thread(self._services.users.second_factors.forget, account.user)
        return web.Response(status=204)
