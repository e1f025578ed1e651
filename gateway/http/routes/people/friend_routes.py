"""`/v1/friends`: users choose who sees their devices, and whose they no longer want to see."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from aiohttp import web

from gateway.http.requests.own_users import Reasons, own_user
from gateway.http.requests.responses import Refused, json_answer
from gateway.http.requests.services import Services
from gateway.users.admission import QuotaExceeded
from gateway.users.auth import Identity
from gateway.users.database import OPERATOR

_PATH: Final = "/v1/friends"
FRIENDS_MAX: Final = 200

_REASONS: Final = Reasons(
    "friends are for users who have signed in",
    "a token of one device cannot see or change who is a friend",
    "only users of this platform have friends",
)


class Friend(msgspec.Struct, frozen=True):
    """A user, and since when (ms) positions are shown."""

    user: str
    since: int


class Friends(msgspec.Struct, frozen=True):
    """The users who see one's devices, and those whose devices one sees."""

    shown_to: list[Friend]
    seen: list[Friend]


class FriendRoutes:
    """The handlers of `/v1/friends`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of friends."""
        return [
            web.get(_PATH, self._list, allow_head=False),
            web.put(f"{_PATH}/{{user}}", self._show),
            web.delete(f"{_PATH}/{{user}}", self._hide),
            web.delete(f"{_PATH}/{{user}}/sight", self._look_away),
        ]

    async def _user(self, request: web.Request) -> Identity:
        return await own_user(request, self._services, _REASONS)

    async def _list(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        return json_answer(await asyncio.to_thread(self._friends, identity.user))

    def _friends(self, user: str) -> Friends:
        found = self._services.users.rights.friendships((user,))
        shown_to = [Friend(friend, since) for (own, friend), since in found.items() if own == user]
        seen = [Friend(other, since) for (other, own), since in found.items() if own == user]
        return Friends(*(sorted(each, key=lambda friend: friend.user) for each in (shown_to, seen)))

    async def _show(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        friend = request.match_info["user"]
        if friend == identity.user:
            raise Refused(400, "everybody sees their own devices")
        users = self._services.users
        try:
            # Also a bound on finding out which users there are.
            self._services.admission.take_registration(identity)
        except QuotaExceeded as error:
            raise Refused(429, str(error), {"Retry-After": error.retry_after}) from error
        if friend == OPERATOR or not await asyncio.to_thread(users.exists, friend):
            raise Refused(404, "there is no such user")
        if len(await asyncio.to_thread(users.rights.friends_of, identity.user)) >= FRIENDS_MAX:
            raise Refused(403, f"at most {FRIENDS_MAX} users see your devices")
        await asyncio.to_thread(users.rights.befriend, identity.user, friend)
        return self._changed()

    async def _hide(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        friend = request.match_info["user"]
        await asyncio.to_thread(self._services.users.rights.unfriend, identity.user, friend)
        return self._changed()

    async def _look_away(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        other = request.match_info["user"]
        await asyncio.to_thread(self._services.users.rights.unfriend, other, identity.user)
        return self._changed()

    def _changed(self) -> web.Response:
        # Open streams of this process are told now, those of others when they look.
        self._services.permissions.look()
        return web.Response(status=204)
