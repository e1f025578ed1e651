"""`/v1/admin/overview`, `/brokers` and `/log`: how the platform does."""

from __future__ import annotations

from functools import partial
from typing import Final

from aiohttp import web

from gateway.http.requests.responses import json_answer
from gateway.http.requests.services import Services
from gateway.http.routes.operations.asking import administrator, asked, number_of
from gateway.operations.brokers import describe_cluster

_NUMBER_MAX: Final = 2**53


class OverviewRoutes:
    """The handlers that tell how the platform does."""

    def __init__(self, services: Services) -> None:
        self._operations = services.operations

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for administrators."""
        return [
            web.get("/v1/admin/overview", self._overview, allow_head=False),
            web.get("/v1/admin/brokers", self._brokers, allow_head=False),
            web.get("/v1/admin/log", self._log, allow_head=False),
        ]

    async def _overview(self, request: web.Request) -> web.Response:
        await administrator(request)
        return json_answer(await self._operations.overview.ask())

    async def _brokers(self, request: web.Request) -> web.Response:
        identity = await administrator(request)
        question = partial(describe_cluster, self._operations.console.access)
        return json_answer(await asked(self._operations, identity, question))

    async def _log(self, request: web.Request) -> web.Response:
        await administrator(request)
        after = number_of(request, "after", 0, _NUMBER_MAX)
        return json_answer(self._operations.recent_lines.after(after))
