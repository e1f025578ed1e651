"""Routes of a device's diary: what it did in a period, its days, its statistics, its battery."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from gateway.http.requests.past import Past, archived, hidden_of, past_of
from gateway.http.requests.responses import Refused, json_answer, raw_json_answer
from gateway.http.requests.services import SERVICES
from gateway.tracks.battery import BatteryCourse, BatteryLevel
from gateway.tracks.spans import SPANS

#: A timeline is of some days; what is longer is for the statistics. So is the course of a battery.
_TIMELINE_MS_MAX: Final = 32 * 86_400_000
#: A calendar is of a year; where little is packed, a file or more has to be opened for each day.
_DAYS_MS_MAX: Final = 400 * 86_400_000
_ZONE_CHARACTERS_MAX: Final = 60


def routes() -> list[web.RouteDef]:
    """Return the routes below /v1/devices/{device}."""
    return [
        web.get("/v1/devices/{device}/timeline", _timeline),
        web.get("/v1/devices/{device}/days", _days),
        web.get("/v1/devices/{device}/statistics", _statistics),
        web.get("/v1/devices/{device}/battery", _battery),
    ]


async def _timeline(request: web.Request) -> web.Response:
    return await _summary(request, "timeline", longest_ms=_TIMELINE_MS_MAX)


async def _days(request: web.Request) -> web.Response:
    return await _summary(request, "days", longest_ms=_DAYS_MS_MAX)


async def _statistics(request: web.Request) -> web.Response:
    span = request.query.get("by", "day")
    if span not in SPANS:
        raise Refused(400, f"by must be one of {', '.join(SPANS)}")
    return await _summary(request, "statistics", span=span)


async def _battery(request: web.Request) -> web.Response:
    past = await past_of(request)
    if past.since is not None:
        raise Refused(403, "the battery of a device is for its owner")
    _require_span(past, _TIMELINE_MS_MAX)
    services = request.app[SERVICES]
    levels = await archived(
        services.archive.battery(past.device, past.from_ms, past.to_ms, past.asker)
    )
    # The newest fix may not be in the history yet.
    fix = services.location_view.latest(past.device)
    if (
        fix is not None
        and fix.battery is not None
        and past.from_ms <= fix.time <= past.to_ms
        and (not levels or fix.time > levels[-1].time)
    ):
        levels.append(BatteryLevel(fix.time, fix.battery))
    return json_answer(BatteryCourse(levels))


def _require_span(past: Past, longest_ms: int) -> None:
    if past.to_ms - past.from_ms > longest_ms:
        raise Refused(
            400, f"from and to must be given, and be {longest_ms // 86_400_000} days apart at most"
        )


async def _summary(
    request: web.Request, kind: str, *, span: str = "", longest_ms: int | None = None
) -> web.Response:
    past = await past_of(request)
    if longest_ms is not None:
        _require_span(past, longest_ms)
    zone = request.query.get("tz", "UTC")
    if len(zone) > _ZONE_CHARACTERS_MAX:
        raise Refused(400, "tz must be the name of a time zone, as Europe/Vaduz")
    services = request.app[SERVICES]
    hidden = hidden_of(past, services)
    return raw_json_answer(
        await archived(
            services.archive.summary(
                *(kind, past.device, past.from_ms, past.to_ms),
                recent=services.location_view.track_pieces(past.device),
                circles=hidden.circles,
                grid=hidden.grid,
                zone=zone,
                span=span,
                party=past.asker,
            )
        )
    )
