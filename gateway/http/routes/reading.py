"""Routes for reading devices, addresses, tracks and places."""

from __future__ import annotations

import heapq
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from itertools import groupby, islice
from typing import Any, Final
from urllib.parse import quote

import msgspec
from aiohttp import web

from gateway.friends.friend_filter import StaysSince
from gateway.http.requests.authentication import reader, require_metrics_access
from gateway.http.requests.newest import newest_of
from gateway.http.requests.past import (
    LATEST_MS,
    Past,
    allowed_device,
    archived,
    hidden_of,
    past_of,
)
from gateway.http.requests.responses import (
    Refused,
    in_pieces,
    json_answer,
    raw_json_answer,
    unavailable,
)
from gateway.http.requests.services import SERVICES, Services
from gateway.limits.bounds import MEBIBYTE
from gateway.limits.pools import Hold
from gateway.tracks.archive import rows_of
from gateway.tracks.track_formats import FORMATS
from gateway.users.auth import Identity
from gateway.users.permissions import Visibility, may_see, visibility_of
from gateway.views.places import PlacesUnavailable
from waylog.messages import encode
from waylog.network.large_answers import TOO_MUCH_UNREAD
from waylog.network.shares import ShareExceeded

_encode = msgspec.json.Encoder().encode

_DEVICES_MAX: Final = 10_000
_DEVICES_A_STEP: Final = 100
#: Names that are looked at in one step of a search.
_NAMES_A_STEP: Final = 1_000
_ROWS_A_STEP: Final = 50
#: A list of devices ends soon after this size, and says that there are more.
_DEVICES_BYTES_MAX: Final = 16 * MEBIBYTE


def routes() -> list[web.RouteDef]:
    """Return the routes below /v1/devices, and /v1/pipeline."""
    return [
        web.get("/v1/devices", _devices),
        web.get("/v1/devices/{device}", _device),
        web.get("/v1/devices/{device}/address", _address),
        web.get("/v1/devices/{device}/track", _track),
        web.get("/v1/devices/{device}/places", _places),
        web.get("/v1/devices/{device}/visits", _visits),
        web.get("/v1/devices/{device}/trips", _trips),
        web.get("/v1/pipeline", _pipeline),
    ]


def _row(device: str, identity: Identity, services: Services) -> dict[str, Any] | None:
    """Return the visible newest fix and newest address of a device; None if there is neither."""
    fix, address = newest_of(device, identity, services)
    place = fix or address
    if place is None:
        return None
    user, _, name = device.partition("/")
    return {
        "device": device,
        "user": user,
        "name": name,
        "lat": place.lat,
        "lon": place.lon,
        "time": place.time,
        "fix": fix,
        "address": address,
    }


async def _devices(request: web.Request) -> web.Response:
    identity = await reader(request)
    services = request.app[SERVICES]
    # Without homes friends are shown nothing, but a user's own devices are listed all the same.
    with suppress(PlacesUnavailable):
        await services.places.refresh()
    limit = _whole_number(request, "limit", _DEVICES_MAX)
    wanted = request.query.get("q", "").strip().casefold()
    # All who have waited for the places go on at once.
    await services.turns.let_others_work(identity.user)
    after = request.query.get("after", "")
    # The response body, in pieces.
    rows: list[bytes] = []
    more = True
    size = 0
    hold = Hold(services.unread, identity.user, 0)
    try:
        while more and limit and size < _DEVICES_BYTES_MAX:
            # Names that appear or vanish between two steps do no harm: each step begins after the
            # last name.
            step = _NAMES_A_STEP if wanted else min(limit, _DEVICES_A_STEP)
            names = list(islice(_visible(identity, services, after), step + 1))
            named = [name for name in names[:step] if wanted in name.casefold()]
            if wanted and len(named) > limit:
                # The rest of this step comes with the next question.
                named = named[:limit]
                step = names.index(named[-1]) + 1
            found = (_row(name, identity, services) for name in named)
            encoded = [_encode(row) for row in found if row is not None]
            if encoded:
                rows.append((b"," if rows else b"[") + b",".join(encoded))
                size += len(rows[-1])
                hold.grow(len(rows[-1]))
            more = len(names) > step
            limit -= len(named) if wanted else step
            after = names[:step][-1] if names else after
            await services.turns.let_others_work(identity.user)
    except ShareExceeded:
        raise unavailable(TOO_MUCH_UNREAD) from None
    finally:
        # What sends the answer counts it again.
        hold.release()
    rows.append(b"]" if rows else b"[]")
    answer = raw_json_answer(rows)
    if more:
        answer.headers["Waylog-More-After"] = quote(after, safe="")
    return answer


def _visible(identity: Identity, services: Services, after: str) -> Iterator[str]:
    """Yield the names of the devices after `after` that a user may see, sorted."""
    # A device that has been silent for long may be known only by its address.
    views = (services.location_view, services.address_view)
    users: list[str | None]
    sorted_names: list[Iterator[str]] = []
    if identity.device is not None:
        own = f"{identity.user}/{identity.device}"
        sorted_names = [iter([own] if own > after and any(own in view for view in views) else [])]
        users = [*identity.rights.friends]
    else:
        users = [None] if identity.admin else [identity.user, *identity.rights.friends]
    sorted_names += [view.devices_after(after, user) for user in users for view in views]
    merged = heapq.merge(*sorted_names)
    return (name for name, _ in groupby(merged) if may_see(identity, name))


async def _device(request: web.Request) -> web.Response:
    device, identity = await allowed_device(request)
    services = request.app[SERVICES]
    row = _row(device, identity, services)
    if row is None:
        raise _unknown("nothing is known of this device", services)
    return json_answer(row)


def _unknown(reason: str, services: Services) -> Exception:
    """Return 404, or 503 while older records of the log are still being read."""
    if services.location_view.reading_back or services.address_view.reading_back:
        return unavailable(f"{reason} yet: older records are still being read")
    return Refused(404, reason)


async def _address(request: web.Request) -> web.Response:
    device, identity = await allowed_device(request)
    services = request.app[SERVICES]
    if visibility_of(identity, device) is Visibility.EVERYTHING:
        value = services.address_view.newest_raw(device)
    else:
        told = newest_of(device, identity, services).address
        value = None if told is None else encode(told)
    if value is None:
        raise _unknown("no address of this device is known", services)
    return raw_json_answer(value)


async def _track(request: web.Request) -> web.Response:
    past = await past_of(request)
    device = past.device
    name = request.query.get("format", "geojson")
    track_format = FORMATS.get(name)
    if track_format is None:
        raise Refused(400, f"format must be one of {', '.join(FORMATS)}")
    services = request.app[SERVICES]
    hidden = hidden_of(past, services)
    body = await archived(
        services.archive.track(
            *(device, past.from_ms, past.to_ms),
            recent=services.location_view.track_pieces(device),
            circles=hidden.circles,
            grid=hidden.grid,
            name=name,
            party=past.asker,
        )
    )
    file_name = re.sub(r"[^A-Za-z0-9._-]", "_", device)
    return web.Response(
        body=in_pieces(body),
        content_type=track_format.content_type,
        charset="utf-8" if name != "geojson" else None,
        headers={"Content-Disposition": f'inline; filename="{file_name}.{track_format.suffix}"'},
    )


async def _places(request: web.Request) -> web.Response:
    past = await past_of(request)
    services = request.app[SERVICES]
    try:
        places = await services.places.of_device(past.device)
    except PlacesUnavailable as error:
        raise unavailable(str(error)) from error
    if past.since is None:
        edited = await services.edited_places.places(past.device, places)
        return await _rows_answer(edited, past, services)
    visits = await archived(services.archive.visits(past.device, past.since, LATEST_MS, past.asker))
    stays = StaysSince(past.since)
    async for some in _in_steps(rows_of(visits), past, services):
        for visit in some:
            stays.add(visit)
    edited = await services.edited_places.places(past.device, places)
    # What the owner has left out is in no list. Names and labels are told once the job has them,
    # since homes are.
    there = {row["place_id"] for row in edited}
    kept = [row for row in places if row["place_id"] in there]
    told = services.friend_filter.places(past.owner, kept, stays.by_place, past.terms)
    return await _rows_answer(told, past, services)


async def _visits(request: web.Request) -> web.Response:
    past = await past_of(request)
    services = request.app[SERVICES]
    visits = await archived(
        services.archive.visits(past.device, past.from_ms, past.to_ms, past.asker)
    )
    if past.since is None:
        parts = await services.edited_places.parts(past.device, services.places.known(past.device))
        if not parts:
            return raw_json_answer(visits)
        return await _rows_answer(
            (row | {"place_id": parts.get(row["place_id"], row["place_id"])}
             for row in rows_of(visits)),
            *(past, services),
        )  # fmt: skip
    told = services.friend_filter.visits(past.owner, rows_of(visits), past.since, past.terms)
    return await _rows_answer(told, past, services)


async def _trips(request: web.Request) -> web.Response:
    past = await past_of(request)
    services = request.app[SERVICES]
    trips = await archived(
        services.archive.trips(past.device, past.from_ms, past.to_ms, past.asker)
    )
    if past.since is None:
        return raw_json_answer(trips)
    try:
        places = await services.places.of_user(past.owner)
    except PlacesUnavailable as error:
        raise unavailable(str(error)) from error
    told = services.friend_filter.trips(past.owner, rows_of(trips), places, past.since, past.terms)
    return await _rows_answer(told, past, services)


async def _in_steps(
    rows: Iterable[dict[str, Any]], past: Past, services: Services
) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield some rows at a time, and let others work in between."""
    left = iter(rows)
    while some := list(islice(left, _ROWS_A_STEP)):
        yield some
        await services.turns.let_others_work(past.asker)


async def _rows_answer(
    rows: Iterable[dict[str, Any]], past: Past, services: Services
) -> web.Response:
    pieces: list[bytes] = []
    async for some in _in_steps(rows, past, services):
        pieces.append((b"," if pieces else b"[") + _encode(some)[1:-1])
    pieces.append(b"]" if pieces else b"[]")
    return raw_json_answer(pieces)


async def _pipeline(request: web.Request) -> web.Response:
    await require_metrics_access(request)
    return json_answer(await request.app[SERVICES].pipeline.status())


def _whole_number(request: web.Request, name: str, maximum: int) -> int:
    text = request.query.get(name)
    if text is None:
        return maximum
    if not text.isdecimal() or len(text) > 9 or int(text) < 1:
        raise Refused(400, f"{name} must be a whole number from 1 on")
    return min(maximum, int(text))
