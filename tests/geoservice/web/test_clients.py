"""Clients of Nominatim and Photon, with the requests of their source code.

geopy itself is used. For the other clients, the tests repeat the request and read the same members
of the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from geopy.geocoders import Nominatim, Photon

from geoservice.importer.build import build_index
from geoservice.reverse.geocoder import Geocoder
from geoservice.web.server import make_app
from tests.geoservice.town_extract import LAT, LON, write_town
from tests.http_session import http_session

#: A point at the bakery: Alte Gasse 1.
HOUSE = (LAT + 10e-4, LON + 1e-4)
#: A point on Hauptstrasse, far from houses.
STREET = (LAT, LON + 79e-4)


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Geocoder:
    directory: Path = tmp_path_factory.mktemp("town")
    index = directory / "town.geo"
    build_index([write_town(directory / "town.osm.pbf")], index)
    return Geocoder.open(index)


@pytest.fixture
async def address(town: Geocoder) -> AsyncIterator[str]:
    runner = web.AppRunner(make_app(town), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    yield f"{host}:{port}"
    await runner.cleanup()


async def get(address: str, path: str) -> Any:
    async with (
        http_session() as session,
        session.get(f"http://{address}{path}") as response,
    ):
        assert response.status == 200, await response.text()
        return await response.json()


async def test_geopys_nominatim_reverses(address: str) -> None:
    nominatim = Nominatim(domain=address, scheme="http", user_agent="waylog-test")
    found = await asyncio.to_thread(nominatim.reverse, HOUSE)
    assert found.raw["address"]["house_number"] == "1"
    assert found.raw["address"]["shop"] == found.raw["name"] == "Bäckerei Süß"
    assert found.address.startswith("Bäckerei Süß, 1, Alte Gasse, ")
    assert (found.latitude, found.longitude) == pytest.approx(HOUSE, abs=1e-6)
    french = await asyncio.to_thread(
        lambda: nominatim.reverse(STREET, language="fr", namedetails=True)
    )
    assert french.raw["address"]["road"] == "Rue Principale"
    assert french.raw["namedetails"]["name"] == "Hauptstrasse"
    bare = await asyncio.to_thread(lambda: nominatim.reverse(HOUSE, addressdetails=False))
    assert "address" not in bare.raw
    country = await asyncio.to_thread(lambda: nominatim.reverse(HOUSE, zoom=3))
    assert country.raw["address"]["country_code"] == "li"
    many = await asyncio.to_thread(lambda: nominatim.reverse(HOUSE, exactly_one=False))
    assert [place.address for place in many] == [found.address]
    assert await asyncio.to_thread(nominatim.reverse, (0, -30)) is None


async def test_geopys_nominatim_geocodes(address: str) -> None:
    nominatim = Nominatim(domain=address, scheme="http", user_agent="waylog-test")
    found = await asyncio.to_thread(nominatim.geocode, "Alte Gasse 3, Sternwil")
    assert (found.latitude, found.longitude) == pytest.approx((LAT + 30e-4, LON + 1e-4), abs=1e-6)
    parts = {"street": "Hauptstrasse 1", "city": "Sternwil", "country": "Liechtenstein"}
    found = await asyncio.to_thread(lambda: nominatim.geocode(parts, addressdetails=True))
    assert found.raw["address"]["house_number"] == "1"
    many = await asyncio.to_thread(
        lambda: nominatim.geocode(
            "Hauptstrasse",
            exactly_one=False,
            limit=2,
            country_codes=["li"],
            viewbox=[(LAT - 1, LON - 1), (LAT + 1, LON + 1)],
            bounded=True,
            featuretype="settlement",
            geometry="geojson",
            extratags=True,
            namedetails=True,
            language="de",
        )
    )
    assert many is None
    assert await asyncio.to_thread(nominatim.geocode, "zzzqqq") is None


async def test_geopys_photon_reverses_and_geocodes(address: str) -> None:
    photon = Photon(domain=f"{address}/photon", scheme="http", user_agent="waylog-test")
    found = await asyncio.to_thread(photon.reverse, HOUSE)
    assert found.raw["properties"]["street"] == "Alte Gasse"
    assert "Sternwil" in found.address
    found = await asyncio.to_thread(photon.geocode, "Alte Gasse 3")
    assert found.raw["properties"]["housenumber"] == "3"
    assert await asyncio.to_thread(photon.reverse, (0, -30)) is None


async def test_traccars_geocoder_of_type_nominatim(address: str) -> None:
    answer = await get(
        address,
        f"/reverse?format=json&lat={HOUSE[0]:f}&lon={HOUSE[1]:f}&zoom=18&addressdetails=1"
        "&accept-language=de",
    )
    parts = answer["address"]
    assert answer["display_name"]
    assert (parts["house_number"], parts["road"], parts["town"]) == ("1", "Alte Gasse", "Sternwil")
    assert (parts["postcode"], parts["country_code"].upper()) == ("9999", "LI")
    # Where nothing is found, it needs an object without an address.
    nothing = await get(address, "/reverse?format=json&lat=0.0&lon=-30.0&zoom=18&addressdetails=1")
    assert "address" not in nothing


async def test_traccars_geocoder_of_type_photon(address: str) -> None:
    answer = await get(address, f"/photon/reverse?lat={HOUSE[0]:f}&lon={HOUSE[1]:f}&lang=de")
    properties = answer["features"][0]["properties"]
    assert (properties["housenumber"], properties["street"]) == ("1", "Alte Gasse")
    assert (properties["city"], properties["countrycode"]) == ("Sternwil", "LI")
    nothing = await get(address, "/photon/reverse?lat=0.0&lon=-30.0")
    assert nothing["features"] == []


async def test_dawarich_with_nominatim(address: str) -> None:
    # The Ruby library sends all of its query parameters for all of its services.
    answer = await get(
        address,
        "/reverse?accept-language=en&addressdetails=1&format=json"
        f"&lat={HOUSE[0]}&lon={HOUSE[1]}&polygon=1",
    )
    assert "error" not in answer
    parts = answer["address"]
    assert parts["town"] == "Sternwil" and parts["country"] == "Liechtenstein"
    assert answer["osm_id"] and answer["type"] == "bakery"
    assert float(answer["lat"]) and float(answer["lon"])
    assert "error" in await get(address, "/reverse?format=json&lat=0&lon=-30&polygon=1")


async def test_dawarich_with_photon(address: str) -> None:
    answer = await get(
        address,
        f"/photon/reverse?distance_sort=true&lang=en&lat={HOUSE[0]}&limit=10&lon={HOUSE[1]}"
        "&radius=1",
    )
    assert answer["type"] == "FeatureCollection"
    [feature] = answer["features"]
    assert feature["geometry"]["coordinates"] == pytest.approx([HOUSE[1], HOUSE[0]], abs=1e-6)
    properties = feature["properties"]
    assert (properties["name"], properties["osm_value"]) == ("Bäckerei Süß", "bakery")
    assert (properties["city"], properties["country"]) == ("Sternwil", "Liechtenstein")
    assert isinstance(properties["osm_id"], int) and properties["osm_type"] == "N"


async def test_home_assistants_places(address: str) -> None:
    answer = await get(
        address,
        f"/reverse?format=json&lat={HOUSE[0]}&lon={HOUSE[1]}&accept-language=de"
        "&addressdetails=1&namedetails=1&zoom=18&limit=1&email=me%40example.com",
    )
    assert (answer["class"], answer["type"], answer["addresstype"]) == ("shop", "bakery", "shop")
    assert answer["namedetails"]["name"] == "Bäckerei Süß"
    assert answer["address"]["road"] == "Alte Gasse"
    osm_id = f"{answer['osm_type'][0].upper()}{answer['osm_id']}"
    [details] = await get(
        address,
        f"/lookup?osm_ids={osm_id}&format=json&addressdetails=1&extratags=1&namedetails=1"
        "&email=&accept-language=de",
    )
    assert details["osm_id"] == answer["osm_id"]
    assert "extratags" in details


async def test_shapes_of_a_street_in_all_formats(address: str) -> None:
    where = f"/reverse?lat={STREET[0]}&lon={STREET[1]}&extratags=1&namedetails=1"
    flat = await get(address, f"{where}&format=jsonv2")
    assert (flat["category"], flat["type"], flat["addresstype"]) == (
        *("highway", "residential"),
        "road",
    )
    assert (flat["osm_type"], flat["osm_id"], flat["place_rank"]) == ("way", 1001, 26)
    assert flat["importance"] == pytest.approx(0.0533433, abs=1e-6)
    assert flat["boundingbox"] == ["47.1400000", "47.1400000", "9.5160000", "9.5280000"]
    assert next(iter(flat["address"])) == "road" and flat["address"]["town"] == "Sternwil"
    geocode = await get(address, f"{where}&format=geocodejson")
    geocoding = geocode["features"][0]["properties"]["geocoding"]
    assert (geocoding["type"], geocoding["name"]) == ("street", "Hauptstrasse")
    assert "street" not in geocoding and geocoding["city"] == "Sternwil"
    assert geocoding["admin"] == {"level8": "Sternwil"}
    geojson = await get(address, f"{where}&format=geojson")
    assert geojson["features"][0]["bbox"] == [9.516, 47.14, 9.528, 47.14]
