"""The geocoder's HTTP server: Nominatim's paths, and our own /reverse/batch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, cast
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from geoservice.fallback.fallback import Fallback
from geoservice.reverse.geocoder import DEFAULT_LAYERS, Geocoder, Place, ReverseResult
from geoservice.reverse.watch import FixedGeocoder, GeocoderSource
from geoservice.tiles.served import ServedTiles
from geoservice.web.listener import party_of_request
from geoservice.web.nominatim import (
    CONTENT_TYPES,
    FORMATS,
    answer,
    render_error,
    render_list,
    render_photon,
    render_reverse,
)
from geoservice.web.parameters import BadRequest, Parameters, parse_query
from geoservice.web.rendered_answers import RenderedAnswers
from geoservice.web.search_server import NotSearchable, SearchEndpoint
from geoservice.web.tiles import TileRoutes
from waylog.malformed import MALFORMED
from waylog.network.chunked_requests import end_connections_after_chunks
from waylog.network.large_answers import SMALL_BYTES_MAX, TOO_MUCH_UNREAD, send_in_pieces
from waylog.network.reading_watch import STALLED_S
from waylog.network.shares import ShareExceeded, Shares

BATCH_POINTS_MAX: Final = 10_000
BODY_BYTES_MAX: Final = 2 * 1024 * 1024
LOOKUP_OBJECTS_MAX: Final = 50
STATUS_FORMATS: Final = ("text", "json")

Handler = Callable[[web.Request], Awaitable[web.Response]]

_OSM_TYPES: Final = {"N": "node", "W": "way", "R": "relation"}
_OSM_ID_DIGITS_MAX: Final = 18
#: Large answers that are being sent: over all connections, and of one party.
_UNREAD_BYTES_MAX: Final = 256 * 1024 * 1024
_UNREAD_BYTES_EACH_MAX: Final = 128 * 1024 * 1024
_PIECE_BYTES: Final = 64 * 1024


class _Finished:
    """The cache of serialised answers of the geocoder in use."""

    def __init__(self) -> None:
        self._answers: RenderedAnswers | None = None

    def answers(self, geocoder: Geocoder) -> RenderedAnswers:
        """Return the cache of this geocoder."""
        if self._answers is None or self._answers.geocoder is not geocoder:
            self._answers = RenderedAnswers(geocoder)
        return self._answers


_GEOCODER: Final[web.AppKey[GeocoderSource]] = web.AppKey("geocoder")
_FALLBACK: Final = web.AppKey("fallback", Fallback)
_FINISHED: Final[web.AppKey[_Finished]] = web.AppKey("finished")
_UNREAD: Final = web.AppKey("unread", Shares)
_SEARCH: Final = web.AppKey("search", SearchEndpoint)
_encode = msgspec.json.Encoder().encode
_points = msgspec.json.Decoder(list[tuple[float, float]])
_point = msgspec.json.Decoder(tuple[float, float])


def make_app(
    geocoder: Geocoder | GeocoderSource,
    fallback: Fallback | None = None,
    tiles: ServedTiles | None = None,
) -> web.Application:
    """Return the application; the caller runs it."""
    app = web.Application(client_max_size=BODY_BYTES_MAX)
    end_connections_after_chunks(app)
    app[_GEOCODER] = FixedGeocoder(geocoder) if isinstance(geocoder, Geocoder) else geocoder
    if fallback is not None:
        app[_FALLBACK] = fallback
    app[_FINISHED] = _Finished()
    app[_UNREAD] = Shares(_UNREAD_BYTES_MAX, _UNREAD_BYTES_EACH_MAX)
    app[_SEARCH] = SearchEndpoint()
    for path, handler, default in (
        ("/reverse", _reverse, "xml"),
        ("/search", _search, "jsonv2"),
        ("/lookup", _lookup, "xml"),
        ("/status", _status, "text"),
    ):
        explained = _explained(handler, default)
        app.router.add_get(path, explained)
        # The paths that Nominatim had until 2019; some clients still use them.
        app.router.add_get(f"{path}.php", explained)
    for path, handler in (
        ("/photon/reverse", _photon_reverse),
        ("/photon/api", _photon_search),
        ("/photon/api/", _photon_search),
    ):
        app.router.add_get(path, _explained(handler, "photon"))
    app.router.add_post("/reverse/batch", _explained(_reverse_batch, "json"))
    TileRoutes(tiles if tiles is not None else ServedTiles([])).add_to(app)
    return app


def _explained(
    handler: Handler, default: str
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Wrap a handler, so that errors have Nominatim's form in the requested format."""

    async def explained(request: web.Request) -> web.StreamResponse:
        try:
            return await _send(request, await handler(request))
        except BadRequest as error:
            return _refusal(request, str(error), 400, default)
        except NotSearchable as error:
            return _refusal(request, str(error), 503, default)
        except ShareExceeded:
            return _refusal(request, TOO_MUCH_UNREAD, 503, default)
        except web.HTTPRequestEntityTooLarge:
            message = f"the body is longer than {BODY_BYTES_MAX} bytes"
            return _refusal(request, message, 413, default)

    return explained


async def _send(request: web.Request, answer: web.Response) -> web.StreamResponse:
    """Send an answer if it is large, else leave it to aiohttp. Raises ShareExceeded."""
    body = answer.body
    if not isinstance(body, bytes) or len(body) <= SMALL_BYTES_MAX or request.method == "HEAD":
        return answer
    view = memoryview(body)
    pieces = (view[start : start + _PIECE_BYTES] for start in range(0, len(body), _PIECE_BYTES))
    with request.app[_UNREAD].hold(party_of_request(request), len(body)):
        return await send_in_pieces(request, answer, pieces, len(body), stalled_s=STALLED_S)


def _refusal(request: web.Request, message: str, status: int, default: str) -> web.Response:
    try:
        output = _format(request, _parameters(request), default)
    except BadRequest:
        output = "text"
    return _written(render_error(message, status, output), output, status=status)


def _written(body: bytes, output: str, *, status: int = 200) -> web.Response:
    content_type = f"{CONTENT_TYPES[output]}; charset=utf-8"
    return web.Response(body=body, status=status, headers={"Content-Type": content_type})


def _parameters(request: web.Request) -> Parameters:
    return Parameters(parse_query(request.rel_url.raw_query_string))


def _format(request: web.Request, parameters: Parameters, default: str) -> str:
    """Return the requested format; raises BadRequest."""
    output = parameters.text("format")
    if output is None or default == "photon":
        accept = request.headers.get("Accept", "")
        if default == "xml" and "json" in accept and "xml" not in accept and "*/*" not in accept:
            return "jsonv2"
        return default
    known = STATUS_FORMATS if default == "text" else FORMATS
    if output not in known:
        raise BadRequest("Parameter 'format' must be one of: " + ", ".join(known))
    return output


async def _reverse(request: web.Request) -> web.Response:
    parameters = _parameters(request)
    output = _format(request, parameters, "xml")
    lon, lat = parameters.number("lon"), parameters.number("lat")
    geocoder = request.app[_GEOCODER].current
    accept_language = request.headers.get("Accept-Language")
    if output == "jsonv2" and accept_language is None and parameters.are_plain():
        # The most common request takes this path, which needs a third of the time.
        try:
            [found] = (
                request.app[_FINISHED]
                .answers(geocoder)
                .batch((lat,), (lon,), towns=_FALLBACK not in request.app)
            )
        except ValueError as error:
            raise BadRequest(_of_one_point(error)) from None
        if isinstance(found, bytes):
            return _written(found, output)
    details = parameters.details(accept_language)
    zoom = parameters.zoom()
    try:
        result = geocoder.reverse(
            lat,
            lon,
            zoom=zoom,
            layers=parameters.layers() or DEFAULT_LAYERS,
            languages=details.languages,
        )
    except ValueError as error:
        raise BadRequest(str(error)) from None
    [result] = await _complete(request.app, [result])
    query = ""
    if output == "xml":
        asked = {"lat": str(lat), "lon": str(lon), "format": output}
        if parameters.text("zoom"):
            asked["zoom"] = str(parameters.text("zoom"))
        query = urlencode(asked)
    return _written(render_reverse(geocoder, result, output, details, query=query), output)


def _of_one_point(error: ValueError) -> str:
    return str(error).removeprefix("point 0: ")


async def _lookup(request: web.Request) -> web.Response:
    """Answer with the requested OSM objects; those not in the index are left out."""
    parameters = _parameters(request)
    output = _format(request, parameters, "xml")
    details = parameters.details(request.headers.get("Accept-Language"))
    objects = _osm_objects(parameters.text("osm_ids") or "")
    geocoder = request.app[_GEOCODER].current
    places: list[Place] = []
    for osm_type, osm_id in objects:
        places += geocoder.lookup(osm_type, osm_id, languages=details.languages)
    return _written(render_list(geocoder, places, output, details), output)


async def _search(request: web.Request) -> web.Response:
    parameters = _parameters(request)
    output = _format(request, parameters, "jsonv2")
    body = request.app[_SEARCH].answer(
        request.app[_GEOCODER].current,
        parameters,
        output,
        request.headers.get("Accept-Language"),
        str(request.url.with_query(None)),
    )
    return _written(body, output)


async def _photon_reverse(request: web.Request) -> web.Response:
    parameters = _parameters(request)
    lat, lon = parameters.number("lat"), parameters.number("lon")
    details = parameters.photon_details(request.headers.get("Accept-Language"))
    geocoder = request.app[_GEOCODER].current
    try:
        result = geocoder.reverse(lat, lon, languages=details.languages)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    [result] = await _complete(request.app, [result])
    return _written(render_photon(geocoder, [result], details), "photon")


async def _photon_search(request: web.Request) -> web.Response:
    parameters = _parameters(request)
    geocoder = request.app[_GEOCODER].current
    details = parameters.photon_details(request.headers.get("Accept-Language"))
    places = request.app[_SEARCH].photon(geocoder, parameters, details)
    return _written(render_photon(geocoder, places, details), "photon")


def _osm_objects(text: str) -> list[tuple[str, int]]:
    objects: dict[tuple[str, int], None] = {}
    names = text.split(",")
    for name in names:
        osm_type, digits = _OSM_TYPES.get(name.strip()[:1].upper()), name.strip()[1:]
        # Malformed ids are ignored, as in Nominatim.
        if osm_type and digits.isascii() and digits.isdecimal():
            if len(digits) <= _OSM_ID_DIGITS_MAX:
                objects[osm_type, int(digits)] = None
            if len(objects) > LOOKUP_OBJECTS_MAX:
                raise BadRequest("Too many object IDs.")
    return list(objects)


async def _reverse_batch(request: web.Request) -> web.Response:
    lines = request.content_type in ("application/x-ndjson", "application/ndjson")
    lats, lons = _parse_points(await request.read(), lines=lines)
    try:
        finished_answers = request.app[_FINISHED].answers(request.app[_GEOCODER].current)
        answers = finished_answers.batch(lats, lons, towns=_FALLBACK not in request.app)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    unfinished = [place for place, result in enumerate(answers) if not isinstance(result, bytes)]
    if unfinished:
        results = [result for result in answers if not isinstance(result, bytes)]
        for place, result in zip(unfinished, await _complete(request.app, results), strict=True):
            answers[place] = _encode(answer(result))
    finished = cast("list[bytes]", answers)
    if lines:
        body = b"".join(line + b"\n" for line in finished)
        return web.Response(body=body, content_type="application/x-ndjson")
    body = b"[" + b",".join(finished) + b"]"
    return web.Response(body=body, content_type="application/json")


def _parse_points(body: bytes, *, lines: bool) -> tuple[list[float], list[float]]:
    try:
        points = _point.decode_lines(body) if lines else _points.decode(body)
    except MALFORMED as error:
        shape = "a [lat, lon] on each line" if lines else "a JSON array of [lat, lon]"
        raise BadRequest(f"{shape} is expected: {error}") from None
    if len(points) > BATCH_POINTS_MAX:
        raise BadRequest(f"at most {BATCH_POINTS_MAX} points at once")
    return [lat for lat, _ in points], [lon for _, lon in points]


def _is_of_extract(result: ReverseResult) -> bool:
    return result.place is not None and result.place.osm_type is not None


async def _complete(app: web.Application, results: list[ReverseResult]) -> list[ReverseResult]:
    fallback = app.get(_FALLBACK)
    if fallback is None or all(map(_is_of_extract, results)):
        return results
    return await asyncio.to_thread(fallback.complete, results)


async def _status(request: web.Request) -> web.Response:
    """Answer like Nominatim's /status: plain text, or JSON on request."""
    parameters = _parameters(request)
    output = _format(request, parameters, "text")
    if output == "text":
        return _written(b"OK", output)
    index = request.app[_GEOCODER].current.index
    return web.Response(
        body=_encode(
            {
                "status": 0,
                "message": "OK",
                "software_version": "waylog",
                "database_version": index.version,
                "index_version": index.version,
                "index": index.meta,
            }
        ),
        content_type="application/json",
        charset="utf-8",
    )
