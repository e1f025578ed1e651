"""A geopy geocoder over our index, so that programs written for geopy run without a network.

The keywords are those of geopy's own Nominatim class. `Location.raw` is an object of Nominatim's
format jsonv2, as there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec
from geopy.adapters import BaseAsyncAdapter, BaseSyncAdapter
from geopy.exc import GeocoderQueryError, GeocoderServiceError
from geopy.geocoders.base import DEFAULT_SENTINEL
from geopy.geocoders.base import Geocoder as GeopyGeocoder
from geopy.location import Location
from geopy.point import Point

from geoservice.reverse.geocoder import ZOOM_MAX, Geocoder, Place
from geoservice.web.formats.described import Details
from geoservice.web.languages import parse_languages
from geoservice.web.nominatim import render_list, render_reverse
from geoservice.web.search_server import PARTS, NotSearchable, SearchEndpoint

#: A Location, a list of them or None, or an awaitable of these. geopy has no type annotations.
Locations = Any

_FORMAT: Final = "jsonv2"


class NoNetworkAdapter(BaseSyncAdapter):  # type: ignore[misc]
    """A replacement for geopy's HTTP client that sends no request."""

    def get_json(self, url: str, *, timeout: float, headers: dict[str, str]) -> NoReturn:
        """Raise GeocoderQueryError."""
        raise GeocoderQueryError("this geocoder sends no requests")

    get_text = get_json


class GeoService(GeopyGeocoder):  # type: ignore[misc]
    """A geopy geocoder over an index in this process.

    With an asynchronous `adapter_factory` (geopy.adapters.AioHTTPAdapter) `reverse` and `geocode`
    return awaitables, as all of geopy's geocoders do. Raises IndexUnavailable when there is no
    index.
    """

    def __init__(
        self,
        index: Path | str | None = None,
        *,
        scheme: str | None = None,
        timeout: Any = DEFAULT_SENTINEL,
        proxies: Any = DEFAULT_SENTINEL,
        user_agent: str | None = None,
        ssl_context: Any = DEFAULT_SENTINEL,
        adapter_factory: Any = None,
    ) -> None:
        """Open the index, by default the embedded world. The network options have no effect."""
        super().__init__(
            scheme=scheme,
            timeout=timeout,
            proxies=proxies,
            user_agent=user_agent,
            ssl_context=ssl_context,
            adapter_factory=adapter_factory or NoNetworkAdapter,
        )
        self._geocoder = Geocoder.open(Path(index) if index is not None else None)
        self._search = SearchEndpoint()

    def reverse(
        self,
        query: Any,
        *,
        exactly_one: bool = True,
        timeout: Any = DEFAULT_SENTINEL,
        language: Any = False,
        addressdetails: bool = True,
        zoom: int | None = None,
        namedetails: bool = False,
    ) -> Locations:
        """Return the location of a point (or a list with it), or None.

        `language` lists the wanted languages, as in the header Accept-Language. `timeout` is
        accepted for compatibility with geopy and ignored. Raises ValueError when `query` is not a
        point.
        """
        point = query if isinstance(query, Point) else Point(query)
        details = Details(
            addressdetails=addressdetails,
            namedetails=namedetails,
            languages=parse_languages(language or ""),
        )
        result = self._geocoder.reverse(
            point.latitude,
            point.longitude,
            zoom=ZOOM_MAX if zoom is None else zoom,
            languages=details.languages,
        )
        if not result.found:
            return self._give(None)
        raw = msgspec.json.decode(render_reverse(self._geocoder, result, _FORMAT, details))
        location = _location(raw)
        return self._give(location if exactly_one else [location])

    def geocode(
        self,
        query: str | Mapping[str, str],
        *,
        exactly_one: bool = True,
        timeout: Any = DEFAULT_SENTINEL,
        limit: int | None = None,
        addressdetails: bool = False,
        language: Any = False,
        country_codes: str | Iterable[str] | None = None,
        viewbox: Any = None,
        bounded: bool = False,
        extratags: bool = False,
        namedetails: bool = False,
    ) -> Locations:
        """Return the location of an address or name (or a list of locations), or None.

        A mapping is a structured query with the keys street, city, county, state, country,
        postalcode. Raises GeocoderServiceError when the index was built without the search, and
        GeocoderQueryError for an unknown key.
        """
        from geoservice.search.query import LIMIT_DEFAULT, Query, Structured

        structured, text = None, ""
        if isinstance(query, str):
            text = query
        else:
            unknown = query.keys() - set(PARTS)
            if unknown:
                raise GeocoderQueryError(f"a question has no part {', '.join(sorted(unknown))}")
            structured = Structured(**query)
        codes = [country_codes] if isinstance(country_codes, str) else country_codes or ()
        details = Details(
            addressdetails=addressdetails,
            extratags=extratags,
            namedetails=namedetails,
            languages=parse_languages(language or ""),
        )
        places = self._found(
            Query(
                text=text,
                structured=structured,
                limit=1 if exactly_one else limit or LIMIT_DEFAULT,
                countries=frozenset(code.lower() for code in codes),
                viewbox=_box(viewbox),
                bounded=bounded,
                languages=details.languages,
            )
        )
        raw = msgspec.json.decode(render_list(self._geocoder, places, _FORMAT, details))
        locations = [_location(members) for members in raw]
        if not locations:
            return self._give(None)
        return self._give(locations[0] if exactly_one else locations)

    def _found(self, query: Any) -> list[Place]:
        from geoservice.search.search import search

        try:
            return search(self._search.layers(self._geocoder), query)
        except NotSearchable as error:
            raise GeocoderServiceError(str(error)) from None

    def _give(self, locations: Locations) -> Locations:
        if isinstance(self.adapter, BaseAsyncAdapter):
            return _ready(locations)
        return locations


async def _ready(locations: Locations) -> Locations:
    return locations


def _location(raw: dict[str, Any]) -> Location:
    return Location(raw["display_name"], (float(raw["lat"]), float(raw["lon"])), raw)


def _box(corners: Any) -> tuple[float, float, float, float] | None:
    """Return a view box as (west, south, east, north); geopy gives two corners in any order."""
    if corners is None:
        return None
    first, second = (corner if isinstance(corner, Point) else Point(corner) for corner in corners)
    return (
        min(first.longitude, second.longitude),
        min(first.latitude, second.latitude),
        max(first.longitude, second.longitude),
        max(first.latitude, second.latitude),
    )
