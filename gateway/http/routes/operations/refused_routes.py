"""`/v1/admin/refused`: records of topic `error`, and sending them again."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import msgspec
from aiohttp import web

from gateway.http.ingest.ingest import Ingest
from gateway.http.requests.responses import Refused, json_answer
from gateway.http.requests.services import Services
from gateway.http.routes.bodies import asked_of
from gateway.http.routes.operations.asking import (
    administrator,
    asked,
    audit,
    changed,
    is_topic_name,
    number_of,
    read,
)
from gateway.operations.refused import REFUSED_MAX

_REFUSED: Final = "/v1/admin/refused"
_OFFSET_MAX: Final = 2**62

_Places = Annotated[list[str], msgspec.Meta(min_length=1, max_length=REFUSED_MAX)]


class _Retry(msgspec.Struct, forbid_unknown_fields=True):
    places: _Places
    to: str | None = None
    dry_run: bool = False


class RefusedRoutes:
    """The handlers of `/v1/admin/refused`."""

    def __init__(self, services: Services, ingest: Ingest) -> None:
        self._operations = services.operations
        self._ingest = ingest

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for administrators."""
        return [
            web.get(_REFUSED, self._list, allow_head=False),
            web.post(f"{_REFUSED}/retries", self._retry),
            web.get(f"{_REFUSED}/{{place}}", self._show, allow_head=False),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        identity = await administrator(request)
        before = number_of(request, "before", -1, _OFFSET_MAX)
        reading = partial(self._operations.refused.newest, None if before < 0 else before)
        found = await read(self._operations, identity, reading)
        audit.info("%s has read refused records", identity.user)
        return json_answer(found)

    async def _show(self, request: web.Request) -> web.Response:
        identity = await administrator(request)
        place = request.match_info["place"]
        reading = partial(self._operations.refused.whole, place)
        found = await read(self._operations, identity, reading)
        audit.info("%s has read refused record %s", identity.user, found.record.place)
        return json_answer(found)

    async def _retry(self, request: web.Request) -> web.Response:
        identity = await administrator(request)
        body = await asked_of(request, self._ingest, _Retry)
        if body.to is not None and not is_topic_name(body.to):
            raise Refused(404, "there is no such topic")
        change = partial(self._operations.refused.retry, body.places, body.to, is_dry=body.dry_run)
        if body.dry_run:
            return json_answer(await asked(self._operations, identity, change))
        what = f"send again {', '.join(body.places[:20])}{', ...' if body.places[20:] else ''}"
        return json_answer(await changed(self._operations, identity, what, change))
