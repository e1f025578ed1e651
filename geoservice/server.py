"""The geocoder over HTTP: Nominatim's /reverse and /status, and /reverse/batch of our own."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import msgspec
from aiohttp import web

from geoservice.fallback import Fallback
from geoservice.nominatim import FORMATS, answer
from geoservice.reverse import ZOOM_MAX, Geocoder, ReverseResult
from geoservice.watch import FixedGeocoder, GeocoderSource

BATCH_POINTS_MAX: Final = 10_000
BODY_BYTES_MAX: Final = 2 * 1024 * 1024

_GEOCODER: Final[web.AppKey[GeocoderSource]] = web.AppKey("geocoder")
_FALLBACK: Final = web.AppKey("fallback", Fallback)
_encode = msgspec.json.Encoder().encode
_points = msgspec.json.Decoder(list[tuple[float, float]])
_point = msgspec.json.Decoder(tuple[float, float])


class BadRequest(Exception):
    """The request is wrong; the message says how."""


def make_app(
    geocoder: Geocoder | GeocoderSource, fallback: Fallback | None = None
) -> web.Application:
    """The application; the caller runs it."""
    app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[_explain])
    app[_GEOCODER] = FixedGeocoder(geocoder) if isinstance(geocoder, Geocoder) else geocoder
    if fallback is not None:
        app[_FALLBACK] = fallback
    app.router.add_get("/reverse", _reverse)
    app.router.add_post("/reverse/batch", _reverse_batch)
    app.router.add_get("/status", _status)
    return app


@web.middleware
async def _explain(request: web.Request, handler: Any) -> web.StreamResponse:
    """Errors in Nominatim's shape."""
    try:
        response: web.StreamResponse = await handler(request)
    except BadRequest as error:
        return _json({"error": {"code": 400, "message": str(error)}}, status=400)
    except web.HTTPRequestEntityTooLarge:
        message = f"the body is longer than {BODY_BYTES_MAX} bytes"
        return _json({"error": {"code": 413, "message": message}}, status=413)
    return response


def _json(value: Any, *, status: int = 200) -> web.Response:
    return web.Response(body=_encode(value), status=status, content_type="application/json")


async def _reverse(request: web.Request) -> web.Response:
    query = request.query
    lat, lon = _coordinate(query, "lat"), _coordinate(query, "lon")
    output = query.get("format", "jsonv2")
    if output not in FORMATS:
        raise BadRequest(f"format must be one of {', '.join(FORMATS)}")
    zoom = query.get("zoom", str(ZOOM_MAX))
    if not zoom.isdecimal() or int(zoom) > ZOOM_MAX:
        raise BadRequest(f"zoom must be a whole number from 0 to {ZOOM_MAX}")
    try:
        result = request.app[_GEOCODER].current.reverse(lat, lon, zoom=int(zoom))
    except ValueError as error:
        raise BadRequest(str(error)) from None
    [result] = await _complete(request.app, [result])
    body = answer(result, output)
    if query.get("addressdetails") == "0":
        body.pop("address", None)
    callback = query.get("json_callback")
    if callback is not None:
        # A page that could choose a script of ours is not worth the compatibility.
        raise BadRequest("json_callback is not supported")
    return _json(body)


def _coordinate(query: Any, name: str) -> float:
    text = query.get(name)
    if text is None:
        raise BadRequest(f"the parameter {name!r} is missing")
    try:
        return float(text)
    except ValueError:
        raise BadRequest(f"the parameter {name!r} must be a number of degrees") from None


async def _reverse_batch(request: web.Request) -> web.Response:
    lines = request.content_type in ("application/x-ndjson", "application/ndjson")
    lats, lons = _parse_points(await request.read(), lines=lines)
    try:
        results = request.app[_GEOCODER].current.reverse_batch(lats, lons)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    answers = [answer(result) for result in await _complete(request.app, results)]
    if lines:
        body = msgspec.json.Encoder().encode_lines(answers)
        return web.Response(body=body, content_type="application/x-ndjson")
    return _json(answers)


def _parse_points(body: bytes, *, lines: bool) -> tuple[list[float], list[float]]:
    try:
        points = _point.decode_lines(body) if lines else _points.decode(body)
    except (msgspec.DecodeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        shape = "a [lat, lon] on each line" if lines else "a JSON array of [lat, lon]"
        raise BadRequest(f"{shape} is expected: {error}") from None
    if len(points) > BATCH_POINTS_MAX:
        raise BadRequest(f"at most {BATCH_POINTS_MAX} points at once")
    return [lat for lat, _ in points], [lon for _, lon in points]


async def _complete(app: web.Application, results: list[ReverseResult]) -> list[ReverseResult]:
    fallback = app.get(_FALLBACK)
    if fallback is None or all(result.found for result in results):
        return results
    return await asyncio.to_thread(fallback.complete, results)


async def _status(request: web.Request) -> web.Response:
    """Nominatim's /status is plain text, or JSON when asked for."""
    if request.query.get("format") != "json":
        return web.Response(text="OK")
    index = request.app[_GEOCODER].current.index
    return _json(
        {
            "status": 0,
            "message": "OK",
            "software_version": "waylog",
            "index_version": index.version,
            "index": index.meta,
        }
    )
