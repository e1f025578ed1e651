"""Our geocoder as geopy's users would use it."""

from __future__ import annotations

from pathlib import Path

import pytest
from geopy.adapters import AioHTTPAdapter
from geopy.extra.rate_limiter import RateLimiter
from geopy.point import Point

from geoservice.geopy_adapter import GeoService


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
