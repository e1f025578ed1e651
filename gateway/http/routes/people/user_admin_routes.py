"""`/v1/admin/users`: administrators invite users, change what they may, and revoke them."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec
from aiohttp import web

from gateway.http.ingest.ingest import Ingest
from gateway.http.requests.authentication import known_user
from gateway.http.requests.browsers import url_of_platform
from gateway.http.requests.responses import Refused, json_answer
from gateway.http.requests.services import Services
from gateway.http.routes.bodies import asked_of
from gateway.users.auth import Identity
from gateway.users.browser_sessions import INVITATION_LIFETIME_S
from gateway.users.database import OPERATOR, UnknownUser, User, UserExists
from gateway.users.link_command import sign_in_link
from waylog.observability.telemetry import now_ms

logger = logging.getLogger(__name__)

_PATH: Final = "/v1/admin/users"


class _NewUser(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    admin: bool = False


class _Changes(msgspec.Struct, forbid_unknown_fields=True):
    admin: bool | msgspec.UnsetType = msgspec.UNSET
    may_send: bool | msgspec.UnsetType = msgspec.UNSET
    fixes_per_minute: int | msgspec.UnsetType | None = msgspec.UNSET
    devices_max: int | msgspec.UnsetType | None = msgspec.UNSET


class KnownUser(msgspec.Struct, frozen=True):
    """A user as administrators see it; nothing of where the user is."""

    name: str
    admin: bool
    created: int  # ms
    devices: int  # that have a token
    may_send: bool
    fixes_per_minute: int | None
    devices_max: int | None
    password: bool
    second_factor: bool


class Invitation(msgspec.Struct, frozen=True):
    """A link that signs a user in once, and until when (ms)."""

    user: str
    link: str
    until: int


class UserAdminRoutes:
    """The handlers of `/v1/admin/users`."""

    def __init__(self, services: Services, ingest: Ingest) -> None:
        self._services = services
        self._ingest = ingest

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of administrators for users."""
        return [
            web.get(_PATH, self._list, allow_head=False),
            web.post(_PATH, self._invite),
            web.post(f"{_PATH}/{{user}}/invitation", self._invite_again),
            web.patch(f"{_PATH}/{{user}}", self._change),
            web.delete(f"{_PATH}/{{user}}", self._revoke),
        ]

    async def _admin(self, request: web.Request) -> Identity:
        identity = await known_user(request, "this is for administrators", by_session=True)
        if not identity.admin:
            raise Refused(403, "this is for administrators")
        return identity

    def _named(self, request: web.Request, identity: Identity) -> str:
        """Return the user of the path, which is neither the asker nor the installation's own."""
        user = request.match_info["user"]
        if user == OPERATOR or not self._services.users.exists(user):
            raise Refused(404, "there is no such user")
        if user == identity.user:
            raise Refused(409, "another administrator has to do that: nobody locks themselves out")
        return user

    async def _list(self, request: web.Request) -> web.Response:
        await self._admin(request)
        return json_answer(await asyncio.to_thread(self._users))

    def _users(self) -> list[KnownUser]:
        store = self._services.users
        return [
            self._known(each)
            for each in store.users()
            if each.revoked is None and each.name != OPERATOR
        ]

    def _known(self, user: User) -> KnownUser:
        store = self._services.users
        rights = store.rights.of(user.name)
        return KnownUser(
            *(user.name, user.admin, user.created, len(user.devices), rights.may_send),
            *(rights.fixes_per_minute, rights.devices_max),
            store.password_of_user(user.name) is not None,
            store.second_factors.is_on(user.name),
        )

    async def _invite(self, request: web.Request) -> web.Response:
        identity = await self._admin(request)
        asked = await asked_of(request, self._ingest, _NewUser)
        users = self._services.users
        try:
            await asyncio.to_thread(users.add_invited, asked.name, asked.admin)
        except UserExists as error:
            raise Refused(409, "there is a user of that name already") from error
        except ValueError as error:
            raise Refused(400, str(error)) from error
        logger.info("%s has added the user %s", identity.user, asked.name)
        return await self._invitation(request, asked.name)

    async def _invite_again(self, request: web.Request) -> web.Response:
        identity = await self._admin(request)
        user = self._named(request, identity)
        logger.info("%s has made a link that signs %s in", identity.user, user)
        return await self._invitation(request, user)

    async def _invitation(self, request: web.Request, user: str) -> web.Response:
        sessions = self._services.users.sessions
        code = await asyncio.to_thread(sessions.new_code, user, INVITATION_LIFETIME_S)
        until = now_ms() + INVITATION_LIFETIME_S * 1000
        answer = json_answer(
            Invitation(user, sign_in_link(url_of_platform(request), code), until), 201
        )
        answer.headers["Cache-Control"] = "no-store"
        return answer

    async def _change(self, request: web.Request) -> web.Response:
        identity = await self._admin(request)
        user = self._named(request, identity)
        asked = await asked_of(request, self._ingest, _Changes)
        try:
            await asyncio.to_thread(self._applied, user, asked)
        except ValueError as error:
            raise Refused(400, str(error)) from error
        except UnknownUser as error:
            raise Refused(404, "there is no such user") from error
        return self._changed()

    def _applied(self, user: str, asked: _Changes) -> None:
        store = self._services.users
        rights = store.rights.of(user)
        per_minute, devices = asked.fixes_per_minute, asked.devices_max
        store.rights.set_quota(
            user,
            rights.fixes_per_minute if per_minute is msgspec.UNSET else per_minute,
            rights.devices_max if devices is msgspec.UNSET else devices,
        )
        if asked.may_send is not msgspec.UNSET:
            store.rights.set_sending(user, asked.may_send)
        if asked.admin is not msgspec.UNSET:
            store.set_admin(user, asked.admin)

    async def _revoke(self, request: web.Request) -> web.Response:
        identity = await self._admin(request)
        user = self._named(request, identity)
        try:
            await asyncio.to_thread(self._services.users.revoke, user)
        except UnknownUser as error:
            raise Refused(404, "there is no such user") from error
        logger.info("%s has revoked the user %s", identity.user, user)
        return self._changed()

    def _changed(self) -> web.Response:
        self._services.permissions.look()
        return web.Response(status=204)
