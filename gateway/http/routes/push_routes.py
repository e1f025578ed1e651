"""`/v1/push/...`: subscriptions of a page to notifications of its user's arrivals."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from aiohttp import web

from gateway.http.ingest.ingest import Ingest
from gateway.http.requests.own_users import Reasons, own_user
from gateway.http.requests.responses import COMMAND_BYTES_MAX, Refused, json_answer
from gateway.http.requests.services import Services
from gateway.notices.web_push import BadSubscription, Subscription, WebPush
from gateway.users.auth import Identity
from waylog.malformed import MALFORMED

_REASONS: Final = Reasons(
    "notifications are for users who have signed in",
    "notifications tell of all devices of a user: sign in as the user",
    "only users of this platform can have notifications",
    operator=None,
)


class _Endpoint(msgspec.Struct):
    endpoint: str


class PushRoutes:
    """The handlers of `/v1/push/...`."""

    def __init__(self, services: Services, ingest: Ingest) -> None:
        self._services = services
        self._ingest = ingest

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of the key and of subscriptions."""
        return [
            web.get("/v1/push/key", self._key, allow_head=False),
            web.post("/v1/push/subscriptions", self._subscribe),
            web.delete("/v1/push/subscriptions", self._unsubscribe),
        ]

    def _push(self) -> WebPush:
        push = self._services.web_push
        if push is None or not push.enabled:
            raise Refused(404, "notifications are off here (waylog gateway --push-contact)")
        return push

    async def _user(self, request: web.Request) -> Identity:
        return await own_user(request, self._services, _REASONS)

    async def _key(self, _: web.Request) -> web.Response:
        return json_answer({"key": self._push().public_key()})

    async def _subscribe(self, request: web.Request) -> web.Response:
        push = self._push()
        identity = await self._user(request)
        try:
            body = await self._ingest.read_body(request, identity, COMMAND_BYTES_MAX)
            subscription = msgspec.json.decode(body, type=Subscription)
            await asyncio.to_thread(push.subscribe, identity.user, subscription)
        except (*MALFORMED, BadSubscription) as error:
            raise Refused(400, f"not a subscription: {error}") from error
        return json_answer({"subscribed": True}, 201)

    async def _unsubscribe(self, request: web.Request) -> web.Response:
        push = self._push()
        identity = await self._user(request)
        try:
            asked = msgspec.json.decode(
                await self._ingest.read_body(request, identity, COMMAND_BYTES_MAX), type=_Endpoint
            )
        except MALFORMED as error:
            raise Refused(400, f"the endpoint is missing: {error}") from error
        await asyncio.to_thread(push.unsubscribe, identity.user, asked.endpoint)
        return web.Response(status=204)
