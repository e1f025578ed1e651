"""`/v1/alert-channels` and `/v1/alert-settings`: how a user is told of events."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Final

from aiohttp import web

from gateway.alerts.alert_sender import Told
from gateway.alerts.alert_store import Channel, TooManyChannels
from gateway.alerts.alert_texts import text_of
from gateway.alerts.channel_requests import (
    BadChannel,
    ShownChannel,
    read_channel,
    read_settings,
    shown_channel,
)
from gateway.alerts.quiet_hours import BadQuietHours
from gateway.http.ingest.ingest import Ingest
from gateway.http.requests.own_users import own_user
from gateway.http.requests.responses import COMMAND_BYTES_MAX, Refused, json_answer
from gateway.http.requests.services import Services
from gateway.http.routes.zone_routes import Changes, reasons_for
from gateway.users.auth import Identity
from waylog.observability.telemetry import now_ms

_PATH: Final = "/v1/alert-channels"
_ONE: Final = f"{_PATH}/{{channel}}"
_SETTINGS: Final = "/v1/alert-settings"
_REASONS: Final = reasons_for("alerts")


class AlertRoutes:
    """The handlers of channels and settings."""

    def __init__(self, services: Services, ingest: Ingest) -> None:
        self._services = services
        self._ingest = ingest
        self._changes = Changes()

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.get(_PATH, self._list, allow_head=False),
            web.post(_PATH, self._create),
            web.put(_ONE, self._change),
            web.delete(_ONE, self._remove),
            web.post(f"{_ONE}/test", self._test),
            web.get(_SETTINGS, self._settings, allow_head=False),
            web.put(_SETTINGS, self._set),
        ]

    async def _user(self, request: web.Request) -> Identity:
        return await own_user(request, self._services, _REASONS)

    async def _body(self, request: web.Request, identity: Identity) -> bytes:
        self._changes.take(identity)
        return bytes(await self._ingest.read_body(request, identity, COMMAND_BYTES_MAX))

    def _shown(self, user: str, channel_id: str, channel: Channel) -> ShownChannel:
        state = self._services.alerts.sender.state(user, channel_id)
        return shown_channel(channel_id, channel, state.told, state.error)

    async def _list(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        found = await asyncio.to_thread(self._services.alerts.store.channels, identity.user)
        return json_answer([self._shown(identity.user, *each) for each in found.items()])

    async def _found(self, request: web.Request, identity: Identity) -> tuple[str, Channel]:
        found = await asyncio.to_thread(self._services.alerts.store.channels, identity.user)
        channel_id = request.match_info["channel"]
        if channel_id not in found:
            raise Refused(404, "you have no such channel")
        return channel_id, found[channel_id]

    async def _create(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        channel = _read(await self._body(request, identity))
        return await self._put(identity, secrets.token_hex(8), channel, 201)

    async def _change(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        channel_id, _ = await self._found(request, identity)
        # The whole channel: secrets are not shown, so none goes to a new address by itself.
        return await self._put(identity, channel_id, _read(await self._body(request, identity)))

    async def _put(
        self, identity: Identity, channel_id: str, channel: Channel, status: int = 200
    ) -> web.Response:
        try:
            await asyncio.to_thread(
                self._services.alerts.store.put_channel,
                *(identity.user, channel_id, channel, now_ms()),
            )
        except TooManyChannels as error:
            raise Refused(409, str(error)) from error
        return json_answer(self._shown(identity.user, channel_id, channel), status)

    async def _remove(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        channel_id, _ = await self._found(request, identity)
        await asyncio.to_thread(
            self._services.alerts.store.remove_channel, identity.user, channel_id
        )
        return web.Response(status=204)

    async def _test(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        self._changes.take(identity)
        channel_id, channel = await self._found(request, identity)
        alerts = self._services.alerts
        settings = await asyncio.to_thread(alerts.store.settings, identity.user)
        message: dict[str, Any] = {"type": "test", "time": now_ms()}
        told = Told(secrets.token_hex(16), message, text_of("test", message, settings.language))
        await alerts.sender.send(identity.user, channel_id, channel, told)
        return json_answer(self._shown(identity.user, channel_id, channel))

    async def _settings(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        return json_answer(
            await asyncio.to_thread(self._services.alerts.store.settings, identity.user)
        )

    async def _set(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        try:
            settings = read_settings(await self._body(request, identity))
        except BadQuietHours as error:
            raise Refused(400, str(error)) from error
        await asyncio.to_thread(
            self._services.alerts.store.put_settings, identity.user, settings, now_ms()
        )
        return json_answer(settings)


def _read(body: bytes) -> Channel:
    try:
        return read_channel(body)
    except BadChannel as error:
        raise Refused(400, str(error)) from error
