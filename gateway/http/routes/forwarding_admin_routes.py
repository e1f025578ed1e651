"""`/v1/admin/forwardings`: administrators see where users' fixes are sent on, and stop it.

What a server has complained about can be paused for one forwarding, a user, a server, or for a user
at a server. Each change is a line of the log that says who made it.
"""

from __future__ import annotations

import logging
import secrets
import time
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import web

from gateway.http.ingest.ingest import Ingest
from gateway.http.requests.authentication import known_user
from gateway.http.requests.responses import COMMAND_BYTES_MAX, Refused, json_answer
from gateway.http.requests.services import Services
from gateway.http.routes.forwarding_routes import ask_store
from gateway.users.auth import Identity
from waylog.forwarding.pauses import PAUSES_MAX, host_of, new_pause, shown_pause, usual_host
from waylog.forwarding.shown import shown, shown_to_administrators
from waylog.malformed import MALFORMED

logger = logging.getLogger(__name__)

_PATH: Final = "/v1/admin/forwardings"
_PAUSES: Final = "/v1/admin/forwarding-pauses"
#: Forwardings of one answer, but for the last user's.
_LISTED: Final = 1_000


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request for a pause."""

    reason: str
    user: str | None = None
    host: str | None = None
    forwarding: str | None = None


class _Page(NamedTuple):
    """Forwardings with what administrators are shown, and where the next ones begin."""

    rows: list[dict[str, Any]]
    next: str | None


class ForwardingAdminRoutes:
    """The handlers of `/v1/admin/forwardings` and of `/v1/admin/forwarding-pauses`."""

    def __init__(self, services: Services, ingest: Ingest) -> None:
        self._ingest = ingest
        self._store = services.forwardings

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, each for administrators only."""
        return [
            web.get(_PATH, self._list, allow_head=False),
            web.delete(_PATH, self._remove_all),
            web.delete(f"{_PATH}/{{user}}/{{forwarding}}", self._remove),
            web.get(_PAUSES, self._list_pauses, allow_head=False),
            web.post(_PAUSES, self._pause),
            web.delete(f"{_PAUSES}/{{pause}}", self._resume),
        ]

    async def _administrator(self, request: web.Request) -> Identity:
        identity = await known_user(request, "this is for administrators: Basic or Bearer")
        if not identity.admin:
            raise Refused(403, "this is for administrators (waylog user add --admin)")
        return identity

    async def _list(self, request: web.Request) -> web.Response:
        await self._administrator(request)
        query = request.query
        page = await self._page(query.get("user"), query.get("host"), query.get("after", ""))
        return json_answer({"forwardings": page.rows, "next": page.next})

    async def _page(self, user: str | None, host: str | None, after: str) -> _Page:
        if user is not None:
            found = {user: await ask_store(self._store.of_user, user)}
        else:
            found = await ask_store(self._store.of_users, after, _LISTED)
        rows = [
            shown_to_administrators(owner, shown(each, *kept))
            for owner, of_user in found.items()
            for each, kept in of_user.items()
            if host is None or host_of(kept.forwarding.url) == usual_host(host)
        ]
        seen = sum(map(len, found.values()))
        return _Page(rows, max(found) if user is None and seen >= _LISTED else None)

    async def _remove(self, request: web.Request) -> web.Response:
        administrator = await self._administrator(request)
        user, forwarding_id = request.match_info["user"], request.match_info["forwarding"]
        if forwarding_id not in await ask_store(self._store.of_user, user):
            raise Refused(404, f"{user!r} has no such forwarding")
        await self._end(administrator, user, forwarding_id)
        return web.Response(status=204)

    async def _remove_all(self, request: web.Request) -> web.Response:
        administrator = await self._administrator(request)
        user, host = request.query.get("user"), request.query.get("host")
        if user is None and host is None:
            raise Refused(400, "say whose forwardings end, or to which server: ?user=, ?host=")
        count, after = 0, ""
        while True:
            page = await self._page(user, host, after)
            for row in page.rows:
                await self._end(administrator, row["user"], row["id"])
            count += len(page.rows)
            if page.next is None:
                return json_answer({"removed": count})
            after = page.next

    async def _end(self, administrator: Identity, user: str, forwarding_id: str) -> None:
        await ask_store(self._store.remove, user, forwarding_id)
        logger.info("%s has ended forwarding %s of %s", administrator.user, forwarding_id, user)

    async def _list_pauses(self, request: web.Request) -> web.Response:
        await self._administrator(request)
        pauses = await ask_store(self._store.pauses)
        return json_answer([shown_pause(each, pause) for each, pause in pauses.items()])

    async def _pause(self, request: web.Request) -> web.Response:
        administrator = await self._administrator(request)
        body = await self._ingest.read_body(request, administrator, COMMAND_BYTES_MAX)
        try:
            asked = msgspec.json.decode(body, type=_Asked)
            pause = new_pause(
                *(asked.reason, administrator.user, time.time_ns() // 1_000_000),
                user=asked.user,
                host=asked.host,
                forwarding=asked.forwarding,
            )
        except MALFORMED as error:
            raise Refused(400, f"not a pause: {error}") from error
        if len(await ask_store(self._store.pauses)) >= PAUSES_MAX:
            raise Refused(409, f"there are {PAUSES_MAX} pauses at most; end one")
        pause_id = secrets.token_hex(8)
        await ask_store(self._store.put_pause, pause_id, pause)
        logger.info("%s has paused %s: %s", administrator.user, pause, pause.reason)
        return json_answer(shown_pause(pause_id, pause), 201)

    async def _resume(self, request: web.Request) -> web.Response:
        administrator = await self._administrator(request)
        pause_id = request.match_info["pause"]
        pause = (await ask_store(self._store.pauses)).get(pause_id)
        if pause is None:
            raise Refused(404, "there is no such pause")
        await ask_store(self._store.remove_pause, pause_id, pause)
        logger.info("%s has resumed %s", administrator.user, pause)
        return web.Response(status=204)
