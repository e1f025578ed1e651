"""`/v1/alert-channels` and `/v1/alert-settings`: how a user is told of events."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from gateway.alerts.alert_sender import Told
from gateway.alerts.alert_store import Channel, TooManyChannels
from gateway.alerts.alert_texts import code_texts, text_of
from gateway.alerts.channel_requests import (
    EMAIL,
    BadChannel,
    ShownChannel,
    kinds,
    read_channel,
    read_settings,
    shown_channel,
)
from gateway.alerts.confirmation import (
    CodeRefused,
    Pending,
    another_code,
    attempt,
    new_code,
    sent,
)
from gateway.alerts.quiet_hours import BadQuietHours
from gateway.http.ingest.ingest import Ingest
from gateway.http.requests.own_users import own_user
from gateway.http.requests.responses import COMMAND_BYTES_MAX, Refused, json_answer
from gateway.http.requests.services import Services
from gateway.http.routes.zone_routes import Changes, reasons_for
from gateway.users.auth import Identity
from waylog.malformed import MALFORMED
from waylog.observability.telemetry import now_ms

_PATH: Final = "/v1/alert-channels"
_ONE: Final = f"{_PATH}/{{channel}}"
_CONFIRMATION: Final = f"{_ONE}/confirmation"
_SETTINGS: Final = "/v1/alert-settings"
_REASONS: Final = reasons_for("alerts")


class _Code(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: str


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
            web.get(f"{_PATH}/kinds", self._kinds, allow_head=False),
            web.post(_CONFIRMATION, self._send_code),
            web.put(_CONFIRMATION, self._confirm),
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
        channel = self._read(await self._body(request, identity))
        return await self._put(identity, secrets.token_hex(8), channel, None, 201)

    async def _change(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        channel_id, before = await self._found(request, identity)
        # The whole channel: secrets are not shown, so none goes to a new address by itself.
        channel = self._read(await self._body(request, identity))
        return await self._put(identity, channel_id, channel, before)

    async def _put(
        self,
        identity: Identity,
        channel_id: str,
        channel: Channel,
        before: Channel | None,
        status: int = 200,
    ) -> web.Response:
        is_new_mailbox = channel.kind == EMAIL and (before is None or before.url != channel.url)
        if is_new_mailbox:
            channel = msgspec.structs.replace(channel, pending=new_code(now_ms()))
        elif channel.kind == EMAIL and before is not None:
            channel = msgspec.structs.replace(channel, pending=before.pending)
        try:
            await asyncio.to_thread(
                self._services.alerts.store.put_channel,
                *(identity.user, channel_id, channel, now_ms()),
            )
        except TooManyChannels as error:
            raise Refused(409, str(error)) from error
        if is_new_mailbox:
            await self._tell_code(identity.user, channel_id, channel)
        return json_answer(self._shown(identity.user, channel_id, channel), status)

    async def _tell_code(self, user: str, channel_id: str, channel: Channel) -> bool:
        alerts = self._services.alerts
        settings = await asyncio.to_thread(alerts.store.settings, user)
        assert channel.pending is not None
        texts = code_texts(channel.pending.code, settings.language)
        return await alerts.sender.send_code(user, channel_id, channel, texts)

    async def _kinds(self, request: web.Request) -> web.Response:
        await self._user(request)
        return json_answer(kinds(sends_email=self._sends_email))

    async def _send_code(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        self._changes.take(identity)
        channel = await self._changed_pending(
            request, identity, lambda pending: another_code(pending, now_ms())
        )
        channel_id = request.match_info["channel"]
        if await self._tell_code(identity.user, channel_id, channel):
            await self._end_former_code(identity.user, channel_id, channel)
        return json_answer(self._shown(identity.user, channel_id, channel))

    async def _end_former_code(self, user: str, channel_id: str, told: Channel) -> None:
        """Take the newest code alone: it has been sent."""
        assert told.pending is not None
        code = told.pending.code

        def changed(channel: Channel) -> Channel:
            # Meanwhile it may have been confirmed, or have been sent yet another code.
            if channel.pending is None or channel.pending.code != code:
                return channel
            return msgspec.structs.replace(channel, pending=sent(channel.pending))

        store = self._services.alerts.store
        await asyncio.to_thread(store.change_channel, user, channel_id, changed)

    async def _confirm(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        body = await self._body(request, identity)
        try:
            code = msgspec.json.decode(body, type=_Code).code.strip()
        except MALFORMED as error:
            raise Refused(400, f"not a code: {error}") from None
        try:
            channel = await self._changed_pending(
                request, identity, lambda pending: attempt(pending, code, now_ms())
            )
        except CodeRefused as error:
            raise Refused(409, str(error)) from error
        if channel.pending is not None:
            raise Refused(409, "this is not the code that was sent there")
        channel_id = request.match_info["channel"]
        self._services.alerts.sender.state(identity.user, channel_id).error = None
        return json_answer(self._shown(identity.user, channel_id, channel))

    async def _changed_pending(
        self,
        request: web.Request,
        identity: Identity,
        change: Callable[[Pending], Pending | None],
    ) -> Channel:
        """Change what a mailbox waits for. Raises Refused if it is confirmed or not there."""

        def changed(channel: Channel) -> Channel:
            if channel.pending is None:
                raise Refused(409, "the channel needs no code")
            return msgspec.structs.replace(channel, pending=change(channel.pending))

        found = await asyncio.to_thread(
            self._services.alerts.store.change_channel,
            *(identity.user, request.match_info["channel"], changed),
        )
        if found is None:
            raise Refused(404, "you have no such channel")
        return found

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

    @property
    def _sends_email(self) -> bool:
        return self._services.alerts.sender.email is not None

    def _read(self, body: bytes) -> Channel:
        try:
            return read_channel(body, sends_email=self._sends_email)
        except BadChannel as error:
            raise Refused(400, str(error)) from error
