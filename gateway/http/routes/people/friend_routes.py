"""`/v1/friends`: users choose who sees their devices, and whose they no longer want to see.

A user may also ask to be shown the devices of another one, who shows them, declines, or blocks the
asker. To the asker a block looks like a request that nobody has answered.
"""

from __future__ import annotations

import asyncio
from types import EllipsisType
from typing import Final

import msgspec
from aiohttp import web

from gateway.http.ingest.ingest import Ingest
from gateway.http.requests.own_users import Reasons, own_user
from gateway.http.requests.past import checked_time
from gateway.http.requests.responses import COMMAND_BYTES_MAX, Refused, json_answer
from gateway.http.requests.services import Services
from gateway.http.routes.people.asked_terms import Time, metres_of
from gateway.shares.friend_requests import Declined, FriendRequest, TooManyRequests
from gateway.shares.share import Precision
from gateway.users.admission import QuotaExceeded
from gateway.users.auth import Identity
from gateway.users.database import OPERATOR
from gateway.users.rights import AlreadyOver, Showing
from waylog.malformed import MALFORMED
from waylog.observability.telemetry import now_ms

_PATH: Final = "/v1/friends"
FRIENDS_MAX: Final = 200

_REASONS: Final = Reasons(
    "friends are for users who have signed in",
    "a token of one device cannot see or change who is a friend",
    "only users of this platform have friends",
)


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    """How devices are to be shown; what is not named stays as it is."""

    precision: Precision | None = None
    metres: int | None = None
    until: Time | msgspec.UnsetType | None = msgspec.UNSET


class Friend(msgspec.Struct, frozen=True):
    """A user, since when (ms) positions are shown, how precisely, and until when (ms)."""

    user: str
    since: int
    precision: Precision = "exact"
    metres: int | None = None
    until: int | None = None


class Friends(msgspec.Struct, frozen=True):
    """The users who see one's devices, and those whose devices one sees."""

    shown_to: list[Friend]
    seen: list[Friend]


class OpenRequest(msgspec.Struct, frozen=True):
    """A request that waits for an answer: who asks, or is asked, since when and until when (ms)."""

    user: str
    time: int
    until: int


class FriendRequestLists(msgspec.Struct, frozen=True):
    """The requests to a user and those of the user that are open, and the users it has blocked."""

    received: list[OpenRequest]
    sent: list[OpenRequest]
    blocked: list[str]


class FriendRoutes:
    """The handlers of `/v1/friends`."""

    def __init__(self, services: Services, ingest: Ingest) -> None:
        self._services = services
        self._ingest = ingest

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of friends."""
        one = f"{_PATH}/{{user}}"
        return [
            web.get(_PATH, self._list, allow_head=False),
            web.put(one, self._show),
            web.delete(one, self._hide),
            web.delete(f"{one}/sight", self._look_away),
            web.get(f"{_PATH}/requests", self._requests, allow_head=False),
            web.post(f"{one}/request", self._ask),
            web.delete(f"{one}/request", self._take_back),
            web.post(f"{one}/decline", self._decline),
            web.put(f"{one}/block", self._block),
            web.delete(f"{one}/block", self._unblock),
        ]

    async def _user(self, request: web.Request) -> Identity:
        return await own_user(request, self._services, _REASONS)

    # --- who is shown what ------------------------------------------------------------------------

    async def _list(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        return json_answer(await asyncio.to_thread(self._friends, identity.user))

    def _friends(self, user: str) -> Friends:
        found = self._services.users.rights.friendships((user,))
        shown_to = [_friend(friend, each) for (own, friend), each in found.items() if own == user]
        blocked = self._services.users.friend_requests.blocked(user)
        seen = [
            _friend(other, each)
            for (other, own), each in found.items()
            if own == user and other not in blocked
        ]
        return Friends(*(sorted(each, key=lambda friend: friend.user) for each in (shown_to, seen)))

    async def _show(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        friend = request.match_info["user"]
        if friend == identity.user:
            raise Refused(400, "everybody sees their own devices", code="oneself")
        asked = await self._asked(request, identity)
        metres = None if asked.precision is None else metres_of(asked.precision, asked.metres)
        until = _until_of(asked)
        await self._require_user(identity, friend)
        rights = self._services.users.rights
        shown_to = await asyncio.to_thread(rights.friends_of, identity.user)
        if friend not in shown_to and len(shown_to) >= FRIENDS_MAX:
            reason = f"at most {FRIENDS_MAX} users see your devices"
            raise Refused(403, reason, code="too_many_friends")
        try:
            await asyncio.to_thread(
                lambda: rights.befriend(
                    identity.user,
                    friend,
                    precision=asked.precision,
                    metres=metres,
                    until=until,
                )
            )
        except AlreadyOver as error:
            raise Refused(400, str(error), code="past_end") from error
        except ValueError as error:
            raise Refused(400, str(error)) from error
        return self._changed()

    async def _asked(self, request: web.Request, identity: Identity) -> _Asked:
        try:
            body = await self._ingest.read_body(request, identity, COMMAND_BYTES_MAX)
            asked = msgspec.json.decode(body, type=_Asked) if body else _Asked()
        except MALFORMED as error:
            raise Refused(400, f"not what friends can be shown: {error}") from error
        if asked.precision is None and asked.metres is not None:
            raise Refused(400, 'metres belong to {"precision": "metres"}')
        return asked

    async def _require_user(self, identity: Identity, other: str) -> None:
        """Raise Refused if there is no such user; so many may be asked about in a minute."""
        try:
            self._services.admission.take_named_user(identity)
        except QuotaExceeded as error:
            headers = {"Retry-After": error.retry_after}
            raise Refused(429, str(error), headers, "too_often") from error
        if other == OPERATOR or not await asyncio.to_thread(self._services.users.exists, other):
            raise Refused(404, "there is no such user", code="no_such_user")

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

    # --- who asks whom ----------------------------------------------------------------------------

    async def _requests(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        return json_answer(await asyncio.to_thread(self._request_lists, identity.user))

    def _request_lists(self, user: str) -> FriendRequestLists:
        requests = self._services.users.friend_requests
        return FriendRequestLists(
            [_open_request(each) for each in requests.received(user)],
            [_open_request(each) for each in requests.sent(user)],
            requests.blocked(user),
        )

    async def _ask(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        user = request.match_info["user"]
        if user == identity.user:
            raise Refused(400, "everybody sees their own devices", code="oneself")
        await self._require_user(identity, user)
        users = self._services.users
        if identity.user in await asyncio.to_thread(users.rights.friends_of, user):
            raise Refused(409, "you see the devices of this user already", code="seen_already")
        try:
            is_news = await asyncio.to_thread(users.friend_requests.ask, user, identity.user)
        except Declined as error:
            wait_s = max(1, (error.until - now_ms()) // 1000)
            reason = "the user has declined: ask again in a week"
            headers = {"Retry-After": str(wait_s)}
            raise Refused(409, reason, headers, "declined") from error
        except TooManyRequests as error:
            raise Refused(403, str(error), code=error.code) from error
        push = self._services.web_push
        if is_news and push is not None:
            message = {"type": "friend_request", "user": identity.user, "time": now_ms()}
            push.notify(user, message, f"friend_request\0{identity.user}")
        return web.Response(status=204)

    async def _take_back(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        requests = self._services.users.friend_requests
        await asyncio.to_thread(requests.take_back, request.match_info["user"], identity.user)
        return web.Response(status=204)

    async def _decline(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        requests = self._services.users.friend_requests
        await asyncio.to_thread(requests.decline, identity.user, request.match_info["user"])
        return web.Response(status=204)

    async def _block(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        blocked = request.match_info["user"]
        if blocked == identity.user:
            raise Refused(400, "nobody blocks themselves", code="oneself")
        await self._require_user(identity, blocked)
        requests = self._services.users.friend_requests
        try:
            await asyncio.to_thread(requests.block, identity.user, blocked)
        except TooManyRequests as error:
            raise Refused(403, str(error), code=error.code) from error
        return self._changed()

    async def _unblock(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        requests = self._services.users.friend_requests
        await asyncio.to_thread(requests.unblock, identity.user, request.match_info["user"])
        return web.Response(status=204)


def _friend(user: str, shown: Showing) -> Friend:
    return Friend(user, shown.since, shown.precision, shown.metres, shown.until)


def _open_request(found: FriendRequest) -> OpenRequest:
    return OpenRequest(found.user, found.created, found.until)


def _until_of(asked: _Asked) -> int | EllipsisType | None:
    if isinstance(asked.until, msgspec.UnsetType):
        return ...
    return None if asked.until is None else checked_time("until", asked.until)
