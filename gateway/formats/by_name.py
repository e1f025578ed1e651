"""The parsers of HTTP bodies, by the names of their formats.

Separate from gateway.http.ingest.paths, which also knows how each format is answered: the parsing
process does not need that.
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

#: Parsers of apps; each also accepts bodies of the other apps.
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
