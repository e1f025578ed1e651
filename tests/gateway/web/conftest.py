"""A headless Chromium, and a small real server that serves the page and simulates the gateway."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
import pytest
import pytest_asyncio
from aiohttp import WSMsgType, web
from playwright.async_api import Browser, Page, async_playwright, expect

from gateway.users.app_setups import SETUPS, PhoneDevice, Platform
from gateway.users.auth import Identity
from gateway.viewers.areas import TICK_S, Area, AreaViewer
from gateway.viewers.viewers import Filter, Viewer
from gateway.web import base_map, vendor
from gateway.web.shell import INDEX, ShellFolder
from gateway.web.tile_server import TileServer, content_security_policy
from geoservice.tiles.served import ServedTiles
from geoservice.web.tiles import TileRoutes
from tests.gateway.viewers.town import Town
from waylog.bounding_box import BoundingBox
from waylog.config import Endpoint

PAGE = Path(vendor.__file__).parent
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    # WebGL draws the map all the same; a page that SwiftShader composes too takes much longer.
    "--disable-gpu-compositing",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
]
#: A busy machine without a graphics card takes half a minute to draw a map.
DEADLINE_MS = 90_000
#: Pixels of the screen for each of the page's. Without a graphics card, a browser test spends most
#: of its time drawing the map, and a quarter of the pixels shows the same.
PIXEL_RATIO = 0.5


def day_of(ms: int) -> str:
    """Return the date (UTC) of a time."""
    return datetime.fromtimestamp(ms / 1000, UTC).date().isoformat()


class FakeGateway:
    """The part of the gateway's HTTP interface that the page uses, controlled by the test."""

    def __init__(self, tiles: Path) -> None:
        """`tiles` is where a test may put an archive of an extract."""
        self.tiles = tiles
        self.rows: dict[str, dict[str, Any]] = {}
        self.tracks: dict[str, list[dict[str, Any]]] = {}
        self.places: list[dict[str, Any]] = []
        self.visits: list[dict[str, Any]] = []
        self.found: list[dict[str, Any]] = []  # by /search
        self.items: list[dict[str, Any]] = []  # of a timeline
        self.totals: list[dict[str, Any]] = []
        self.levels: list[dict[str, Any]] = []  # of the battery
        self.asked: list[str] = []  # paths with queries, of the diary
        self.pipeline: dict[str, Any] = {"fixes_per_s": 0, "addresses_per_s": 0, "resolver_lag": 0}
        self.credentials: str | None = None
        self.session: dict[str, Any] = {
            **{"user": "demo", "device": None, "admin": True, "open": False, "oversees": True}
        }
        self.entrances: dict[str, Any] = {"mqtt_port": 1883, "demo_token": "data/demo.token"}
        self.device_tokens: list[dict[str, Any]] = []
        self.zones: dict[str, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []  # of zones, by time
        self.friends: list[dict[str, Any]] = []  # whose devices the user sees
        self.channels: dict[str, dict[str, Any]] = {}
        self.alert_settings: dict[str, Any] = {}
        self.place_edits: dict[str, dict[str, Any]] = {}
        self.refuse_zones = ""  # with this reason
        #: Kinds of events of a device that the user is told of.
        self.notices: defaultdict[str, list[str]] = defaultdict(
            lambda: ["enter", "leave", "dwell", "silence", "speeding", "meeting"]
        )
        self.refuse_notices = ""  # with this reason
        self.sockets: set[web.WebSocketResponse] = set()
        self.streams: set[web.StreamResponse] = set()
        self.url = ""
        #: Whether the base map's tiles have land and towns. To decode and draw them is a third of
        #: what a page costs, and most tests look at something else.
        self.ground = False
        #: Base maps of other servers.
        self.tile_servers: list[TileServer] = []
        #: The folder of which the page is served as one version, with the service worker; without
        #: one, pages are served as they are, and have no worker.
        self.shell: ShellFolder | None = None
        #: Devices that are shown by area, because they are many; the page gets no others.
        self.town: Town | None = None
        self.lookers: dict[web.WebSocketResponse, AreaViewer] = {}

    def fix(self, device: str, lat: float, lon: float, **members: Any) -> dict[str, Any]:
        """Add and return a fix, which is the device's newest from now on."""
        now = int(time.time() * 1000)
        fix = {
            "id": f"{device}-{now}",
            "device": device,
            "user": device.partition("/")[0],
            "lat": lat,
            "lon": lon,
            "time": now,
            "received": now + 40,
            **members,
        }
        self.rows[device] = {**self.rows.get(device, {}), **fix}
        return fix

    def address(self, device: str, display_name: str, **parts: str) -> dict[str, Any]:
        """Add and return an address of the device's newest fix."""
        fix = self.rows[device]
        address = {
            "device": device,
            "fix_id": fix["id"],
            "time": fix["time"],
            "lat": fix["lat"],
            "lon": fix["lon"],
            "display_name": display_name,
            "address": parts,
            "resolved": fix["received"] + 60,
        }
        self.rows[device]["address"] = address
        return address

    async def send(self, kind: str, *messages: dict[str, Any]) -> None:
        """Send messages to every viewer."""
        for message in messages:
            text = json.dumps({"event": kind, "data": message})
            for socket in list(self.sockets):
                await socket.send_str(text)
            for stream in list(self.streams):
                await stream.write(f"event: {kind}\ndata: {json.dumps(message)}\n\n".encode())

    async def drop_viewers(self) -> None:
        """Close every live connection, as a restart does."""
        for socket in list(self.sockets):
            await socket.close()

    def application(self) -> web.Application:
        """Return the application: as in the gateway `/` is the page, `/static/` its folder."""
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/", self._index)
        app.router.add_get("/service-worker.js", self._service_worker)
        app.router.add_get("/static/{path:v-.+}", self._versioned)
        app.router.add_get(r"/static/world/{tile:.+\.(mvt|pbf)}", self._tile)
        app.router.add_static("/static/", PAGE)
        app.router.add_get("/v1/devices", self._devices)
        app.router.add_get("/v1/devices/{device}", self._device)
        app.router.add_get("/v1/devices/{device}/notices", self._notices)
        app.router.add_put("/v1/devices/{device}/notices", self._choose_notices)
        app.router.add_get("/v1/devices/{device}/{resource}", self._resource)
        app.router.add_get("/v1/pipeline", self._pipeline)
        app.router.add_get("/v1/session", self._who)
        app.router.add_post("/v1/session", self._sign_in)
        app.router.add_get("/v1/entrances", self._where)
        app.router.add_get("/v1/base-maps", self._base_maps)
        app.router.add_get("/v1/device-tokens", self._device_tokens)
        app.router.add_post("/v1/device-tokens", self._make_token)
        app.router.add_delete("/v1/device-tokens/{name}", self._revoke)
        app.router.add_get("/v1/geofences", self._zones)
        app.router.add_post("/v1/geofences", self._save_zone)
        app.router.add_put("/v1/geofences/{zone}", self._save_zone)
        app.router.add_delete("/v1/geofences/{zone}", self._delete_zone)
        app.router.add_get("/v1/events", self._events)
        app.router.add_get("/v1/friends", self._friends)
        app.router.add_get("/v1/friends/requests", self._friend_requests)
        app.router.add_get("/v1/alert-channels", self._channels)
        app.router.add_post("/v1/alert-channels", self._make_channel)
        app.router.add_get("/v1/alert-channels/kinds", self._kinds)
        app.router.add_get("/v1/alert-settings", self._alert_settings)
        app.router.add_put("/v1/alert-settings", self._set_alerts)
        app.router.add_get("/v1/push/key", self._no_push)
        app.router.add_patch("/v1/devices/{device}/places/{place}", self._edit_place)
        app.router.add_get("/search", self._search)
        TileRoutes(ServedTiles([self.tiles])).add_to(app)
        app.router.add_post("/reverse/batch", self._reverse)
        app.router.add_get("/v1/ws", self._socket)
        app.router.add_get("/v1/stream", self._stream)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        signing_in = request.method == "POST" and request.path == "/v1/session"
        guarded = self.credentials and request.path.startswith("/v1/") and not signing_in
        if guarded and request.cookies.get("session") != "good":
            return web.json_response({"error": "who are you?"}, status=401)
        response: web.StreamResponse = await handler(request)
        return response

    async def _who(self, request: web.Request) -> web.Response:
        return web.json_response(self.session)

    async def _sign_in(self, request: web.Request) -> web.Response:
        asked = await request.json()
        if f"{asked.get('user')}:{asked.get('token')}" != self.credentials:
            return web.json_response({"error": "unknown user, or wrong token"}, status=401)
        answer = web.json_response(self.session)
        answer.set_cookie("session", "good", httponly=True, samesite="Strict")
        return answer

    async def _where(self, request: web.Request) -> web.Response:
        return web.json_response(self.entrances)

    async def _base_maps(self, request: web.Request) -> web.Response:
        return web.json_response([asdict(each) for each in self.tile_servers])

    async def _device_tokens(self, request: web.Request) -> web.Response:
        return web.json_response(self.device_tokens)

    async def _make_token(self, request: web.Request) -> web.Response:
        asked = await request.json()
        device, token = (
            f"{self.session['user']}/{asked['name']}",
            "wl_made-by-the-simulated-gateway",
        )
        made = PhoneDevice(self.session["user"], asked["name"], token)
        platform = Platform(self.url.rstrip("/"), Endpoint("127.0.0.1", 8883), tls=True)
        self.device_tokens.append({"device": device, "tokens": 1, "newest": 1_780_000_000_000})
        setup = msgspec.to_builtins(SETUPS[asked["app"]](platform, made))
        answer = {"device": device, "token": token, "setup": setup}
        return web.json_response(answer, status=201)

    async def _revoke(self, request: web.Request) -> web.Response:
        device = f"{self.session['user']}/{request.match_info['name']}"
        self.device_tokens = [each for each in self.device_tokens if each["device"] != device]
        return web.Response(status=204)

    async def _zones(self, request: web.Request) -> web.Response:
        return web.json_response(list(self.zones.values()))

    async def _save_zone(self, request: web.Request) -> web.Response:
        if self.refuse_zones:
            return web.json_response({"error": self.refuse_zones}, status=400)
        zone_id = request.match_info.get("zone", f"zone{len(self.zones)}")
        self.zones[zone_id] = await request.json() | {"id": zone_id}
        return web.json_response(self.zones[zone_id])

    async def _delete_zone(self, request: web.Request) -> web.Response:
        del self.zones[request.match_info["zone"]]
        return web.Response(status=204)

    async def _friends(self, _: web.Request) -> web.Response:
        return web.json_response({"shown_to": [], "seen": self.friends})

    async def _friend_requests(self, _: web.Request) -> web.Response:
        return web.json_response({"received": [], "sent": [], "blocked": []})

    async def _events(self, request: web.Request) -> web.Response:
        seen = int(request.query["after"] or 0)
        until = time.monotonic() + float(request.query["wait"])
        while len(self.events) == seen and time.monotonic() < until:
            await asyncio.sleep(0.02)
        found = self.events[seen:]
        return web.json_response({"cursor": str(len(self.events)), "events": found})

    async def _channels(self, request: web.Request) -> web.Response:
        return web.json_response(list(self.channels.values()))

    async def _kinds(self, request: web.Request) -> web.Response:
        return web.json_response(["webhook", "apprise", "ntfy"])

    async def _make_channel(self, request: web.Request) -> web.Response:
        asked = await request.json()
        parts = urlsplit(asked["url"])
        shown = {name: asked[name] for name in ("name", "kind")} | {"id": str(len(self.channels))}
        self.channels[shown["id"]] = shown | {"server": f"{parts.scheme}://{parts.netloc}"}
        return web.json_response(self.channels[shown["id"]], status=201)

    async def _alert_settings(self, request: web.Request) -> web.Response:
        return web.json_response(self.alert_settings)

    async def _set_alerts(self, request: web.Request) -> web.Response:
        self.alert_settings = await request.json()
        return web.json_response(self.alert_settings)

    async def _no_push(self, request: web.Request) -> web.Response:
        return web.json_response({"key": None})

    async def _edit_place(self, request: web.Request) -> web.Response:
        place_id, changes = request.match_info["place"], await request.json()
        edit = self.place_edits.setdefault(place_id, {"place_id": place_id, "time": 1})
        edit |= {"device": request.match_info["device"], **changes}
        for place in self.places:
            if place["place_id"] == place_id and "name" in changes:
                place |= {"name": changes["name"], "named_by": "user"}
        return web.json_response(edit)

    async def _index(self, request: web.Request) -> web.StreamResponse:
        headers = {
            "Content-Security-Policy": content_security_policy(self.tile_servers),
            "Referrer-Policy": "no-referrer",
        }
        if self.shell is not None:
            document = self.shell.current().documents[INDEX]
            return web.Response(body=document, content_type="text/html", headers=headers)
        return web.FileResponse(PAGE / "index.html", headers=headers)

    async def _service_worker(self, request: web.Request) -> web.Response:
        assert self.shell is not None
        headers = {"Content-Security-Policy": content_security_policy()}
        worker = self.shell.current().worker
        return web.Response(body=worker, content_type="text/javascript", headers=headers)

    async def _versioned(self, request: web.Request) -> web.StreamResponse:
        assert self.shell is not None
        try:
            name = self.shell.unversioned(request.match_info["path"])
        except LookupError:
            raise web.HTTPNotFound from None
        assert name is not None
        return web.FileResponse(self.shell.folder / name)

    async def _tile(self, request: web.Request) -> web.StreamResponse:
        path = PAGE / "world" / request.match_info["tile"]
        if self.ground:
            return web.FileResponse(path)
        # A pack begins with where each of the tiles of three levels does.
        empty = bytes(4 * (4 + 16 + 64 + 1)) if path.suffix == ".pbf" else b""
        return web.Response(body=empty, content_type="application/octet-stream")

    async def _devices(self, request: web.Request) -> web.Response:
        if self.town is not None:
            rows = [self._row_of(self.town, name) for name in self.town.locations.devices()]
            named = [row for row in rows if request.query.get("q", "") in row["device"]]
            more = {} if "q" in request.query else {"Waylog-More-After": "demo%2Fz"}
            return web.json_response(named[: int(request.query["limit"])], headers=more)
        return web.json_response(list(self.rows.values()))

    @staticmethod
    def _row_of(town: Town, device: str) -> dict[str, Any]:
        fix = town.locations.latest(device)
        return {"device": device, "fix": msgspec.to_builtins(fix), "address": None}

    async def _device(self, request: web.Request) -> web.Response:
        assert self.town is not None
        return web.json_response(self._row_of(self.town, request.match_info["device"]))

    async def _notices(self, request: web.Request) -> web.Response:
        return web.json_response({"kinds": self.notices[request.match_info["device"]]})

    async def _choose_notices(self, request: web.Request) -> web.Response:
        if self.refuse_notices:
            return web.json_response({"error": self.refuse_notices}, status=400)
        self.notices[request.match_info["device"]] = (await request.json())["kinds"]
        return await self._notices(request)

    async def _resource(self, request: web.Request) -> web.Response:
        device, resource = request.match_info["device"], request.match_info["resource"]
        if resource == "places":
            gone = {
                each["place_id"]
                for each in self.place_edits.values()
                if each.get("deleted") or each.get("merged_into")
            }
            return web.json_response([p for p in self.places if p["place_id"] not in gone])
        if resource == "place-edits":
            return web.json_response(list(self.place_edits.values()))
        if resource == "visits":
            begin, end = int(request.query["from"]), int(request.query["to"])
            touching = [v for v in self.visits if v["departure"] >= begin and v["arrival"] <= end]
            return web.json_response(touching)
        if resource in {"timeline", "days", "statistics"}:
            self.asked.append(request.path_qs)
            return web.json_response(self._diary(resource, request))
        if resource == "battery":
            begin, end = int(request.query["from"]), int(request.query["to"])
            told = [each for each in self.levels if begin <= each["time"] <= end]
            return web.json_response({"levels": told})
        if resource == "address":
            return web.json_response(self.rows[device].get("address"))
        features = [
            {
                "type": "Feature",
                "geometry": {"type": "Point", "coordinates": [point["lon"], point["lat"]]},
                "properties": {"time": point["time"], "speed": point.get("speed")},
            }
            for point in self.tracks.get(device, [])
        ]
        return web.json_response({"type": "FeatureCollection", "features": features})

    def _diary(self, resource: str, request: web.Request) -> dict[str, Any]:
        begin, end = int(request.query["from"]), int(request.query["to"])
        if resource == "statistics":
            return {"by": request.query["by"], "totals": self.totals}
        items = [each for each in self.items if each["end"] >= begin and each["start"] <= end]
        if resource == "timeline":
            return {"items": items, "tolerance_m": 4.0}
        days = sorted({day_of(each["start"]) for each in items})
        return {"days": [{"date": day, "fixes": 100} for day in days]}

    async def _reverse(self, request: web.Request) -> web.Response:
        found = [
            {
                "display_name": f"Road {lat:.2f}, 9490 Vaduz, Liechtenstein",
                "address": {"road": f"Road {lat:.2f}", "postcode": "9490", "town": "Vaduz"}
                | {"country": "Liechtenstein"},
                "timezone": "Asia/Tokyo",
            }
            for lat, _ in await request.json()
        ]
        return web.json_response(found)

    async def _search(self, request: web.Request) -> web.Response:
        assert request.query["format"] == "jsonv2"
        wanted = request.query["q"].lower()
        found = [each for each in self.found if wanted in each["display_name"].lower()]
        return web.json_response(found[: int(request.query["limit"])])

    async def _pipeline(self, request: web.Request) -> web.Response:
        return web.json_response(self.pipeline)

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.sockets.add(socket)
        try:
            async for message in socket:
                if message.type == WSMsgType.ERROR:
                    break
                asked = json.loads(message.data)
                if asked["type"] == "ping":  # the page takes a silent connection for a dead one
                    await socket.send_json({"type": "pong"})
                if asked["type"] == "view" and self.town is not None and "bbox" in asked:
                    self._look(socket, self.town, asked)
        finally:
            self.sockets.discard(socket)
            self.lookers.pop(socket, None)
        return socket

    def _look(self, socket: web.WebSocketResponse, town: Town, asked: dict[str, Any]) -> None:
        if socket not in self.lookers:
            everything = Identity("root", admin=True)
            viewer = Viewer(Filter(topics=frozenset()), {}, everything, lambda _: ())
            self.lookers[socket] = town.areas.add(viewer)
        area = Area.of(BoundingBox.of(asked["bbox"]), asked["zoom"])
        self.lookers[socket].look_at(area, asked["devices"])

    async def ticking(self) -> None:
        """Show the town by area, as the gateway does."""
        while True:
            await asyncio.sleep(TICK_S)
            if self.town is None:
                continue
            self.town.now = int(time.time() * 1000)
            for _ in self.town.areas.steps(self.town.now):
                pass
            for socket, viewer in list(self.lookers.items()):
                for frame in viewer.take(self.town.now):
                    with suppress(ConnectionError):
                        await socket.send_bytes(frame)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        self.streams.add(response)
        try:
            while True:
                await asyncio.sleep(0.2)
                await response.write(b": still here\n\n")
        except ConnectionError:
            return response
        finally:
            self.streams.discard(response)


@pytest.fixture(scope="session")
def page_files() -> None:
    """Install the map library and the base map, as set-up does."""
    try:
        vendor.install(PAGE / "vendor", lambda line: None)
    except vendor.VendorError as error:
        pytest.skip(f"the map library is missing and cannot be fetched: {error}")
    base_map.build(PAGE / "world", lambda line: None)


@pytest_asyncio.fixture(loop_scope="module")
async def played(tmp_path: Path) -> AsyncIterator[FakeGateway]:
    """Yield a simulated gateway on a port of its own."""
    gateway = FakeGateway(tmp_path / "extract.pmtiles")
    runner = web.AppRunner(gateway.application(), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    gateway.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    ticking = asyncio.create_task(gateway.ticking())
    yield gateway
    ticking.cancel()
    await runner.cleanup()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(page_files: None) -> AsyncIterator[Browser]:
    """Launch the system's Chromium; playwright's own is not downloaded."""
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        pytest.skip("no Chromium; install it with: apt-get install chromium-headless-shell")
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(
            executable_path=executable, headless=True, args=FLAGS
        )
        expect.set_options(timeout=DEADLINE_MS)
        yield launched
        await launched.close()


class Visit:
    """A page that was opened, with its requests and its error messages."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("websocket", lambda socket: self.requests.append(socket.url))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on(
            "console",
            lambda line: self.complaints.append(line.text) if line.type == "error" else None,
        )

    async def open(self, url: str) -> None:
        """Go to a URL and wait until the map is drawn."""
        await self.page.goto(url)
        await self.page.wait_for_selector("html[data-ready=true]")


@asynccontextmanager
async def _visiting(
    browser: Browser,
    reduced_motion: Literal["reduce", "no-preference"],
    pixel_ratio: float,
) -> AsyncIterator[Visit]:
    """Open a desktop-sized page with light colours."""
    context = await browser.new_context(
        viewport={"width": 1000, "height": 640},
        device_scale_factor=pixel_ratio,
        color_scheme="light",
        reduced_motion=reduced_motion,
        timezone_id="UTC",
    )
    context.set_default_timeout(DEADLINE_MS)
    yield Visit(await context.new_page())
    await context.close()


@pytest_asyncio.fixture(loop_scope="module")
async def visit(browser: Browser) -> AsyncIterator[Visit]:
    """Yield a page that moves nothing: each frame costs much without a graphics card."""
    async with _visiting(browser, "reduce", PIXEL_RATIO) as page:
        yield page


@pytest_asyncio.fixture(loop_scope="module")
async def animated_visit(browser: Browser) -> AsyncIterator[Visit]:
    """Yield a page as most people see it: map and markers move, and no pixel is left out."""
    async with _visiting(browser, "no-preference", 1) as page:
        yield page
