"""Reading over HTTP: permissions and results."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientSession, web

from tests.gateway.records import address
from tests.gateway.running import Gateway, Login, answered, json_of, places_of
from tests.http_session import http_session
from waylog.observability.telemetry import now_ms

NOW = now_ms()


async def send(gateway: Gateway, user: Login, *positions: dict[str, object]) -> None:
    """Send fixes and wait until they can be read."""
    async with gateway.client(user) as client:
        await json_of(await client.post("/v1/positions", json=list(positions)))
        device = str(positions[-1]["device"])

        async def fix() -> object:
            answer = await client.get(f"/v1/devices/{user.name}%2F{device}")
            found = await answer.json()
            return answer.status == 200 and found["fix"]

        await answered(fix)


async def devices(client: ClientSession) -> list[dict[str, Any]]:
    """Return what the gateway tells of all devices."""
    rows: list[dict[str, Any]] = await json_of(await client.get("/v1/devices"))
    return rows


async def test_devices_come_with_their_newest_fix_and_address(
    gateway: Gateway, user: Login
) -> None:
    gateway.publish(address(f"{user.name}/phone", NOW))
    await send(
        gateway,
        user,
        {"device": "büro pc", "lat": 1, "lon": 2},
        {"device": "phone", "lat": 47.2, "lon": 9.6, "time": NOW, "speed": 1},
        {"device": "phone", "lat": 47.1, "lon": 9.5, "time": NOW - 5000},
    )
    async with gateway.client(user) as client:
        office, phone = await answered(
            lambda: devices(client), lambda rows: len(rows) == 2 and rows[1]["address"]
        )
        assert (phone["device"], phone["user"], phone["name"]) == (
            *(f"{user.name}/phone", user.name, "phone"),
        )
        assert (phone["lat"], phone["lon"], phone["time"]) == (47.2, 9.6, NOW)
        assert phone["fix"]["speed"] == 1
        assert phone["address"]["display_name"] == "Aeulestrasse 5, Vaduz"
        assert office["device"] == f"{user.name}/büro_pc"
        one = await json_of(await client.get(f"/v1/devices/{user.name}%2Fb%C3%BCro_pc"))
        assert one == office
        found = await json_of(await client.get(f"/v1/devices/{user.name}%2Fphone/address"))
        assert found == phone["address"]
        answer = await client.get("/v1/devices?limit=1")
        assert [row["name"] for row in await json_of(answer)] == ["büro_pc"]
        more = answer.headers["Waylog-More-After"]
        rows = await json_of(await client.get(f"/v1/devices?limit=1&after={more}"))
        assert [row["name"] for row in rows] == ["phone"]
        for wanted, names in (
            ("Ü", ["büro_pc"]),
            ("o_", ["büro_pc"]),
            ("pc2", []),
            ("H", ["phone"]),
        ):
            found = await json_of(await client.get("/v1/devices", params={"q": wanted}))
            assert [row["name"] for row in found] == names, wanted
        answer = await client.get("/v1/devices", params={"q": user.name, "limit": "1"})
        assert [row["name"] for row in await json_of(answer)] == ["büro_pc"]
        more = answer.headers["Waylog-More-After"]
        rows = await json_of(await client.get(f"/v1/devices?q={user.name}&after={more}"))
        assert [row["name"] for row in rows] == ["phone"]


async def test_a_track_is_cut_by_time_and_comes_in_four_formats(
    gateway: Gateway, user: Login
) -> None:
    fixes = [{"device": "bike", "lat": 47 + n, "lon": 9, "time": NOW + n * 1000} for n in range(5)]
    await send(gateway, user, *fixes)
    path = f"/v1/devices/{user.name}%2Fbike/track"
    async with gateway.client(user) as client:
        answer = await client.get(path, params={"from": str(NOW + 1000), "to": str(NOW + 3000)})
        assert answer.content_type == "application/geo+json"
        (feature,) = json.loads(await answer.read())["features"]
        assert [lat for _, lat in feature["geometry"]["coordinates"]] == [48, 49, 50]
        for name, start in (("gpx", "<?xml"), ("kml", "<?xml"), ("csv", "device,time,lat")):
            text = await (await client.get(path, params={"format": name})).text()
            assert text.startswith(start)
            assert "51" in text
        iso = await client.get(path, params={"from": "2020-01-01T00:00:00+01:00"})
        assert len(json.loads(await iso.read())["features"]) == 1
        for bad in ({"format": "shp"}, {"from": "noon"}):
            assert "error" in await json_of(await client.get(path, params=bad), 400)


async def test_nobody_reads_what_belongs_to_others_but_an_admin(
    gateway: Gateway, user: Login
) -> None:
    await send(gateway, user, {"device": "phone", "lat": 1, "lon": 2})
    other = gateway.user(f"{user.name}-other")
    admin = gateway.user(f"{user.name}-admin", admin=True)
    device = f"{user.name}%2Fphone"
    for resource in ("", "/address", "/track", "/places"):
        async with gateway.client(other) as client:
            await json_of(await client.get(f"/v1/devices/{device}{resource}"), 403)
            assert await json_of(await client.get("/v1/devices")) == []
    async with gateway.client(admin) as client:
        await json_of(await client.get(f"/v1/devices/{device}"))
        names = [row["device"] for row in await json_of(await client.get("/v1/devices"))]
        assert f"{user.name}/phone" in names


async def test_a_device_token_reads_its_device_alone(gateway: Gateway, user: Login) -> None:
    await send(gateway, user, {"device": "phone", "lat": 1, "lon": 2})
    await send(gateway, user, {"device": "bike", "lat": 1, "lon": 2})
    token = Login(user.name, gateway.users.add_token(user.name, "bike"))
    async with gateway.client(token) as client:
        rows = await json_of(await client.get("/v1/devices"))
        assert [row["name"] for row in rows] == ["bike"]
        await json_of(await client.get(f"/v1/devices/{user.name}%2Fphone"), 403)


async def test_no_cache_keeps_what_somebody_was_told(gateway: Gateway, user: Login) -> None:
    await send(gateway, user, {"device": "phone", "lat": 47.1, "lon": 9.5, "time": NOW})
    async with gateway.client(user) as client:
        device = f"/v1/devices/{user.name}%2Fphone"
        answers = [
            await client.get(path)
            for path in ("/v1/devices", device, f"{device}/track", "/v1/session", "/v1/none")
        ]
        answers.append(await client.post("/v1/session"))
        for answer in answers:
            assert answer.headers["Cache-Control"] == "no-store", answer
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
        # What is everybody's is asked for again, and not sent again.
        assert (await client.get("/")).headers["Cache-Control"] == "no-cache"


async def test_a_device_nobody_has_heard_of_is_404(gateway: Gateway, user: Login) -> None:
    async with gateway.client(user) as client:
        for path in (f"{user.name}%2Fnone", f"{user.name}%2Fnone/address", "nobody"):
            assert "error" in await json_of(await client.get(f"/v1/devices/{path}"), 404)
        track = await json_of(await client.get(f"/v1/devices/{user.name}%2Fnone/track"))
        assert track["features"] == []


async def test_places_are_those_of_the_job(gateway: Gateway, user: Login) -> None:
    import pyarrow
    from pyarrow import parquet

    def write(*names: str) -> None:
        rows = [
            {
                **{"user": user.name, "device": None, "place_id": name, "lat": 1.0, "lon": 2.0},
                **{"label": None, "name": name, "visits": 3, "dwell_s": 60.0, "address": name},
            }
            for name in names
        ]
        folder = gateway.folder / "places"
        folder.mkdir(exist_ok=True)
        parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "new")
        (folder / "new").replace(folder / "places.parquet")

    async with gateway.client(user) as client:
        device = f"{user.name}/phone"
        assert await places_of(client, device) == []
        write("home")
        assert [place["name"] for place in await places_of(client, device)] == ["home"]
        write("home", "work")
        places = await places_of(client, device)
        assert [place["name"] for place in places] == ["home", "work"]
        assert places[0].keys() == {
            *("user", "device", "place_id", "lat", "lon", "label", "name", "visits"),
            *("dwell_s", "address", "radius_m", "first", "last", "named_by"),
            *("confidence", "roles"),
        }


async def test_the_pipeline_tells_lag_and_throughput(gateway: Gateway, user: Login) -> None:
    await send(gateway, user, {"device": "phone", "lat": 1, "lon": 2})
    async with gateway.client(gateway.admin) as client:
        status = await json_of(await client.get("/v1/pipeline"))
    assert status["devices"] >= 1
    assert status["uptime_s"] > 0
    assert {"fixes_per_second", "addresses_per_second", "resolver_lag"} <= status.keys()
    assert status["groups"][0]["lag"] == sum(status["groups"][0]["lag_by_partition"].values()) > 0


async def test_metrics_are_for_administrators(gateway: Gateway, user: Login) -> None:
    await send(gateway, user, {"device": "phone", "lat": 1, "lon": 2})
    async with gateway.client(gateway.admin) as client:
        text = await (await client.get("/metrics")).text()
        assert 'waylog_gateway_fixes_total{source="positions"}' in text
        assert 'waylog_gateway_requests_total{route="/v1/positions",status="200"}' in text
        assert "waylog_gateway_ack_seconds_bucket" in text
        assert "waylog_gateway_location_view_delay_seconds" in text
        assert user.token not in text


async def test_probes_and_schema_are_public(gateway: Gateway) -> None:
    async with gateway.client() as client:
        for path in ("/healthz", "/readyz", "/openapi.json"):
            await json_of(await client.get(path))


async def test_the_page_and_its_files_are_served(gateway: Gateway) -> None:
    async with gateway.client() as client:
        page = await client.get("/")
        assert page.content_type == "text/html"
        assert "default-src 'self'" in page.headers["Content-Security-Policy"]
        script = await client.get("/static/js/api.js")
        assert script.content_type == "text/javascript"
        unchanged = {"If-None-Match": script.headers["ETag"]}
        assert (await client.get("/static/js/api.js", headers=unchanged)).status == 304


@pytest.mark.parametrize(
    "path",
    [
        "/static/vendor.py",
        "/static/../process.py",
        "/static/%2e%2e/process.py",
        "/static/..%2fprocess.py",
        "/static//etc/passwd",
        "/static/js",
        "/static/x%00y.js",
        "/static/x\0y.js",
    ],
)
async def test_nothing_else_leaves_the_folder_of_the_page(gateway: Gateway, path: str) -> None:
    reader, writer = await asyncio.open_connection(*gateway.address)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400", b"HTTP/1.0 400"))
    writer.close()


# --- the geocoder behind the gateway ------------------------------------------------------------


@pytest.fixture
async def geocoder() -> AsyncIterator[str]:
    """Run a geocoder that answers with the request it received; yield its URL."""

    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        return web.json_response(
            {"path": request.path, "query": dict(request.query), "body": body.decode()},
            status=400 if "lat" not in request.query and request.path == "/reverse" else 200,
        )

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_the_geocoders_paths_are_passed_on(gateway: Gateway, geocoder: str) -> None:
    (gateway.folder / "behind").mkdir()
    behind = Gateway(
        gateway.folder / "behind",
        gateway.bootstrap_servers,
        *("--geo-url", geocoder),
    )
    try:
        ada = behind.user("ada")
        async with behind.client(ada) as client:
            query = f"lat=1&lon=2&zoom=18&token={ada.token}"
            found = await json_of(await client.get(f"/reverse?{query}"))
            assert found["path"] == "/reverse"
            assert found["query"] == {"lat": "1", "lon": "2", "zoom": "18"}
            await json_of(await client.get("/reverse"), 400)
            batch = await json_of(await client.post("/reverse/batch", data=b"[[1,2]]"))
            assert (batch["path"], batch["body"]) == ("/reverse/batch", "[[1,2]]")
            assert (await json_of(await client.get("/status")))["path"] == "/status"
            found = await json_of(await client.get("/search?q=Vaduz"))
            assert (found["path"], found["query"]) == ("/search", {"q": "Vaduz"})
            assert (await json_of(await client.get("/lookup?osm_ids=W1")))["path"] == "/lookup"
    finally:
        behind.close()


async def test_without_a_geocoder_its_paths_say_so(gateway: Gateway, user: Login) -> None:
    async with gateway.client(user) as client:
        answer = await json_of(await client.get("/reverse?lat=1&lon=2"), 503)
        assert "--geo-url" in answer["error"]


async def test_who_reads_is_asked_for_credentials_until_they_are_revoked(gateway: Gateway) -> None:
    (gateway.folder / "strict").mkdir()
    strict = Gateway(gateway.folder / "strict", gateway.bootstrap_servers)
    try:
        async with strict.client() as client:
            for path in ("/v1/devices", "/v1/stream", "/v1/ws", "/v1/pipeline", "/reverse"):
                await json_of(await client.get(path), 401)
        user = strict.user("ada")
        async with strict.client(user) as client:
            await json_of(await client.get("/v1/devices"))
        async with http_session(strict.url) as client:
            await json_of(await client.get(f"/v1/devices?token={user.token}"))
            strict.users.revoke("ada")
            await answered(
                lambda: client.get(f"/v1/devices?token={user.token}"),
                lambda answer: answer.status == 401,
            )
    finally:
        strict.close()


async def test_a_late_fix_is_not_told_beside_the_address_of_a_newer_one(
    gateway: Gateway, user: Login
) -> None:
    # The newest fix is unknown: the log has lost it, or has not been read so far.
    late = {"device": "phone", "lat": 1, "lon": 2, "time": NOW - 3_600_000}
    await send(gateway, user, late)
    gateway.publish(address(f"{user.name}/phone", NOW))
    async with gateway.client(user) as client:
        rows = await answered(
            lambda: devices(client), lambda rows: bool(rows) and rows[0]["address"]
        )
        assert rows[0]["fix"] is None
        assert (rows[0]["lat"], rows[0]["lon"], rows[0]["time"]) == (47.14, 9.52, NOW)
