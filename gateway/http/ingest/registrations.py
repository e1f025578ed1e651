"""`POST /api/mobile_app/registrations`: Home Assistant's companion app gets its webhook.

https://developers.home-assistant.io/docs/api/native-app-integration/setup. Signed in as a user, the
app names its device. It is given a webhook id (a token for this device alone) and, if it can
encrypt, the user's key.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Final

import msgspec
from aiohttp import web

from gateway.formats.characters import chosen_name
from gateway.http.ingest.ingest import Ingest
from gateway.http.requests.authentication import known_user
from gateway.http.requests.responses import COMMAND_BYTES_MAX, Refused, json_answer
from gateway.http.requests.services import Services
from gateway.users.admission import QuotaExceeded
from gateway.users.database import TooManyTokens, UserStore
from waylog.malformed import MALFORMED

#: Device tokens of one user; at this number no more are made here.
TOKENS_MAX: Final = 200
_NAME_CHARACTERS_MAX: Final = 128


class _Registration(msgspec.Struct):
    device_name: str
    supports_encryption: bool = False


class Registrations:
    """The handler of registrations."""

    def __init__(self, services: Services, ingest: Ingest) -> None:
        self._services = services
        self._ingest = ingest

    def routes(self) -> list[web.RouteDef]:
        """Return the route."""
        return [web.post("/api/mobile_app/registrations", self._register)]

    async def _register(self, request: web.Request) -> web.Response:
        identity = await known_user(request, "registering a device needs a user's credentials")
        if identity.device is not None:
            raise Refused(403, "a token of one device cannot register another")
        users = self._services.users
        if not await asyncio.to_thread(users.exists, identity.user):
            raise Refused(403, "only users of this platform can register a device")
        try:
            body = await self._ingest.read_body(request, identity, COMMAND_BYTES_MAX)
            asked = msgspec.json.decode(body, type=_Registration)
        except MALFORMED as error:
            raise Refused(400, f"not a registration: {error}") from error
        try:
            self._services.admission.take_registration(identity)
        except QuotaExceeded as error:
            raise Refused(429, str(error), {"Retry-After": error.retry_after}) from error
        name = chosen_name(asked.device_name)[:_NAME_CHARACTERS_MAX]
        if not name:
            raise Refused(400, "device_name is empty")
        try:
            given = await asyncio.to_thread(
                _registered, users, identity.user, name, asked.supports_encryption
            )
        except TooManyTokens as error:
            raise Refused(
                403,
                f"devices of this user have {TOKENS_MAX} tokens: "
                "`waylog device revoke` takes those of a device away",
            ) from error
        return json_answer(given, 201)


def _registered(users: UserStore, user: str, device: str, encrypts: bool) -> dict[str, Any]:
    secret = None
    if encrypts:
        secret = users.rights.of(user).encryption_key
        if secret is None:
            secret = secrets.token_hex(32)
            users.rights.set_encryption_key(user, secret)
    return {
        "cloudhook_url": None,
        "remote_ui_url": None,
        "secret": secret,
        "webhook_id": users.add_token(user, device, devices_tokens_max=TOKENS_MAX),
    }
