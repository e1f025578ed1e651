"""Downloads of extracts from a local mirror, also one that breaks off or serves wrong data."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from geoservice.extracts.download import DownloadFailed, Mirror, Region, find_region

CONTENT = bytes(range(256)) * 4000  # 1 MB
EXTRACT = "europe/liechtenstein-latest.osm.pbf"


class Server:
    """A mirror with the layout of Geofabrik's."""

    def __init__(self) -> None:
        self.url = ""
        self.content = CONTENT
        self.md5 = hashlib.md5(CONTENT).hexdigest()
        self.etag = '"1"'
        self.indexes = {"index-v1-nogeom.json"}
        self.break_after: list[int] = []  # bytes to send before breaking off, one entry per request
        self.ranges = True
        self.requests: list[tuple[str, str | None]] = []

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/osm/{path:.*}", self._get)
        return app

    async def _get(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        self.requests.append((path, request.headers.get("Range")))
        if path in self.indexes:
            return web.json_response(index())
        if path == f"{EXTRACT}.md5":
            return web.Response(text=f"{self.md5}  liechtenstein-latest.osm.pbf\n")
        if path != EXTRACT:
            raise web.HTTPNotFound
        begin = 0
        asked = request.headers.get("Range")
        if self.ranges and asked and request.headers.get("If-Range") == self.etag:
            begin = int(asked.removeprefix("bytes=").rstrip("-"))
            if begin >= len(self.content):
                raise web.HTTPRequestRangeNotSatisfiable
        headers = {"ETag": self.etag, "Content-Length": str(len(self.content) - begin)}
        if begin:
            last = len(self.content) - 1
            headers["Content-Range"] = f"bytes {begin}-{last}/{len(self.content)}"
        response = web.StreamResponse(status=206 if begin else 200, headers=headers)
        await response.prepare(request)
        if self.break_after:
            await response.write(self.content[begin : begin + self.break_after.pop(0)])
            await asyncio.sleep(0.05)
            assert request.transport is not None
            request.transport.close()
            return response
        await response.write(self.content[begin:])
        return response

    def received(self) -> list[str | None]:
        """Return the Range headers of the requests for the extract."""
        return [asked for path, asked in self.requests if path == EXTRACT]


def index() -> object:
    def feature(id_: str, name: str, path: str, *codes: str) -> object:
        urls = {"pbf": f"https://download.geofabrik.de/{path}-latest.osm.pbf"}
        properties = {"id": id_, "name": name, "parent": "x", "iso3166-1:alpha2": codes}
        return {"type": "Feature", "properties": properties | {"urls": urls}, "geometry": None}

    return {
        "type": "FeatureCollection",
        "features": [
            feature("europe", "Europe", "europe"),
            feature("liechtenstein", "Liechtenstein", "europe/liechtenstein", "LI"),
            feature("us/georgia", "Georgia", "north-america/us/georgia"),
            feature("georgia", "Georgia", "europe/georgia", "GE"),
            {"properties": {"id": "no-extract", "urls": {}}},
        ],
    }


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    runner = web.AppRunner(server.app(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}/osm/"
    yield server
    await runner.cleanup()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geoservice.extracts.download._PAUSE_S", 0.01)


async def test_an_extract_is_received_and_verified(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    target = tmp_path / "new" / "li.osm.pbf"
    async with Mirror(server.url) as mirror:
        region = await mirror.find("liechtenstein")
        done = await mirror.download(region.path, target, lambda *each: seen.append(each))
    assert target.read_bytes() == CONTENT
    assert (done.size_bytes, done.received_bytes, done.md5) == (len(CONTENT),) * 2 + (server.md5,)
    assert seen[0] == (0, len(CONTENT)) and seen[-1] == (len(CONTENT), len(CONTENT))
    assert names(target.parent) == ["li.osm.pbf"]


async def test_what_breaks_off_goes_on_where_it_was(server: Server, tmp_path: Path) -> None:
    server.break_after = [300_000, 200_000]
    async with Mirror(server.url) as mirror:
        done = await mirror.download(EXTRACT, tmp_path / "li.osm.pbf")
    assert (tmp_path / "li.osm.pbf").read_bytes() == CONTENT
    assert done.received_bytes == len(CONTENT)
    assert server.received() == [None, "bytes=300000-", "bytes=500000-"]


async def test_a_later_command_goes_on_too(server: Server, tmp_path: Path) -> None:
    server.break_after = [300_000, 0, 0, 0, 0, 0]
    target = tmp_path / "li.osm.pbf"
    async with Mirror(server.url) as mirror:
        with pytest.raises(DownloadFailed, match="the same command goes on from there"):
            await mirror.download(EXTRACT, target)
        assert not target.exists()
        done = await mirror.download(EXTRACT, target)
    assert target.read_bytes() == CONTENT
    assert done.received_bytes == len(CONTENT) - 300_000


async def test_a_file_that_was_replaced_meanwhile_is_received_whole(
    server: Server, tmp_path: Path
) -> None:
    server.break_after = [300_000, 0, 0, 0, 0, 0]
    target = tmp_path / "li.osm.pbf"
    async with Mirror(server.url) as mirror:
        with pytest.raises(DownloadFailed):
            await mirror.download(EXTRACT, target)
        server.content = CONTENT[::-1]
        server.md5 = hashlib.md5(server.content).hexdigest()
        server.etag = '"2"'
        await mirror.download(EXTRACT, target)
    assert target.read_bytes() == server.content


async def test_a_server_without_ranges_is_asked_for_everything_again(
    server: Server, tmp_path: Path
) -> None:
    server.ranges = False
    server.break_after = [300_000]
    async with Mirror(server.url) as mirror:
        await mirror.download(EXTRACT, tmp_path / "li.osm.pbf")
    assert (tmp_path / "li.osm.pbf").read_bytes() == CONTENT


async def test_a_file_that_is_not_what_the_mirror_says_is_refused(
    server: Server, tmp_path: Path
) -> None:
    server.md5 = "0" * 32
    async with Mirror(server.url) as mirror:
        with pytest.raises(DownloadFailed, match="the mirror says 0000"):
            await mirror.download(EXTRACT, tmp_path / "li.osm.pbf")
    assert names(tmp_path) == []


async def test_the_newest_is_not_received_again(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "li.osm.pbf"
    target.write_bytes(CONTENT)
    async with Mirror(server.url) as mirror:
        assert (await mirror.download(EXTRACT, target)).already_there
    assert server.received() == []


async def test_an_older_file_is_replaced_at_once(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "li.osm.pbf"
    target.write_bytes(b"old")
    async with Mirror(server.url) as mirror:
        await mirror.download(EXTRACT, target)
    assert target.read_bytes() == CONTENT


async def test_a_mirror_without_an_index_is_asked_by_path(server: Server) -> None:
    server.indexes = set()
    async with Mirror(server.url) as mirror:
        assert (await mirror.find("europe/liechtenstein")).path == EXTRACT
        for text in ("../secret", "a b", ""):
            with pytest.raises(DownloadFailed, match="by its path"):
                await mirror.find(text)


async def test_the_larger_index_will_do(server: Server) -> None:
    server.indexes = {"index-v1.json"}
    async with Mirror(server.url) as mirror:
        assert (await mirror.find("li")).id == "liechtenstein"


async def test_what_the_mirror_does_not_have_is_said(server: Server, tmp_path: Path) -> None:
    async with Mirror(server.url) as mirror:
        with pytest.raises(DownloadFailed, match=r"there is no .*none\.osm\.pbf\.md5"):
            await mirror.download("none.osm.pbf", tmp_path / "x")
    async with Mirror("http://127.0.0.1:9") as mirror:
        with pytest.raises(DownloadFailed, match="cannot be reached"):
            await mirror.regions()
    for url in ("ftp://x", "nonsense", "http://"):
        with pytest.raises(DownloadFailed, match="http or https"):
            Mirror(url)


REGIONS = [
    Region("liechtenstein", "Liechtenstein", "europe", ("LI",), EXTRACT),
    Region("us/georgia", "Georgia", "us", (), "north-america/us/georgia-latest.osm.pbf"),
    Region("georgia", "Georgia", "europe", ("GE",), "europe/georgia-latest.osm.pbf"),
    Region("us", "United States", "north-america", ("US",), "north-america/us-latest.osm.pbf"),
]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("liechtenstein", "liechtenstein"),
        ("Liechtenstein", "liechtenstein"),
        ("europe/liechtenstein", "liechtenstein"),
        ("li", "liechtenstein"),
        ("georgia", "georgia"),
        ("us/georgia", "us/georgia"),
        ("united states", "us"),
    ],
)
def test_a_region_is_found_by_what_people_call_it(text: str, found: str) -> None:
    assert find_region(REGIONS, text).id == found


def test_likely_regions_are_named() -> None:
    with pytest.raises(DownloadFailed, match="perhaps liechtenstein"):
        find_region(REGIONS, "lichtenstein")
    with pytest.raises(DownloadFailed, match="may be one of us/georgia, ge"):
        find_region([REGIONS[1], Region("ge", "Georgia", None, (), "ge")], "Georgia")


async def waylog(*words: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "waylog.cli", "geo", "download", *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()


async def test_the_command(server: Server, tmp_path: Path) -> None:
    words = ("--mirror", server.url)
    status, out, _ = await waylog("liechtenstein", *words, "-o", str(tmp_path), "--json")
    outcome = json.loads(out)
    assert (status, outcome["bytes"], outcome["region"]) == (0, len(CONTENT), "liechtenstein")
    assert (tmp_path / "liechtenstein-latest.osm.pbf").read_bytes() == CONTENT
    status, out, _ = await waylog("--list", *words)
    assert status == 0 and "us/georgia" in out and "no-extract" not in out
    status, _, errors = await waylog("lichtenstein", *words)
    assert status == 1 and "perhaps liechtenstein" in errors
    status, _, errors = await waylog(*words)
    assert status == 1 and "give a REGION" in errors
