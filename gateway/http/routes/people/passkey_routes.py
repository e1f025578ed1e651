"""`/v1/account/passkeys`: users add passkeys to their accounts, and remove them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

import msgspec
from aiohttp import web

from gateway.factors.passkeys import CHALLENGES_SECRET, PasskeyRefused
from gateway.http.ingest.ingest import Ingest
from gateway.http.requests.accounts import account_of, require_proof
from gateway.http.requests.browsers import site_of
from gateway.http.requests.responses import Refused, json_answer
from gateway.http.requests.services import Services
from gateway.http.routes.bodies import asked_of

_PATH: Final = "/v1/account/passkeys"
_NAME_CHARACTERS_MAX: Final = 100


class _Proof(msgspec.Struct):
    password: str = ""


class _NewPasskey(msgspec.Struct):
    passkey: dict[str, Any]
    name: str = ""


class PasskeyRoutes:
    """The handlers of `/v1/account/passkeys`."""

    def __init__(self, services: Services, ingest: Ingest) -> None:
        self._services = services
        self._ingest = ingest

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of an account's passkeys."""
        return [
            web.post(f"{_PATH}/options", self._options),
            web.post(_PATH, self._add),
            web.delete(f"{_PATH}/{{passkey}}", self._remove),
        ]

    def _key(self) -> bytes:
        return self._services.users.rights.secret(CHALLENGES_SECRET)

    async def _options(self, request: web.Request) -> web.Response:
        account = await account_of(request, self._services)
        asked = await asked_of(request, self._ingest, _Proof)
        await require_proof(request, account, asked.password)
        options = self._services.users.passkeys.creation_options
        site = site_of(request)
        return json_answer(await asyncio.to_thread(options, self._key(), account.user, site))

    async def _add(self, request: web.Request) -> web.Response:
        account = await account_of(request, self._services)
        asked = await asked_of(request, self._ingest, _NewPasskey, "no passkey")
        name = " ".join(asked.name.split())[:_NAME_CHARACTERS_MAX]
        add = partial(self._services.users.passkeys.add, name=name, answer=asked.passkey)
        try:
            # The question was asked of whoever has shown a proof, and names the user.
            made = await asyncio.to_thread(add, self._key(), account.user, site_of(request))
        except PasskeyRefused as error:
            raise Refused(400, str(error)) from error
        return json_answer(made, 201)

    async def _remove(self, request: web.Request) -> web.Response:
        account = await account_of(request, self._services)
        passkey = request.match_info["passkey"]
        users = self._services.users
        if not await asyncio.to_thread(users.passkeys.remove, account.user, passkey):
            raise Refused(404, "you have no such passkey")
        # What it began ends with it.
        end = partial(users.sessions.end_of_user, passkey=passkey, but="")
        await asyncio.to_thread(end, account.user)
        self._services.permissions.look()
        return web.Response(status=204)
