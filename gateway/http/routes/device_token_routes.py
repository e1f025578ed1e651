"""`/v1/device-tokens`: users make tokens of their own devices, with what sets up an app.

Only the user may, by name and token or password, or by a session of the user: a token of one
device would otherwise make itself another, which outlives it.
"""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from gateway.formats.characters import chosen_name
from gateway.http.ingest.ingest import Ingest
from gateway.http.ingest.registrations import TOKENS_MAX
from gateway.http.requests.browsers import url_of_platform
from gateway.http.requests.own_users import Reasons, own_user
from gateway.http.requests.responses import COMMAND_BYTES_MAX, Refused, json_answer
from gateway.http.requests.services import Services
from gateway.users.admission import QuotaExceeded
from gateway.users.app_setups import SETUPS, AppSetup, NoMqtt, PhoneDevice, Platform
from gateway.users.auth import Identity
from gateway.users.database import DEVICE_NAME, TooManyTokens
from waylog.config import Endpoint
from waylog.malformed import MALFORMED

_PATH: Final = "/v1/device-tokens"

_REASONS: Final = Reasons(
    "tokens of devices are for users who have signed in",
    "a token of one device cannot see, make or revoke tokens",
    "only users of this platform can have devices",
)


class _Asked(msgspec.Struct):
    name: str
    app: str


class NewDeviceToken(msgspec.Struct, frozen=True):
    """The answer to a POST: the token is in no other answer."""

    device: str
    token: str
    setup: AppSetup


class DeviceTokenRoutes:
    """The handlers of `/v1/device-tokens`."""

    def __init__(self, services: Services, ingest: Ingest) -> None:
        self._services = services
        self._ingest = ingest

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of device tokens."""
        return [
            web.get(_PATH, self._list, allow_head=False),
            web.post(_PATH, self._create),
            web.delete(f"{_PATH}/{{name}}", self._revoke),
        ]

    async def _user(self, request: web.Request) -> Identity:
        return await own_user(request, self._services, _REASONS)

    async def _list(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        return json_answer(
            await asyncio.to_thread(self._services.users.device_tokens, identity.user)
        )

    async def _create(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        try:
            body = await self._ingest.read_body(request, identity, COMMAND_BYTES_MAX)
            asked = msgspec.json.decode(body, type=_Asked)
        except MALFORMED as error:
            raise Refused(400, f"not a device with its app: {error}") from error
        name = chosen_name(asked.name)
        if DEVICE_NAME.fullmatch(name) is None:
            raise Refused(400, "name must have 1 to 128 characters")
        if asked.app not in SETUPS:
            raise Refused(400, f"app must be one of {', '.join(SETUPS)}")
        platform = self._platform(request)
        if asked.app == "owntracks_mqtt" and platform.mqtt is None:
            raise Refused(409, "this platform has no MQTT listener: take owntracks_http")
        try:
            self._services.admission.take_registration(identity)
            made = await asyncio.to_thread(self._made, identity.user, name, asked.app, platform)
        except QuotaExceeded as error:
            raise Refused(429, str(error), {"Retry-After": error.retry_after}) from error
        except NoMqtt as error:
            raise Refused(409, str(error)) from error
        except TooManyTokens as error:
            raise Refused(
                403, f"your devices have {TOKENS_MAX} tokens: revoke those of some"
            ) from error
        answer = json_answer(made, 201)
        answer.headers["Cache-Control"] = "no-store"
        return answer

    def _made(self, user: str, name: str, app: str, platform: Platform) -> NewDeviceToken:
        users = self._services.users
        token = users.add_token(user, name, devices_tokens_max=TOKENS_MAX)
        key = users.rights.of(user).encryption_key
        setup = SETUPS[app](platform, PhoneDevice(user, name, token, key))
        return NewDeviceToken(f"{user}/{name}", token, setup)

    def _platform(self, request: web.Request) -> Platform:
        """Return how phones reach the platform: as the asker does."""
        url = url_of_platform(request)
        endpoints = self._services.device_endpoints
        port = endpoints.mqtts_port or endpoints.mqtt_port
        host = urlsplit(url).hostname
        if port is None or host is None:
            return Platform(url)
        return Platform(url, Endpoint(host, port), tls=endpoints.mqtts_port is not None)

    async def _revoke(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        name = request.match_info["name"]
        if not await asyncio.to_thread(self._services.users.revoke_device, identity.user, name):
            raise Refused(404, f"your device {name[:128]!r} has no token")
        return web.Response(status=204)
