"""The HTTP server on a real socket, asked by aiohttp and by geopy's own Nominatim client."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from geopy.geocoders import Nominatim

from geoservice.reverse import Geocoder
from geoservice.server import BATCH_POINTS_MAX, BODY_BYTES_MAX, make_app


@pytest.fixture
async def address(geocoder: Geocoder) -> AsyncIterator[str]:
    runner = web.AppRunner(make_app(geocoder), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    yield f"{host}:{port}"
    await runner.cleanup()


@pytest.fixture
async def client(address: str) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(f"http://{address}") as session:
        yield session


async def get(client: aiohttp.ClientSession, query: str, status: int = 200) -> Any:
    async with client.get(f"/reverse?{query}") as response:
        assert response.status == status
        assert response.content_type == "application/json"
        return await response.json()


async def test_reverse_answers_as_nominatim_does(client: aiohttp.ClientSession) -> None:
    body = await get(client, "lat=47.1410&lon=9.5209&accept-language=de")
    assert (body["category"], body["type"], body["addresstype"]) == ("place", "town", "town")
    assert body["name"] == "Vaduz"
    assert body["display_name"] == "Vaduz, Liechtenstein"
    assert body["address"]["country_code"] == "li"
    # Nominatim's coordinates are texts.
    assert isinstance(body["lat"], str) and abs(float(body["lat"]) - 47.14) < 0.01
    assert "GeoNames" in body["licence"]
    assert body["distance"] < 200


async def test_formats_differ_as_nominatims_do(client: aiohttp.ClientSession) -> None:
    point = "lat=47.1410&lon=9.5209"
    assert (await get(client, f"{point}&format=json"))["class"] == "place"
    geojson = await get(client, f"{point}&format=geojson")
    [feature] = geojson["features"]
    assert feature["geometry"]["type"] == "Point"
    assert feature["geometry"]["coordinates"] == pytest.approx([9.52, 47.14], abs=0.01)
    assert feature["properties"]["address"]["town"] == "Vaduz"


async def test_zoom_and_addressdetails_are_heeded(client: aiohttp.ClientSession) -> None:
    country = await get(client, "lat=47.1410&lon=9.5209&zoom=3")
    assert country["address"] == {"country": "Liechtenstein", "country_code": "li"}
    assert "address" not in await get(client, "lat=47.1410&lon=9.5209&addressdetails=0")


async def test_at_sea_the_answer_is_nominatims(client: aiohttp.ClientSession) -> None:
    for output in ("json", "jsonv2", "geojson"):
        body = await get(client, f"lat=0&lon=-30&format={output}")
        assert body == {"error": "Unable to geocode"}


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("lon=1", "'lat' is missing"),
        ("lat=1&lon=x", "'lon' must be a number"),
        ("lat=91&lon=1", "latitude must be between"),
        ("lat=nan&lon=1", "finite"),
        ("lat=1&lon=1e999", "finite"),
        ("lat=1&lon=1&zoom=x", "zoom"),
        ("lat=1&lon=1&zoom=99", "zoom"),
        ("lat=1&lon=1&format=xml", "format must be one of"),
        ("lat=1&lon=1&json_callback=x", "json_callback"),
    ],
)
async def test_a_bad_request_is_told_what_is_wrong(
    client: aiohttp.ClientSession, query: str, complaint: str
) -> None:
    body = await get(client, query, 400)
    assert body["error"]["code"] == 400
    assert complaint in body["error"]["message"]


async def test_a_batch_answers_in_order(client: aiohttp.ClientSession) -> None:
    points = [[47.141, 9.5209], [0, -30], [52.5, 13.4]]
    async with client.post("/reverse/batch", json=points) as response:
        answers = await response.json()
    assert [answer.get("name") for answer in answers] == ["Vaduz", None, "Kreuzberg"]
    assert answers[1] == {"error": "Unable to geocode"}
    lines = "\n".join(json.dumps(point) for point in points)
    async with client.post(
        "/reverse/batch", data=lines, headers={"Content-Type": "application/x-ndjson"}
    ) as response:
        assert response.content_type == "application/x-ndjson"
        assert [json.loads(line) for line in (await response.text()).splitlines()] == answers
    async with client.post("/reverse/batch", json=[]) as response:
        assert await response.json() == []


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"", "is expected"),
        (b"{", "is expected"),
        (b"\xff", "is expected"),
        (b"[[1]]", "is expected"),
        (b'[["a", 1]]', "is expected"),
        (b"[[1, 2], [91, 2]]", "point 1: the latitude"),
        (b"[" + b"[1,2]," * BATCH_POINTS_MAX + b"[1,2]]", "at most"),
    ],
)
async def test_a_bad_batch_is_told_what_is_wrong(
    client: aiohttp.ClientSession, body: bytes, complaint: str
) -> None:
    async with client.post(
        "/reverse/batch", data=body, headers={"Content-Type": "application/json"}
    ) as response:
        assert response.status == 400
        assert complaint in (await response.json())["error"]["message"]


async def test_a_body_that_is_too_long_is_refused(client: aiohttp.ClientSession) -> None:
    async with client.post(
        "/reverse/batch", data=io.BytesIO(bytes(BODY_BYTES_MAX + 1))
    ) as response:
        assert response.status == 413


async def test_status_says_what_is_served(
    client: aiohttp.ClientSession, geocoder: Geocoder
) -> None:
    async with client.get("/status") as response:
        assert await response.text() == "OK"
    async with client.get("/status?format=json") as response:
        body = await response.json()
    assert (body["status"], body["index_version"]) == (0, geocoder.index_version)


async def test_geopys_nominatim_client_understands_us(address: str) -> None:
    nominatim = Nominatim(domain=address, scheme="http", user_agent="waylog-test")
    location = await asyncio.to_thread(nominatim.reverse, (47.141, 9.5209))
    assert location.address == "Vaduz, Liechtenstein"
    assert location.raw["address"]["town"] == "Vaduz"
    assert await asyncio.to_thread(nominatim.reverse, (0, -30)) is None
