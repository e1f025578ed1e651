"""The geopy adapter, used as geopy's users would."""

from __future__ import annotations

from pathlib import Path

import pytest
from geopy.adapters import AioHTTPAdapter
from geopy.exc import ConfigurationError, GeocoderQueryError, GeocoderServiceError
from geopy.extra.rate_limiter import AsyncRateLimiter, RateLimiter
from geopy.geocoders.base import Geocoder as GeopyGeocoder
from geopy.point import Point

from geoservice.geopy_adapter import GeoService
from geoservice.index.format import read_header, write_index
from geoservice.search.sections import SECTIONS


def test_reverse_returns_a_location(world_path: Path) -> None:
    with GeoService(world_path) as geocoder:
        location = geocoder.reverse("47.1410, 9.5209", language="de", timeout=1)
        assert location.address == "Vaduz, Liechtenstein"
        assert location.latitude == pytest.approx(47.14, abs=0.01)
        assert location.raw["address"]["country_code"] == "li"
        assert geocoder.reverse(Point(47.141, 9.5209)) == location
        assert geocoder.reverse((47.141, 9.5209), exactly_one=False) == [location]


def test_the_open_sea_is_none(world_path: Path) -> None:
    geocoder = GeoService(str(world_path))
    assert geocoder.reverse((0, -30)) is None
    assert geocoder.reverse((0, -30), exactly_one=False) is None


def test_what_is_no_point_is_refused(world_path: Path) -> None:
    with pytest.warns(UserWarning), pytest.raises(ValueError, match=r"[Ll]atitude"):
        GeoService(world_path).reverse((95, 0))


async def test_with_an_asynchronous_adapter_it_is_awaited(world_path: Path) -> None:
    async with GeoService(world_path, adapter_factory=AioHTTPAdapter) as geocoder:
        location = await geocoder.reverse((47.141, 9.5209))
        assert location.address == "Vaduz, Liechtenstein"
        assert await geocoder.reverse((0, -30)) is None


def test_it_works_under_geopys_rate_limiter(world_path: Path) -> None:
    reverse = RateLimiter(GeoService(world_path).reverse, min_delay_seconds=0)
    assert reverse((47.141, 9.5209), zoom=3).address == "Liechtenstein"


def test_it_is_one_of_geopys_geocoders(world_path: Path) -> None:
    geocoder = GeoService(world_path, scheme="http", timeout=3, proxies={}, user_agent="me")
    assert isinstance(geocoder, GeopyGeocoder)
    assert (geocoder.scheme, geocoder.timeout) == ("http", 3)
    with pytest.raises(ConfigurationError, match="schemes"):
        GeoService(world_path, scheme="ftp")


def test_geocode_finds_places_by_name(world_path: Path) -> None:
    geocoder = GeoService(world_path)
    vaduz = geocoder.geocode("Vaduz, Liechtenstein")
    assert vaduz.address == "Vaduz, Liechtenstein"
    assert vaduz.latitude == pytest.approx(47.14, abs=0.01)
    assert "address" not in vaduz.raw
    found = geocoder.geocode(
        {"city": "Paris"}, exactly_one=False, limit=3, addressdetails=True, country_codes="US"
    )
    assert len(found) == 3
    assert {place.raw["address"]["country_code"] for place in found} == {"us"}
    near = geocoder.geocode("Paris", viewbox=[Point(34, -96), (33, -95)], bounded=True)
    assert near.address == "Paris, Texas, United States"
    assert geocoder.geocode("zzzqqq") is None
    assert geocoder.geocode("zzzqqq", exactly_one=False) is None
    with pytest.raises(GeocoderQueryError, match="no part planet"):
        geocoder.geocode({"planet": "Mars"})


async def test_geocode_is_awaited_too(world_path: Path) -> None:
    async with GeoService(world_path, adapter_factory=AioHTTPAdapter) as geocoder:
        assert (await geocoder.geocode("Vaduz")).address == "Vaduz, Liechtenstein"
        assert await geocoder.geocode("zzzqqq") is None
        limited = AsyncRateLimiter(geocoder.geocode, min_delay_seconds=0)
        assert (await limited("Vaduz")).address == "Vaduz, Liechtenstein"


def test_an_index_without_the_search_says_so(world_path: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.bin"
    data = memoryview(world_path.read_bytes())
    header = read_header(data)
    write_index(
        old,
        {
            name: bytes(data[section.offset : section.offset + section.length])
            for name, section in header.sections.items()
            if name not in SECTIONS
        },
    )
    with pytest.raises(GeocoderServiceError, match="built without the search"):
        GeoService(old).geocode("Vaduz")
