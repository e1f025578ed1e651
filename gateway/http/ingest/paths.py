"""Paths and their formats: the paths that users type into apps, or that apps make themselves."""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway.formats import Parser, positions
from gateway.formats.by_name import PARSERS
from gateway.http.ingest import app_responses as answers
from gateway.http.ingest.app_responses import Builder


class Format(NamedTuple):
    """The format of requests to a path: methods, parser, response and special behaviour."""

    name: str
    methods: tuple[str, ...]
    parse: Parser
    answer: Builder
    #: The response includes an address, and waits a moment for that of the acknowledged fix.
    tells_address: bool = False
    #: An unknown token is answered with 410, which makes the app register again.
    gone_for_unknown: bool = False
    #: Clients of this format retry after 429. Others delete the request, and get 503 instead.
    heeds_429: bool = False


def _app(name: str, methods: tuple[str, ...], answer: Builder) -> Format:
    return Format(name, methods, PARSERS[name], answer)


_POST: Final = ("POST",)
_BOTH: Final = ("GET", "POST")

#: `GET /?id=...`, as Traccar's oldest apps send it.
AT_ROOT: Final = _app("osmand", _BOTH, answers.nothing)

_OWNTRACKS: Final = _app("owntracks", _POST, answers.owntracks)._replace(tells_address=True)
_OVERLAND: Final = _app("overland", _POST, answers.overland)._replace(tells_address=True)
_TRACCAR: Final = _app("traccar", _BOTH, answers.success)
_OPENGTS: Final = _app("opengts", _BOTH, answers.true)

#: By the names that users know them by: `/NAME`, `/NAME/TOKEN` and `/in/NAME/TOKEN`.
_APPS: Final = (
    _OWNTRACKS,
    _OVERLAND,
    AT_ROOT,
    _TRACCAR,
    _app("gpslogger", _BOTH, answers.nothing),
    _app("colota", _BOTH, answers.empty_object),
    _OPENGTS,
)

#: The paths of PhoneTrack in a Nextcloud: apps import such addresses.
PHONETRACK_ROOTS: Final = ("/apps/phonetrack", "/index.php/apps/phonetrack", "/phonetrack")


def _phonetrack(answer: Builder, methods: tuple[str, ...] = _BOTH) -> Format:
    return _app("phonetrack", methods, answer)


_PHONETRACK: Final = {
    "/logGet": _phonetrack(answers.phonetrack, ("GET",)),
    "/logPost": _phonetrack(answers.phonetrack, _POST),
    "/logPostMultiple": _phonetrack(answers.phonetrack_batch, _POST),
    "/log/osmand": _phonetrack(answers.empty_array),
    "/log/gpslogger": _phonetrack(answers.empty_array),
    "/log/locusmap": _phonetrack(answers.empty_array),
    "/log/owntracks": _OWNTRACKS,
    "/log/overland": _OVERLAND,
    "/log/traccar": _TRACCAR,
    "/log/opengts": _OPENGTS,
}


def _paths() -> dict[str, Format]:
    paths = {
        "/v1/positions": Format(
            positions.SOURCE, _POST, positions.parse, answers.positions, heeds_429=True
        ),
        # The path of OwnTracks Recorder, and those of Dawarich.
        "/pub": _OWNTRACKS,
        "/api/v1/owntracks/points": _OWNTRACKS,
        "/api/v1/overland/batches": _OVERLAND,
        "/api/webhook/{token}": _app("home_assistant", _POST, answers.empty_object)._replace(
            gone_for_unknown=True
        ),
        # Traccar Client posts to the root of the address it is given.
        "/": _TRACCAR._replace(methods=_POST),
    }
    for app in _APPS:
        for path in (f"/{app.name}", f"/{app.name}/{{token}}", f"/in/{app.name}/{{token}}"):
            paths[path] = app
    for root in PHONETRACK_ROOTS:
        for tail, device_format in _PHONETRACK.items():
            paths[f"{root}{tail}/{{token}}/{{device}}"] = device_format
    return paths


#: Formats by path, in aiohttp's notation with `{token}` and `{device}`.
PATHS: Final = _paths()
