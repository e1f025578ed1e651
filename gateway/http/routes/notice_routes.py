"""`/v1/devices/{device}/notices`: of which events of a device a user wants to be told."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from gateway.http.ingest.ingest import Ingest
from gateway.http.requests.authentication import known_user, require_device
from gateway.http.requests.responses import COMMAND_BYTES_MAX, Refused, json_answer
from gateway.http.requests.services import Services
from gateway.users.auth import Identity
from gateway.users.notice_choices import FENCE_KINDS, KINDS, TooManyChoices
from waylog.malformed import MALFORMED


class _Choice(msgspec.Struct):
    kinds: list[str]


class NoticeRoutes:
    """The handlers of a user's choices for one device."""

    def __init__(self, services: Services, ingest: Ingest) -> None:
        self._services = services
        self._ingest = ingest

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        path = "/v1/devices/{device}/notices"
        return [
            web.get(path, self._get, allow_head=False),
            web.put(path, self._put),
            web.delete(path, self._delete),
        ]

    async def _asked(self, request: web.Request) -> tuple[Identity, str, tuple[str, ...]]:
        """Return who asks, about which device, and what there is to choose."""
        identity = await known_user(
            request, "notices are for users who have signed in", by_session=True
        )
        device = request.match_info["device"]
        if identity.device is not None:
            raise Refused(403, "notices go to users and not to devices: sign in as the user")
        require_device(identity, device)
        owner = device.partition("/")[0]
        if owner != identity.user and not identity.rights.sees(owner):
            raise Refused(403, "notices are of the own devices and of friends'")
        if not await asyncio.to_thread(self._services.users.exists, identity.user):
            raise Refused(403, "only users of this platform can have notices")
        return identity, device, KINDS if owner == identity.user else FENCE_KINDS

    async def _get(self, request: web.Request) -> web.Response:
        identity, device, known = await self._asked(request)
        return await self._answer(identity, device, known)

    async def _put(self, request: web.Request) -> web.Response:
        identity, device, known = await self._asked(request)
        try:
            body = await self._ingest.read_body(request, identity, COMMAND_BYTES_MAX)
            kinds = msgspec.json.decode(body, type=_Choice).kinds
        except MALFORMED as error:
            raise Refused(400, f'{{"kinds": [...]}} is expected: {error}') from error
        unknown = sorted({*kinds} - {*known})
        if unknown:
            raise Refused(
                400,
                f"kinds of notices of this device are {', '.join(known)}, not {unknown[0][:50]!r}",
            )
        try:
            await asyncio.to_thread(
                self._services.users.notices.choose, identity.user, device, kinds
            )
        except TooManyChoices as error:
            raise Refused(400, str(error)) from error
        return await self._answer(identity, device, known)

    async def _delete(self, request: web.Request) -> web.Response:
        identity, device, _ = await self._asked(request)
        await asyncio.to_thread(self._services.users.notices.choose, identity.user, device, None)
        return web.Response(status=204)

    async def _answer(
        self, identity: Identity, device: str, known: tuple[str, ...]
    ) -> web.Response:
        chosen = await asyncio.to_thread(self._services.users.notices.of, identity.user, device)
        usual = known if device.partition("/")[0] == identity.user else ()
        kinds = usual if chosen is None else chosen
        return json_answer(
            {
                "device": device,
                "kinds": [kind for kind in known if kind in kinds],
                "chosen": chosen is not None,
            }
        )
