"""The parsers of bodies over HTTP, by the names of their formats.

Apart from gateway.http.ingest.paths, which knows how each is answered: what only reads needs nothing of that.
"""

from __future__ import annotations

from typing import Final

from gateway.formats import (
    Parser,
    colota,
    gpslogger,
    home_assistant,
    opengts,
    osmand,
    overland,
    owntracks,
    phonetrack,
    positions,
    traccar,
)
from gateway.formats.any_app import of_any_app

#: Of apps, whose bodies come to each other's addresses.
_OF_APPS: Final[dict[str, Parser]] = {
    colota.SOURCE: colota.parse,
    gpslogger.SOURCE: gpslogger.parse,
    home_assistant.SOURCE: home_assistant.parse,
    opengts.SOURCE: opengts.parse,
    osmand.SOURCE: osmand.parse,
    overland.SOURCE: overland.parse,
    owntracks.SOURCE: owntracks.parse,
    phonetrack.SOURCE: phonetrack.parse,
    traccar.SOURCE: traccar.parse,
}

PARSERS: Final[dict[str, Parser]] = {
    positions.SOURCE: positions.parse,
    **{name: of_any_app(name, parse) for name, parse in _OF_APPS.items()},
}
