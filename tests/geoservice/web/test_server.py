"""The HTTP server on a real socket, with aiohttp and geopy's own Nominatim client."""

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
from geopy.location import Location

from geoservice.fallback.fallback import Fallback
from geoservice.reverse.geocoder import Geocoder
from geoservice.web.server import BATCH_POINTS_MAX, BODY_BYTES_MAX, make_app
from tests.http_session import http_session


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
    async with http_session(f"http://{address}") as session:
        yield session


async def get(
    client: aiohttp.ClientSession, query: str, status: int = 200, path: str = "/reverse"
) -> Any:
    async with client.get(f"{path}?{query}") as response:
        assert response.status == status, await response.text()
        assert response.headers["Content-Type"] == "application/json; charset=utf-8"
        return await response.json()


async def get_text(client: aiohttp.ClientSession, url: str, content_type: str) -> str:
    async with client.get(url) as response:
        assert response.headers["Content-Type"] == f"{content_type}; charset=utf-8"
        return await response.text()


VADUZ = "lat=47.1410&lon=9.5209"


async def test_reverse_answers_as_nominatim_does(client: aiohttp.ClientSession) -> None:
    body = await get(client, f"{VADUZ}&format=jsonv2&accept-language=de")
    assert (body["category"], body["type"], body["addresstype"]) == ("place", "town", "town")
    assert body["name"] == "Vaduz"
    assert body["display_name"] == "Vaduz, Liechtenstein"
    assert body["address"]["country_code"] == "li"
    # Nominatim's coordinates are strings.
    assert isinstance(body["lat"], str) and abs(float(body["lat"]) - 47.14) < 0.01
    assert "GeoNames" in body["licence"]
    assert body["distance"] < 200


async def test_the_format_is_xml_unless_json_is_accepted_alone(
    client: aiohttp.ClientSession,
) -> None:
    assert "<reversegeocode" in await get_text(client, f"/reverse?{VADUZ}", "text/xml")
    async with client.get(f"/reverse?{VADUZ}", headers={"Accept": "application/json"}) as response:
        assert (await response.json())["category"] == "place"


async def test_zoom_and_addressdetails_are_heeded(client: aiohttp.ClientSession) -> None:
    country = await get(client, f"{VADUZ}&zoom=3&format=json")
    assert country["address"] == {"country": "Liechtenstein", "country_code": "li"}
    assert (country["class"], country["type"]) == ("boundary", "administrative")
    assert "address" not in await get(client, f"{VADUZ}&addressdetails=0&format=json")
    # As in Nominatim, every value but 0 means yes.
    assert "address" in await get(client, f"{VADUZ}&addressdetails=false&format=json")


@pytest.mark.parametrize("zoom", ["-1", "0", "19", "99", "%2B5", "1" * 100])
async def test_a_zoom_out_of_range_is_the_nearest_one(
    client: aiohttp.ClientSession, zoom: str
) -> None:
    assert (await get(client, f"{VADUZ}&format=json&zoom={zoom}"))["address"]["country_code"]


async def test_at_sea_the_answer_is_nominatims(client: aiohttp.ClientSession) -> None:
    for output in ("json", "jsonv2", "geojson", "geocodejson"):
        body = await get(client, f"lat=0&lon=-30&format={output}")
        assert body == {"error": "Unable to geocode"}
    xml = await get_text(client, "/reverse?lat=0&lon=-30", "text/xml")
    assert xml.endswith("<error>Unable to geocode</error></reversegeocode>")
    assert ' querystring="lat=0.0&amp;lon=-30.0&amp;format=xml"' in xml


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("lon=1", "Parameter 'lat' missing."),
        ("", "Parameter 'lon' missing."),
        ("lat=1&lon=x", "Parameter 'lon' must be a number."),
        ("lat=&lon=1", "Parameter 'lat' must be a number."),
        ("lat=91&lon=1", "the latitude must be between"),
        ("lat=1e300&lon=1", "the latitude must be between"),
        ("lat=1&lon=361", "the longitude must be between"),
        ("lat=nan&lon=1", "Parameter 'lat' must be a number."),
        ("lat=1&lon=1e999", "Parameter 'lon' must be a number."),
        ("lat=%00&lon=%F0%9F%98%80", "Parameter 'lon' must be a number."),
        ("lat=1&lon=1&lat=x", "Parameter 'lat' must be a number."),
        ("lat=1&lon=1&zoom=x", "Parameter 'zoom' must be a number."),
        ("lat=1&lon=1&zoom=" + "9" * 5000, "Parameter 'zoom' must be a number."),
        ("lat=1&lon=1&zoom=10.5", "Parameter 'zoom' must be a number."),
        (
            "lat=1&lon=1&layer=address,castle",
            "Parameter 'layer' must be a comma-separated list of: "
            "address, poi, railway, natural, manmade",
        ),
        ("lat=1&lon=1&polygon_threshold=x", "Parameter 'polygon_threshold' must be a number."),
        ("lat=1&lon=1&polygon_svg=1", "Parameter 'polygon_svg' is not supported"),
        ("lat=1&lon=1&json_callback=x", "Parameter 'json_callback' is not supported."),
        ("lat=1&lon=1&debug=1", "Debug output is not enabled on this server."),
    ],
)
async def test_a_bad_request_is_told_what_is_wrong(
    client: aiohttp.ClientSession, query: str, complaint: str
) -> None:
    body = await get(client, f"{query}&format=jsonv2", 400)
    assert list(body["error"]) == ["code", "message"]
    assert body["error"]["code"] == 400
    assert complaint in body["error"]["message"]


async def test_refusals_come_in_the_format_that_was_asked_for(
    client: aiohttp.ClientSession,
) -> None:
    async with client.get("/reverse?lat=x&lon=1") as response:
        assert response.status == 400
        assert response.headers["Content-Type"] == "text/xml; charset=utf-8"
        assert (
            "<error><code>400</code><message>Parameter 'lat' must be a number.</message></error>"
            in await response.text()
        )
    for output in ("html", "", "JSON"):
        async with client.get(f"/reverse?lat=1&lon=1&format={output}") as response:
            assert response.status == 400
            assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
            assert await response.text() == (
                "ERROR 400: Parameter 'format' must be one of: "
                "xml, geojson, geocodejson, json, jsonv2"
            )


@pytest.mark.parametrize("layer", ["", ",", "address", "poi, natural", "ADDRESS,%20poi"])
async def test_layers_are_a_list_in_any_case_with_spaces(
    client: aiohttp.ClientSession, layer: str
) -> None:
    body = await get(client, f"{VADUZ}&format=json&layer={layer}")
    assert ("error" in body) == (layer == "poi, natural")


async def test_the_old_addresses_of_nominatim_work(client: aiohttp.ClientSession) -> None:
    body = await get(client, f"{VADUZ}&format=json", path="/reverse.php")
    assert body["name"] == "Vaduz"


async def test_objects_that_are_not_in_the_index_are_left_out(
    client: aiohttp.ClientSession,
) -> None:
    for output, empty in (
        ("json", []),
        ("jsonv2", []),
        (
            "geojson",
            {
                "type": "FeatureCollection",
                "licence": "Data © OpenStreetMap contributors, ODbL 1.0. http://osm.org/copyright",
                "features": [],
            },
        ),
    ):
        query = f"osm_ids=W1,n2,R3,X4,,N,N5x,N%D9%A3,W{'9' * 40}&format={output}"
        assert await get(client, query, path="/lookup") == empty
    xml = await get_text(client, "/lookup", "text/xml")
    assert "<searchresults" in xml and "<place" not in xml
    many = ",".join(f"N{number}" for number in range(51))
    body = await get(client, f"osm_ids={many}&format=json", 400, path="/lookup")
    assert body == {"error": {"code": 400, "message": "Too many object IDs."}}


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


class Elsewhere:
    """An external geocoder that knows the open sea."""

    def reverse(self, query: tuple[float, float], *, exactly_one: bool, timeout: float) -> Any:
        """Return the same location for every point."""
        return Location("Open sea", (0.0, 0.0), {"address": {"sea": "Open sea"}})


async def test_what_the_index_does_not_know_is_asked_elsewhere(geocoder: Geocoder) -> None:
    fallback = Fallback("elsewhere", Elsewhere(), wait_s=5.0)
    runner = web.AppRunner(make_app(geocoder, fallback), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        async with http_session(f"http://{host}:{port}") as client:
            body = await get(client, "lat=0&lon=-30&format=jsonv2")
            assert body["display_name"] == "Open sea"
            async with client.post("/reverse/batch", json=[[0, -30], [47.141, 9.5209]]) as response:
                names = [answer["display_name"] for answer in await response.json()]
            assert names == ["Open sea", "Vaduz, Liechtenstein"]
    finally:
        await runner.cleanup()
        await asyncio.to_thread(fallback.close)


async def test_status_says_what_is_served(
    client: aiohttp.ClientSession, geocoder: Geocoder
) -> None:
    async with client.get("/status") as response:
        assert await response.text() == "OK"
        assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    async with client.get("/status?format=json") as response:
        body = await response.json()
    assert (body["status"], body["message"]) == (0, "OK")
    assert body["database_version"] == body["index_version"] == geocoder.index_version
    text = await get_text(client, "/status?format=xml", "text/plain")
    assert text == "ERROR 400: Parameter 'format' must be one of: text, json"


async def test_geopys_nominatim_client_understands_us(address: str) -> None:
    nominatim = Nominatim(domain=address, scheme="http", user_agent="waylog-test")
    location = await asyncio.to_thread(nominatim.reverse, (47.141, 9.5209))
    assert location.address == "Vaduz, Liechtenstein"
    assert location.raw["address"]["town"] == "Vaduz"
    assert await asyncio.to_thread(nominatim.reverse, (0, -30)) is None


async def test_search_answers_as_nominatim_does(client: aiohttp.ClientSession) -> None:
    async with client.get("/search?q=vaduz") as response:
        assert response.headers["Content-Type"] == "application/json; charset=utf-8"
        [vaduz, *_] = await response.json()
    # The address is not included unless it is requested.
    assert list(vaduz) == [
        *("place_id", "licence", "lat", "lon", "category", "type", "place_rank", "importance"),
        *("addresstype", "name", "display_name", "boundingbox", "timezone", "index_version"),
    ]
    assert vaduz["display_name"] == "Vaduz, Liechtenstein"
    [paris] = await get(
        client, "q=paris&limit=1&format=json&addressdetails=1&countrycodes=US,xx", path="/search"
    )
    assert paris["address"]["country_code"] == "us"
    [city] = await get(client, "city=Paris&state=Texas&format=json&limit=1", path="/search")
    assert city["display_name"] == "Paris, Texas, United States"
    geocode = await get(client, "q=vaduz&format=geocodejson&limit=1", path="/search")
    assert geocode["geocoding"]["query"] == "vaduz"
    [here] = await get(client, "q=47.141,9.5209", path="/search")
    assert here["name"] == "Vaduz"


async def test_search_tells_xml_clients_where_more_is(client: aiohttp.ClientSession) -> None:
    xml = await get_text(
        client, "/search?q=vaduz&format=xml&limit=1&viewbox=9,48,10,47", "text/xml"
    )
    assert '<searchresults timestamp="' in xml and 'querystring="vaduz"' in xml
    assert 'viewbox="9,48,10,47"' in xml
    assert "/search?q=vaduz&amp;exclude_place_ids=3042030&amp;format=xml" in xml


async def test_what_is_nowhere_gives_an_empty_list(client: aiohttp.ClientSession) -> None:
    assert await get(client, "q=zzzqqq", path="/search") == []
    assert await get(client, "q=", path="/search") == []
    assert (await get(client, "q=zzzqqq&format=geojson", path="/search"))["features"] == []


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("", "Nothing to search for."),
        ("q=a&city=b", "cannot be used together with 'q' parameter."),
        ("q=a&limit=x", "Parameter 'limit' must be a number."),
        ("q=a&viewbox=1,2,3", "Bounding box parameter needs 4 coordinates."),
        ("q=a&viewbox=nan,1,2,3", "Bounding box parameter needs to be numbers."),
        ("q=a&layer=castle", "Parameter 'layer' must be"),
        ("q=a&exclude_place_ids=x", "Invalid exclude ID: x"),
        ("q=91.0,0.5", "latitude"),
        ("q=" + "a" * 1001, "at most 1000 characters"),
    ],
)
async def test_a_bad_search_is_told_what_is_wrong(
    client: aiohttp.ClientSession, query: str, complaint: str
) -> None:
    body = await get(client, query, 400, path="/search")
    assert complaint in body["error"]["message"]
