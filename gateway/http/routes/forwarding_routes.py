"""`/v1/forwardings`: what a user has sent on to servers of its own."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web

from gateway.forwardings.requests import (
    BadForwarding,
    Resume,
    changed_forwarding,
    new_forwarding,
)
from gateway.forwardings.store import ForwardingsOff, Kept
from gateway.http.ingest.ingest import Ingest
from gateway.http.requests.own_users import Reasons, own_user
from gateway.http.requests.responses import COMMAND_BYTES_MAX, Refused, json_answer, unavailable
from gateway.http.requests.services import Services
from gateway.users.auth import Identity
from waylog.bounded_cache import BoundedCache
from waylog.forwarding.definition import Forwarding, changed
from waylog.forwarding.shown import shown
from waylog.kafka.clients import LogUnreachable
from waylog.malformed import MALFORMED
from waylog.network.token_bucket import TokenBucket

Result = TypeVar("Result")

FORWARDINGS_PER_USER_MAX: Final = 10
#: Changes that a user may make: one every six seconds, and so many at once.
_CHANGES_PER_S: Final = 1 / 6
_CHANGES_AT_ONCE: Final = 30
_USERS_MAX: Final = 10_000

_REASONS: Final = Reasons(
    "forwardings are for users: give name and token, or sign in",
    "forwardings send on all devices of a user: sign in as the user",
    "only users of this platform can have forwardings",
)

Known = dict[str, Kept]


async def ask_store(work: Callable[..., Result], *arguments: Any) -> Result:
    """Return what a method of ForwardingStore returns, in a thread; raises Refused."""
    try:
        return await asyncio.to_thread(work, *arguments)
    except ForwardingsOff as error:
        raise Refused(404, str(error)) from error
    except LogUnreachable as error:
        raise unavailable(f"the log does not answer: {error}") from error


class ForwardingRoutes:
    """The handlers of `/v1/forwardings`."""

    def __init__(self, services: Services, ingest: Ingest) -> None:
        self._services = services
        self._ingest = ingest
        self._store = services.forwardings
        # Two changes of a user must not be made by the same count of forwardings.
        self._changing = BoundedCache[str, asyncio.Lock](lambda _: asyncio.Lock(), _USERS_MAX)
        self._changes = BoundedCache[str, TokenBucket](
            lambda _: TokenBucket(_CHANGES_PER_S, burst=_CHANGES_AT_ONCE), _USERS_MAX
        )

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of forwardings."""
        one = "/v1/forwardings/{forwarding}"
        return [
            web.get("/v1/forwardings", self._list, allow_head=False),
            web.post("/v1/forwardings", self._create),
            web.get(one, self._show, allow_head=False),
            web.patch(one, self._change),
            web.delete(one, self._remove),
            web.post(f"{one}/pause", self._pause),
            web.post(f"{one}/resume", self._resume),
        ]

    async def _user(self, request: web.Request) -> Identity:
        return await own_user(request, self._services, _REASONS)

    async def _changing_user(self, request: web.Request) -> Identity:
        identity = await self._user(request)
        if not self._changes.get(identity.user).take():
            raise Refused(429, "too many changes of forwardings", {"Retry-After": "10"})
        return identity

    async def _found(self, request: web.Request, identity: Identity) -> tuple[str, Known]:
        known = await ask_store(self._store.of_user, identity.user)
        forwarding_id = request.match_info["forwarding"]
        if forwarding_id not in known:
            raise Refused(404, "you have no such forwarding")
        return forwarding_id, known

    async def _list(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        known = await ask_store(self._store.of_user, identity.user)
        return json_answer([shown(each, *found) for each, found in known.items()])

    async def _show(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        forwarding_id, known = await self._found(request, identity)
        return json_answer(shown(forwarding_id, *known[forwarding_id]))

    async def _create(self, request: web.Request) -> web.Response:
        identity = await self._changing_user(request)
        body = await self._ingest.read_body(request, identity, COMMAND_BYTES_MAX)
        forwarding = _read(new_forwarding, body, time.time_ns() // 1_000_000)
        async with self._changing.get(identity.user):
            known = await ask_store(self._store.of_user, identity.user)
            if len(known) >= FORWARDINGS_PER_USER_MAX:
                raise Refused(
                    409, f"a user has {FORWARDINGS_PER_USER_MAX} forwardings at most; delete one"
                )
            forwarding_id = secrets.token_hex(8)
            pause = await ask_store(self._store.put, identity.user, forwarding_id, forwarding)
        return json_answer(shown(forwarding_id, forwarding, {}, pause), 201)

    async def _change(self, request: web.Request) -> web.Response:
        identity = await self._changing_user(request)
        body = await self._ingest.read_body(request, identity, COMMAND_BYTES_MAX)
        now_ms = time.time_ns() // 1_000_000
        return await self._put(
            request, identity, lambda old: _read(changed_forwarding, old, body, now_ms)
        )

    async def _pause(self, request: web.Request) -> web.Response:
        # Not limited, since to stop must always be possible: a second pause writes nothing.
        identity = await self._user(request)
        return await self._put(
            request,
            identity,
            lambda old: old if old.paused_by else changed(old, paused_by=identity.user),
        )

    async def _resume(self, request: web.Request) -> web.Response:
        identity = await self._changing_user(request)
        body = await self._ingest.read_body(request, identity, COMMAND_BYTES_MAX)
        asked = _read(msgspec.json.decode, body, type=Resume) if body else Resume()
        since = {"since": time.time_ns() // 1_000_000} if asked.skip else {}
        return await self._put(
            *(request, identity, lambda old: changed(old, paused_by=None, **since)),
            resumes=True,
        )

    async def _put(
        self,
        request: web.Request,
        identity: Identity,
        change: Callable[[Forwarding], Forwarding],
        *,
        resumes: bool = False,
    ) -> web.Response:
        async with self._changing.get(identity.user):
            forwarding_id, known = await self._found(request, identity)
            kept = known[forwarding_id]
            if resumes and kept.pause is not None:
                raise Refused(409, f"an administrator has paused it: {kept.pause.reason}")
            forwarding = change(kept.forwarding)
            if forwarding is kept.forwarding:
                return json_answer(shown(forwarding_id, *kept))
            # Another server may be one that is paused, and the one before may have been.
            pause = await ask_store(self._store.put, identity.user, forwarding_id, forwarding)
        return json_answer(shown(forwarding_id, forwarding, kept.progress, pause))

    async def _remove(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        async with self._changing.get(identity.user):
            forwarding_id, _ = await self._found(request, identity)
            await ask_store(self._store.remove, identity.user, forwarding_id)
        return web.Response(status=204)


def _read(read: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
    try:
        return read(*arguments, **options)
    except (BadForwarding, *MALFORMED) as error:
        raise Refused(400, f"not a forwarding: {error}") from error
