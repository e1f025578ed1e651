"""`/v1/admin/groups`: who reads how far, and setting that anew."""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from gateway.http.ingest.ingest import Ingest
from gateway.http.requests.responses import Refused, json_answer
from gateway.http.requests.services import Services
from gateway.http.routes.bodies import asked_of
from gateway.http.routes.operations.asking import (
    administrator,
    asked,
    changed,
    is_topic_name,
    require_confirmed,
)
from gateway.operations.groups import NewOffset, all_groups, describe_group, reset_offsets

_GROUPS: Final = "/v1/admin/groups"
_WHERE_CHARACTERS_MAX: Final = 40


class _Reset(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    #: A text as in `waylog.administration.offsets.WHERE_HELP`, +N or -N: shift.
    to: str
    confirm: str = ""
    dry_run: bool = False


class GroupRoutes:
    """The handlers of `/v1/admin/groups`."""

    def __init__(self, services: Services, ingest: Ingest) -> None:
        self._operations = services.operations
        self._access = services.operations.console.access
        self._ingest = ingest

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for administrators."""
        return [
            web.get(_GROUPS, self._list, allow_head=False),
            web.get(f"{_GROUPS}/{{group}}", self._describe, allow_head=False),
            web.post(f"{_GROUPS}/{{group}}/offsets", self._reset),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        identity = await administrator(request)

        def question() -> object:
            return all_groups(self._access, self._operations.console.admin())

        return json_answer(await asked(self._operations, identity, question))

    async def _describe(self, request: web.Request) -> web.Response:
        identity = await administrator(request)
        group = request.match_info["group"]

        def question() -> object:
            return describe_group(self._access, self._operations.console.admin(), group)

        return json_answer(await asked(self._operations, identity, question))

    async def _reset(self, request: web.Request) -> web.Response:
        identity = await administrator(request)
        group = request.match_info["group"]
        body = await asked_of(request, self._ingest, _Reset)
        if not is_topic_name(body.topic):
            raise Refused(404, "there is no such topic")
        if len(body.to) > _WHERE_CHARACTERS_MAX:
            raise Refused(400, "not a place: beginning, end, an offset, a time, or +N or -N")
        if not body.dry_run:
            require_confirmed(body.confirm, group)

        def change() -> list[NewOffset]:
            return reset_offsets(
                self._access,
                self._operations.console.admin(),
                group,
                body.topic,
                body.to,
                is_dry=body.dry_run,
            )

        if body.dry_run:
            return json_answer(await asked(self._operations, identity, change))
        what = f"set offsets of group {group} in topic {body.topic} to {body.to}"
        return json_answer(await changed(self._operations, identity, what, change))
