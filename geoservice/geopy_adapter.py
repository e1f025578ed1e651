"""Our geocoder as one of geopy's, so that programs written for geopy run without a network."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any, NoReturn

from geopy.adapters import BaseAsyncAdapter, BaseSyncAdapter
from geopy.exc import GeocoderQueryError
from geopy.geocoders.base import DEFAULT_SENTINEL
from geopy.geocoders.base import Geocoder as GeopyGeocoder
from geopy.location import Location
from geopy.point import Point

from geoservice.nominatim import answer
from geoservice.reverse import ZOOM_MAX, Geocoder

Locations = Any  # Location | list[Location] | None: geopy has no types


class NoNetworkAdapter(BaseSyncAdapter):  # type: ignore[misc]
    """What stands in for geopy's HTTP client: nothing here asks anybody."""

    def get_json(self, url: str, *, timeout: float, headers: dict[str, str]) -> NoReturn:
        """Refuses."""
        raise GeocoderQueryError("this geocoder sends no requests")

    get_text = get_json


class GeoService(GeopyGeocoder):  # type: ignore[misc]
    """A geopy geocoder over an index in this process.

    With an asynchronous `adapter_factory` (geopy.adapters.AioHTTPAdapter) `reverse` returns an
    awaitable, as all of geopy's geocoders do. Raises IndexUnavailable when there is no index.
    """

    def __init__(
        self,
        index: Path | str | None = None,
        *,
        timeout: Any = DEFAULT_SENTINEL,
        proxies: Any = DEFAULT_SENTINEL,
        user_agent: str | None = None,
        ssl_context: Any = DEFAULT_SENTINEL,
        adapter_factory: Any = None,
    ) -> None:
        super().__init__(
            timeout=timeout,
            proxies=proxies,
            user_agent=user_agent,
            ssl_context=ssl_context,
            adapter_factory=adapter_factory or NoNetworkAdapter,
        )
        self._geocoder = Geocoder.open(Path(index) if index is not None else None)

    def reverse(
        self,
        query: Any,
        *,
        exactly_one: bool = True,
        language: Any = None,
        timeout: Any = DEFAULT_SENTINEL,
        zoom: int | None = None,
    ) -> Locations | Awaitable[Locations]:
        """The location of a point, or None; `raw` is Nominatim's jsonv2.

        `language` and `timeout` are accepted for geopy's sake: there is one language in the
        index, and nothing to wait for. Raises ValueError when it is not a point.
        """
        point = query if isinstance(query, Point) else Point(query)
        result = self._geocoder.reverse(
            point.latitude, point.longitude, zoom=ZOOM_MAX if zoom is None else zoom
        )
        locations: Locations = None
        if result.found:
            raw = answer(result)
            location = Location(raw["display_name"], (float(raw["lat"]), float(raw["lon"])), raw)
            locations = location if exactly_one else [location]
        if isinstance(self.adapter, BaseAsyncAdapter):
            return _ready(locations)
        return locations


async def _ready(locations: Locations) -> Locations:
    return locations
