"""`/v1/devices/{device}/places/{place}`: what users say of their places."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import web

from gateway.http.ingest.ingest import Ingest
from gateway.http.requests.authentication import require_device
from gateway.http.requests.own_users import own_user
from gateway.http.requests.responses import COMMAND_BYTES_MAX, Refused, json_answer, unavailable
from gateway.http.requests.services import Services
from gateway.http.routes.zone_routes import Changes, from_log, reasons_for
from gateway.users.auth import Identity
from gateway.views.places import PlacesUnavailable
from waylog.great_circle import distance_m
from waylog.history.place_edits import PlaceEdit
from waylog.malformed import MALFORMED
from waylog.observability.telemetry import now_ms

_ONE: Final = "/v1/devices/{device}/places/{place}"
_EDITS: Final = "/v1/devices/{device}/place-edits"
_NAME_CHARACTERS_MAX: Final = 200
_REASONS: Final = reasons_for("places")
_LABELS: Final = ("home", "work", "none")
#: m; places that are farther apart are two.
_MERGED_MAX_M: Final = 2_000.0
_EDITS_MAX: Final = 2_000


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    name: str | msgspec.UnsetType | None = msgspec.UNSET
    label: str | msgspec.UnsetType | None = msgspec.UNSET
    merged_into: str | msgspec.UnsetType | None = msgspec.UNSET
    deleted: bool | msgspec.UnsetType = msgspec.UNSET


class PlaceRoutes:
    """The handlers of edits of places."""

    def __init__(self, services: Services, ingest: Ingest) -> None:
        self._services = services
        self._ingest = ingest
        self._changes = Changes()

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.get(_EDITS, self._list, allow_head=False),
            web.patch(_ONE, self._edit),
            web.delete(_ONE, self._delete),
        ]

    async def _asked(self, request: web.Request) -> tuple[Identity, str]:
        identity = await own_user(request, self._services, _REASONS)
        device = request.match_info["device"]
        require_device(identity, device)
        if device.partition("/")[0] != identity.user:
            raise Refused(403, "only places of one's own devices can be edited")
        return identity, device

    async def _known(self, device: str) -> dict[str, PlaceEdit]:
        edits = await from_log(self._services.edited_places.edits.of(device.partition("/")[0]))
        return {edit.place_id: edit for edit in edits.values() if edit.device == device}

    async def _list(self, request: web.Request) -> web.Response:
        _, device = await self._asked(request)
        known = await self._known(device)
        return json_answer(sorted(known.values(), key=lambda edit: -edit.time))

    async def _edit(self, request: web.Request) -> web.Response:
        identity, device = await self._asked(request)
        self._changes.take(identity)
        try:
            body = await self._ingest.read_body(request, identity, COMMAND_BYTES_MAX)
            asked = msgspec.json.decode(body, type=_Asked)
        except MALFORMED as error:
            raise Refused(400, f"not an edit of a place: {error}") from error
        members = {
            name: value
            for name in asked.__struct_fields__
            if (value := getattr(asked, name)) is not msgspec.UNSET
        }
        return json_answer(await self._put(identity, device, request.match_info["place"], members))

    async def _delete(self, request: web.Request) -> web.Response:
        identity, device = await self._asked(request)
        self._changes.take(identity)
        await self._put(identity, device, request.match_info["place"], {"deleted": True})
        return web.Response(status=204)

    async def _put(
        self, identity: Identity, device: str, place_id: str, members: dict[str, Any]
    ) -> PlaceEdit:
        async with self._changes.lock(identity):
            known = await self._known(device)
            rows = {row["place_id"]: row for row in await self._rows(device)}
            before, row = known.get(place_id), rows.get(place_id)
            if before is None and row is None:
                raise Refused(404, "the device has no such place")
            if before is None and len(known) >= _EDITS_MAX:
                raise Refused(409, f"a device has {_EDITS_MAX} edited places at most")
            if before is None:
                assert row is not None
                before = PlaceEdit(
                    device=device, place_id=place_id, lat=row["lat"], lon=row["lon"], time=0
                )
            _check(members, rows, row, before)
            if row is not None:
                members["known_as"] = row["name"] or row["address"]
            edit = msgspec.structs.replace(before, time=max(now_ms(), before.time + 1), **members)
            edits = self._services.edited_places.edits
            await from_log(edits.put(edit.key.decode(), msgspec.json.encode(edit)))
        return edit

    async def _rows(self, device: str) -> list[dict[str, Any]]:
        try:
            rows = await self._services.places.of_device(device)
        except PlacesUnavailable as error:
            raise unavailable(str(error)) from error
        return await self._services.edited_places.places(device, rows)


def _check(
    members: dict[str, Any],
    rows: dict[str, dict[str, Any]],
    row: dict[str, Any] | None,
    before: PlaceEdit,
) -> None:
    """Raise Refused for what cannot be said of a place."""
    name = members.get("name")
    if name is not None:
        members["name"] = name = name.strip()
        if not 0 < len(name) <= _NAME_CHARACTERS_MAX or not name.isprintable():
            raise Refused(400, f"name has 1 to {_NAME_CHARACTERS_MAX} characters that can be shown")
    if members.get("label") not in (None, *_LABELS):
        raise Refused(400, f"label is one of {', '.join(_LABELS)}")
    into = members.get("merged_into")
    ends = members.get("deleted") or into is not None
    if ends and row is not None and row["label"] == "home":
        raise Refused(
            409,
            "a home cannot be left out, since what friends are told is blurred around it; say "
            "first that it is none",
        )
    if into is not None:
        if into == before.place_id or into not in rows:
            raise Refused(404, "the device has no place to be merged with")
        away = distance_m(before.lat, before.lon, rows[into]["lat"], rows[into]["lon"])
        if away > _MERGED_MAX_M:
            raise Refused(409, f"places more than {_MERGED_MAX_M / 1000:g} km apart are two")
