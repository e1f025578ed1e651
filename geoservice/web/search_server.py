"""`/search` over HTTP, with Nominatim's parameters and answers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import msgspec

from geoservice.reverse.geocoder import DEFAULT_LAYERS, Geocoder, Place
from geoservice.web.formats.described import Details
from geoservice.web.nominatim import render_list
from geoservice.web.parameters import BadRequest, Parameters

if TYPE_CHECKING:
    from geoservice.search.query import Box, Query, SearchLayer

PARTS: Final = ("amenity", "street", "city", "county", "state", "postalcode", "country")

_PHOTON_LIMIT: Final = 15
_BIAS: Final = 0.2  # half the side of the box, in degrees, that is preferred around a given point
_TEXT_CHARACTERS_MAX: Final = 1000
_COUNTRY_CODE: Final = re.compile("[a-z]{2}")
_EXCLUDED: Final = re.compile("[NWR]?[0-9]{1,18}")
_POINT: Final = re.compile(
    r"\s*\[?\s*([+-]?\d{1,3}(?:\.\d+)?)\s*[,\s]\s*([+-]?\d{1,3}(?:\.\d+)?)\s*\]?\s*"
)


class NotSearchable(Exception):
    """The index was built without the search; the message says what to do."""


class SearchEndpoint:
    """The endpoint /search. It keeps the open layers of an index until another index is in use."""

    def __init__(self) -> None:
        self._opened: tuple[Geocoder, list[SearchLayer]] | None = None

    def layers(self, geocoder: Geocoder) -> list[SearchLayer]:
        """Return the searchable layers; raises NotSearchable."""
        if self._opened is None or self._opened[0] is not geocoder:
            # Imported here, so that processes that never search save the memory.
            from geoservice.search.layers import open_layers

            layers = open_layers(geocoder)
            if not layers:
                raise NotSearchable(
                    "the index was built without the search; build it again with "
                    "`waylog geo import` or `waylog geo world`"
                )
            self._opened = geocoder, layers
        return self._opened[1]

    def answer(
        self,
        geocoder: Geocoder,
        parameters: Parameters,
        output: str,
        accept_language: str | None,
        url: str,
    ) -> bytes:
        """Return the body of the answer. `url` is that of the link to more places in xml.

        Raises BadRequest or NotSearchable.
        """
        details = parameters.details(accept_language, addressdetails=False)
        text, parts = _question(parameters)
        places = self._find(geocoder, parameters, details, text, parts)
        asked = ", ".join(parts.values()) if parts else text
        attributes = _attributes(parameters, places, parts or {"q": text}, url)
        return render_list(geocoder, places, output, details, query=asked, attributes=attributes)

    def photon(self, geocoder: Geocoder, parameters: Parameters, details: Details) -> list[Place]:
        """Return the places for a query with Photon's parameters; raises as `answer` does."""
        from geoservice.search.query import LIMIT_MAX, Query
        from geoservice.search.search import search

        text = parameters.text("q") or ""
        if not text.strip():
            raise BadRequest("missing search term 'q': /?q=berlin")
        if len(text) > _TEXT_CHARACTERS_MAX:
            raise BadRequest(f"A query is at most {_TEXT_CHARACTERS_MAX} characters long.")
        viewbox, bounded = _box(parameters.text("bbox")), True
        if viewbox is None and parameters.text("lat") is not None:
            lat, lon = parameters.number("lat"), parameters.number("lon")
            viewbox = lon - _BIAS, lat - _BIAS, lon + _BIAS, lat + _BIAS
            bounded = False
        query = Query(
            text=text,
            limit=max(1, min(LIMIT_MAX, parameters.integer("limit", _PHOTON_LIMIT))),
            viewbox=viewbox,
            bounded=bounded,
            languages=details.languages,
        )
        return search(self.layers(geocoder), query)

    def _find(
        self,
        geocoder: Geocoder,
        parameters: Parameters,
        details: Details,
        text: str,
        parts: dict[str, str],
    ) -> list[Place]:
        from geoservice.search.query import Structured
        from geoservice.search.search import search

        query = _query(parameters, details)
        point = _POINT.fullmatch(text)
        if point is not None and "." in text:
            return _reverse(geocoder, float(point[1]), float(point[2]), query)
        structured = Structured(**parts) if parts else None
        query = msgspec.structs.replace(query, text=text, structured=structured)
        return search(self.layers(geocoder), query)


def _attributes(
    parameters: Parameters, places: Sequence[Place], asked: dict[str, str], url: str
) -> dict[str, str]:
    excluded = ",".join(
        f"{place.osm_type[0].upper()}{place.osm_id}" if place.osm_type else str(place.place_id)
        for place in places
    )
    more = asked | {"exclude_place_ids": excluded, "format": "xml"}
    attributes = {"more_url": f"{url}?{urlencode(more)}"}
    if excluded:
        attributes["exclude_place_ids"] = excluded
    viewbox = parameters.text("viewbox")
    if viewbox:
        attributes["viewbox"] = viewbox
    return attributes


def _question(parameters: Parameters) -> tuple[str, dict[str, str]]:
    text = parameters.text("q")
    parts = {name: parameters.text(name) or "" for name in PARTS}
    parts = {name: part for name, part in parts.items() if part}
    if text is not None and parts:
        raise BadRequest(
            "Structured query parameters"
            f"({', '.join(PARTS)}) cannot be used together with 'q' parameter."
        )
    if text is None and not parts:
        raise BadRequest("Nothing to search for.")
    for asked in (text or "", *parts.values()):
        if len(asked) > _TEXT_CHARACTERS_MAX:
            raise BadRequest(f"A query is at most {_TEXT_CHARACTERS_MAX} characters long.")
    return text or "", parts


def _query(parameters: Parameters, details: Details) -> Query:
    from geoservice.search.query import FEATURE_RANKS, LIMIT_DEFAULT, LIMIT_MAX, Query

    feature = parameters.text("featureType")
    layers = parameters.layers()
    if feature is not None:
        layers = frozenset({"address"})
    codes = [code.strip() for code in (parameters.text("countrycodes") or "").lower().split(",")]
    return Query(
        limit=max(1, min(LIMIT_MAX, parameters.integer("limit", LIMIT_DEFAULT))),
        countries=frozenset(filter(_COUNTRY_CODE.fullmatch, codes)),
        viewbox=_viewbox(parameters),
        bounded=parameters.flag("bounded", default=False),
        ranks=FEATURE_RANKS.get(feature or ""),
        layers=layers,
        excluded=_excluded(parameters.text("exclude_place_ids") or ""),
        languages=details.languages,
        dedupe=parameters.flag("dedupe", default=True),
    )


def _viewbox(parameters: Parameters) -> Box | None:
    return _box(parameters.text("viewbox") or parameters.text("viewboxlbrt"))


def _box(text: str | None) -> Box | None:
    if not text:
        return None
    try:
        x1, y1, x2, y2 = (float(edge) for edge in text.split(","))
    except ValueError:
        count = text.count(",") + 1
        problem = "needs to be numbers" if count == 4 else "needs 4 coordinates"
        raise BadRequest(f"Bounding box parameter {problem}.") from None
    if not all(map(math.isfinite, (x1, y1, x2, y2))):
        raise BadRequest("Bounding box parameter needs to be numbers.")
    return min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)


def _excluded(text: str) -> frozenset[str]:
    names = [name.strip() for name in text.upper().split(",")]
    for name in names:
        if name and not _EXCLUDED.fullmatch(name):
            raise BadRequest(f"Invalid exclude ID: {name[:40].lower()}")
    return frozenset(name for name in names if name)


def _reverse(geocoder: Geocoder, lat: float, lon: float, query: Query) -> list[Place]:
    """Answer a query that is a pair of coordinates with the place at that point."""
    try:
        result = geocoder.reverse(
            lat, lon, layers=query.layers or DEFAULT_LAYERS, languages=query.languages
        )
    except ValueError as error:
        raise BadRequest(str(error)) from None
    return [result.place] if result.place is not None else []
