"""Questions about a device's past: who may ask, about which device, and about which time."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import Final, NamedTuple, TypeVar

from aiohttp import web

from gateway.formats.values import time_ms
from gateway.friends.friend_filter import HOME_MS, rounded
from gateway.friends.home_blur import Circle, Grid
from gateway.http.requests.authentication import reader, require_device
from gateway.http.requests.responses import Refused, unavailable
from gateway.http.requests.services import SERVICES, Services
from gateway.shares.share import FRIENDS, Terms
from gateway.tracks.asking import AnswerRefused, AnswerUnavailable
from gateway.users.auth import Identity
from gateway.users.permissions import (
    Visibility,
    friends_since,
    may_look_back,
    terms_of,
    visibility_of,
)
from gateway.views.places import PlacesUnavailable
from waylog.observability.telemetry import now_ms

LATEST_MS: Final = 2**62

_Read = TypeVar("_Read")


class Past(NamedTuple):
    """A question about a device's past: who asks, and for which times (ms)."""

    device: str
    owner: str
    asker: str
    #: Start (ms) of the friendship if the asker sees filtered records; None if unfiltered ones.
    since: int | None
    from_ms: int
    to_ms: int
    #: How positions are told to an asker who sees filtered records.
    terms: Terms = FRIENDS


async def homes_known(services: Services) -> None:
    """Load the current homes, which the friend filter needs. Raises Refused."""
    try:
        await services.places.refresh()
    except PlacesUnavailable as error:
        raise unavailable(str(error)) from error


async def allowed_device(request: web.Request) -> tuple[str, Identity]:
    """Return the device of the path, and who asks for it. Raises Refused."""
    identity = await reader(request)
    device = request.match_info["device"]
    require_device(identity, device)
    if visibility_of(identity, device) is Visibility.TOLD:
        await homes_known(request.app[SERVICES])
    return device, identity


async def past_of(request: web.Request) -> Past:
    """Return what a request asks about the past of a device. Raises Refused."""
    device, identity = await allowed_device(request)
    if not may_look_back(identity, device):
        raise Refused(403, "the token of a device shows where friends are, not where they were")
    owner = device.partition("/")[0]
    # A friendship may have ended by itself a moment ago: only who sees everything is told all.
    sees_all = visibility_of(identity, device) is Visibility.EVERYTHING
    since = None if sees_all else friends_since(identity, owner) or 0
    from_ms = time_of(request, "from", -LATEST_MS)
    to_ms = time_of(request, "to", LATEST_MS)
    if since is not None:
        # With bounds of any precision a friend would find the true times behind the rounded ones.
        from_ms = max(rounded(from_ms, HOME_MS), since)
        to_ms = rounded(to_ms, HOME_MS) + HOME_MS - 1
        # A fix from the future comes from a clock that is ahead, and may be older than the
        # friendship.
        to_ms = min(to_ms, now_ms())
    return Past(device, owner, identity.user, since, from_ms, to_ms, terms_of(identity, owner))


class Hidden(NamedTuple):
    """What is told in place of positions: the circles around homes, and squares everywhere."""

    circles: tuple[Circle, ...] | None = None  # None: to the owner, from whom nothing is hidden
    grid: Grid | None = None


def hidden_of(past: Past, services: Services) -> Hidden:
    """Return what is hidden from who asks."""
    if past.since is None:
        return Hidden()
    tell = services.friend_filter
    return Hidden(tell.circles_for(past.owner, past.terms), tell.grid_for(past.owner, past.terms))


async def archived(reading: Awaitable[_Read]) -> _Read:
    """Return what the archive answers. Raises Refused where it does not."""
    try:
        return await reading
    except AnswerRefused as error:
        raise Refused(400, str(error)) from error
    except AnswerUnavailable as error:
        raise unavailable(str(error)) from error


def time_of(request: web.Request, name: str, default: int) -> int:
    """Return a time (ms) out of the query. Raises Refused for what is none."""
    text = request.query.get(name)
    if not text:
        return default
    # The "+" of a time zone arrives as a space if it was not encoded.
    return checked_time(name, re.sub(r" (\d\d:?\d\d)$", r"+\1", text))


def checked_time(name: str, value: str | int | float) -> int:
    """Return a time in ms, within 64 bits whatever is asked for. Raises Refused."""
    time = time_ms(value)
    if time is None:
        raise Refused(400, f"{name} must be milliseconds, seconds or ISO 8601")
    # Whoever has no end in mind may send the greatest number there is.
    return max(-LATEST_MS, min(time, LATEST_MS))
