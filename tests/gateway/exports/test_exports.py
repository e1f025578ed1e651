"""What users take out: a device's fixes in each format, and all that there is of them."""

from __future__ import annotations

import io
import json
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from gateway.exports.questions import FORMATS
from spark.places.job import write_places
from spark.runtime.tasks import LocalEngine
from tests.consumers.running import Broker
from tests.gateway.running import Gateway, Login, answered, json_of
from tests.spark.places.test_job import table_of, write_history
from tests.spark.synthetic import make_person
from waylog.cli import main
from waylog.replay.player import read_files
from waylog.replay.readers.recorded import RecordedFix

NEW_MS = 1_790_000_000_000
#: Of the history's fixes.
DEVICE = "ex1/phone"


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two people for four days, half of it compacted, and their places."""
    folder = tmp_path_factory.mktemp("exports")
    table = table_of({f"ex{seed}/phone": make_person(seed, days=4) for seed in range(2)})
    write_history(folder / "history", table, 0, table.num_rows // 2)
    assert main(["history", "compact", "--out", str(folder / "history"), "--all"]) == 0
    write_history(folder / "history", table, table.num_rows // 2)
    write_places(LocalEngine(1), str(folder / "history"), str(folder / "places"))
    return folder


@pytest.fixture(scope="module")
def gateway(
    history: Path, gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    running = Gateway(
        tmp_path_factory.mktemp("exporting"),
        gateway_broker.address,
        *("--history", str(history / "history"), "--places", str(history / "places")),
    )
    yield running
    running.close()


@pytest.fixture(scope="module")
def owner(gateway: Gateway) -> Login:
    return gateway.user("ex1")


async def taken(client: aiohttp.ClientSession, query: str = "") -> bytes:
    async with client.get(f"/v1/export?{query}") as answer:
        content = await answer.read()
        assert answer.status == 200, content
        assert "attachment" in answer.headers["Content-Disposition"]
        return content


def read(path: Path, content: bytes) -> list[RecordedFix]:
    path.write_bytes(content)
    return list(read_files([path], device=None, limit=None, skipped=Counter(), user="ex1"))


async def send(client: aiohttp.ClientSession, **position: object) -> None:
    async with client.post("/v1/positions", json=position) as answer:
        await json_of(answer)


async def test_each_format_has_the_history_and_what_is_new(
    gateway: Gateway, owner: Login, tmp_path: Path
) -> None:
    async with gateway.client(owner) as client:
        await send(client, device="phone", lat=47.5, lon=9.5, time=NEW_MS, accuracy=7)

        async def newest() -> object:
            async with client.get("/v1/devices/ex1%2Fphone") as answer:
                return (await answer.json()).get("time")

        await answered(newest, lambda time: time == NEW_MS)  # the view follows the log
        before = await taken(client, "device=phone&format=csv")
        expected = read(tmp_path / "all.csv", before)
        assert expected[-1].time == NEW_MS and expected[-1].accuracy == 7
        assert len(expected) > 1000
        times = [fix.time for fix in expected]
        assert times == sorted(times)
        for name in ("geojson", "gpx", "kml"):
            content = await taken(client, f"device=ex1/phone&format={name}")
            found = read(tmp_path / f"all.{name}", content)
            assert [(fix.time, fix.lat, fix.lon) for fix in found] == [
                (fix.time, fix.lat, fix.lon) for fix in expected
            ], name
            assert {fix.device for fix in found} == {"phone"}, name
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pq.read_table(io.BytesIO(await taken(client, "device=phone&format=parquet")))
        assert table["time"].cast(pa.int64()).to_pylist() == times
        assert table.schema.field("date").type == pa.date32()
        # What is in both is there once, although the log has it again.
        repeated = expected[500]
        await send(client, device="phone", lat=repeated.lat, lon=repeated.lon, time=repeated.time)
        assert await taken(client, "device=phone&format=csv") == before
        assert await taken(client, "device=phone&device=ex1/phone&format=csv") == before


async def test_a_period_is_exact(gateway: Gateway, owner: Login, tmp_path: Path) -> None:
    async with gateway.client(owner) as client:
        everything = read(tmp_path / "all.csv", await taken(client, "device=phone&format=csv"))
        first, last = everything[100].time, everything[300].time
        query = f"device=phone&format=csv&from={first}&to={last}"
        part = read(tmp_path / "part.csv", await taken(client, query))
        assert [fix.time for fix in part] == [fix.time for fix in everything[100:301]]
        for query, reason in (
            ("device=phone&format=xls", "format must be one of"),
            ("device=phone&from=2&to=1", "from is after to"),
            ("device=a%2Fb", "is not a device of yours"),
            ("device=", "is not a device of yours"),
        ):
            async with client.get(f"/v1/export?{query}") as answer:
                assert reason in (await json_of(answer, 400))["error"], query


async def test_everything_is_one_archive(gateway: Gateway, owner: Login, tmp_path: Path) -> None:
    async with gateway.client(owner) as client:
        zone = {
            **{"name": "School", "radius": 150},
            "geometry": {"type": "Point", "coordinates": [9.5, 47.1]},
        }
        async with client.post("/v1/geofences", json=zone) as answer:
            await json_of(answer, 201)
        channel = {"name": "hook", "kind": "webhook", "url": "https://x.example/SECRET-PATH"}
        async with client.post("/v1/alert-channels", json=channel | {"token": "SECRET"}) as answer:
            await json_of(answer, 201)
        await send(client, device="..:evil", lat=1, lon=2)
        await send(client, device="..?evil", lat=1, lon=2)

        async def devices() -> list[dict[str, object]]:
            async with client.get("/v1/devices") as answer:
                found: list[dict[str, object]] = await json_of(answer)
                return found

        await answered(devices, lambda found: len(found) == 3)
        content = await taken(client, "format=geojson")
    assert b"SECRET" not in content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        names = set(archive.namelist())
        assert {f"fixes/{each}.geojson" for each in ("phone", "_evil", "_evil-2")} <= names
        assert not [name for name in names if ".." in name or name.startswith("/")]
        assert {"account.json", "alerts.json", "zones.json", "forwardings.json"} <= names
        [own_zone] = json.loads(archive.read("zones.json"))
        assert own_zone["name"] == "School"
        assert "SECRET" not in archive.read("alerts.json").decode()
        assert json.loads(archive.read("account.json"))["user"] == "ex1"
        visits = json.loads(archive.read("visits/phone.json"))
        places = json.loads(archive.read("places/phone.json"))
        assert {visit["place_id"] for visit in visits} & {each["place_id"] for each in places}
        assert json.loads(archive.read("trips/phone.json"))
        # Nothing of anybody else's.
        everything = b"".join(archive.read(name) for name in names)
        assert b"ex0/" not in everything
        fixes = read(tmp_path / "phone.geojson", archive.read("fixes/phone.geojson"))
        assert len(fixes) > 1000


async def test_devices_that_only_the_history_has_are_in_it(gateway: Gateway, history: Path) -> None:
    async with gateway.client(gateway.user("ex0")) as client:
        with zipfile.ZipFile(io.BytesIO(await taken(client))) as archive:
            assert "fixes/phone.geojson" in archive.namelist()


async def test_an_export_that_breaks_off_is_not_taken_for_whole(
    gateway: Gateway, owner: Login, history: Path
) -> None:
    async with gateway.client(owner) as client:
        # The last file is damaged: what was before it may have been sent.
        last = sorted((history / "history").rglob("*-location-*.parquet"))[-1]
        content = last.read_bytes()
        last.write_bytes(content[:100] + b"\0" * (len(content) - 100))
        try:
            with pytest.raises((aiohttp.ClientError, AssertionError)):
                await taken(client, "device=phone&format=csv")
        finally:
            last.write_bytes(content)
        assert len(await taken(client, "device=phone&format=csv")) > 1000


def test_the_formats_are_those_of_the_archive() -> None:
    from waylog.history.track_writers import WRITERS

    assert FORMATS.keys() == WRITERS.keys()
