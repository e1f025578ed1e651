"""Reading: devices, addresses, tracks and places."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import Any, Final, TypeVar
from urllib.parse import quote

from aiohttp import web

from gateway.access import reader, require_device
from gateway.answers import Refused, json_answer, raw_json_answer, unavailable
from gateway.archive import ArchiveRefused, ArchiveUnavailable
from gateway.auth import Identity
from gateway.formats.values import time_ms
from gateway.home_blur import HomeBlur
from gateway.places import PlacesUnavailable
from gateway.services import SERVICES, Services
from gateway.track_formats import FORMATS

_Read = TypeVar("_Read")

_DEVICES_MAX: Final = 10_000
_LATEST_MS: Final = 2**62


def routes() -> list[web.RouteDef]:
    """The paths below /v1/devices."""
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


def _row(device: str, services: Services) -> dict[str, Any]:
    """What is known of a device: newest fix and newest address, as the log has them."""
    fix = services.location_view.latest(device)
    address = services.address_view.latest(device)
    place = fix or address
    user, _, name = device.partition("/")
    return {
        "device": device,
        "user": user,
        "name": name,
        "lat": place.lat if place else None,
        "lon": place.lon if place else None,
        "time": place.time if place else None,
        "fix": fix,
        "address": address,
    }


async def _devices(request: web.Request) -> web.Response:
    identity = await reader(request)
    services = request.app[SERVICES]
    limit = _whole_number(request, "limit", _DEVICES_MAX)
    after = request.query.get("after", "")
    names = [name for name in _visible(identity, services) if name > after]
    answer = json_answer([_row(name, services) for name in names[:limit]])
    if len(names) > limit:
        answer.headers["Waylog-More-After"] = quote(names[limit - 1], safe="")
    return answer


def _visible(identity: Identity, services: Services) -> list[str]:
    if identity.device is not None:
        own = f"{identity.user}/{identity.device}"
        return [own] if own in services.location_view or own in services.address_view else []
    users = [None] if identity.admin else [identity.user, *identity.rights.friends]
    # A device that has been silent for long may be known by its address alone.
    views = (services.location_view, services.address_view)
    return sorted({device for user in users for view in views for device in view.devices(user)})


async def _allowed_device(request: web.Request) -> str:
    identity = await reader(request)
    device = request.match_info["device"]
    require_device(identity, device)
    return device


async def _device(request: web.Request) -> web.Response:
    device = await _allowed_device(request)
    services = request.app[SERVICES]
    if device not in services.location_view and device not in services.address_view:
        raise Refused(404, "nothing is known of this device")
    return json_answer(_row(device, services))


async def _address(request: web.Request) -> web.Response:
    device = await _allowed_device(request)
    value = request.app[SERVICES].address_view.newest_raw(device)
    if value is None:
        raise Refused(404, "no address of this device is known yet")
    return raw_json_answer(value)


async def _blur(request: web.Request) -> tuple[str, HomeBlur]:
    """The device that is asked for, and what hides its owner's home from others."""
    identity = await reader(request)
    device = request.match_info["device"]
    require_device(identity, device)
    owner = device.partition("/")[0]
    if identity.admin or identity.user == owner:
        return device, HomeBlur(())
    try:
        return device, HomeBlur(await request.app[SERVICES].places.of_user(owner))
    except PlacesUnavailable as error:
        raise unavailable(str(error)) from error


async def _track(request: web.Request) -> web.Response:
    device, blur = await _blur(request)
    name = request.query.get("format", "geojson")
    track_format = FORMATS.get(name)
    if track_format is None:
        raise Refused(400, f"format must be one of {', '.join(FORMATS)}")
    services = request.app[SERVICES]
    times = _time(request, "from", -_LATEST_MS), _time(request, "to", _LATEST_MS)
    recent = services.location_view.packed_track(device, *times)
    body = await _archived(
        services.archive.track(device, *times, recent=recent, circles=blur.circles, name=name)
    )
    file_name = re.sub(r"[^A-Za-z0-9._-]", "_", device)
    return web.Response(
        body=body,
        content_type=track_format.content_type,
        charset="utf-8" if name != "geojson" else None,
        headers={"Content-Disposition": f'inline; filename="{file_name}.{track_format.suffix}"'},
    )


async def _places(request: web.Request) -> web.Response:
    device, blur = await _blur(request)
    try:
        return json_answer(blur.places(await request.app[SERVICES].places.of_device(device)))
    except PlacesUnavailable as error:
        raise unavailable(str(error)) from error


async def _visits(request: web.Request) -> web.Response:
    device, blur = await _blur(request)
    times = _time(request, "from", -_LATEST_MS), _time(request, "to", _LATEST_MS)
    visits = await _archived(request.app[SERVICES].archive.visits(device, *times))
    return json_answer(blur.visits(visits))


async def _trips(request: web.Request) -> web.Response:
    device, blur = await _blur(request)
    times = _time(request, "from", -_LATEST_MS), _time(request, "to", _LATEST_MS)
    trips = await _archived(request.app[SERVICES].archive.trips(device, *times))
    return json_answer(blur.trips(trips))


async def _archived(reading: Awaitable[_Read]) -> _Read:
    try:
        return await reading
    except ArchiveRefused as error:
        raise Refused(400, str(error)) from error
    except ArchiveUnavailable as error:
        raise unavailable(str(error)) from error


async def _pipeline(request: web.Request) -> web.Response:
    await reader(request)
    return json_answer(await request.app[SERVICES].pipeline.status())


def _time(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name)
    if not text:
        return default
    # A "+" of a time zone that was not encoded arrives as a space.
    time = time_ms(re.sub(r" (\d\d:?\d\d)$", r"+\1", text))
    if time is None:
        raise Refused(400, f"{name} must be milliseconds, seconds or ISO 8601")
    return time


def _whole_number(request: web.Request, name: str, maximum: int) -> int:
    text = request.query.get(name)
    if text is None:
        return maximum
    if not text.isdecimal() or len(text) > 9 or int(text) < 1:
        raise Refused(400, f"{name} must be a whole number from 1 on")
    return min(maximum, int(text))
