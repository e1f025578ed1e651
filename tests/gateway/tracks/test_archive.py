"""Data that is only in Parquet: old tracks, and visits."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest

from gateway.friends.home_blur import Grid
from gateway.tracks.archive import Archive
from gateway.tracks.archive import rows_of as decoded_rows
from gateway.tracks.asking import AnswerRefused, AnswerUnavailable
from gateway.views.track_store import pack_point
from spark.places.job import write_places
from spark.places.stay_points import haversine_m
from spark.runtime.tasks import LocalEngine
from tests import child_processes
from tests.gateway.http.routes.test_reading import send
from tests.gateway.running import Gateway, json_of, places_of
from tests.spark.places.test_job import rows_of, table_of, write_history
from tests.spark.synthetic import START_MS, make_person
from waylog.cli import main
from waylog.observability.telemetry import now_ms

DAY_MS = 86_400_000
METRES_PER_DEGREE = 111_195.0
LATEST = 2**62


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two people for a week, half of it compacted, and their places."""
    folder = tmp_path_factory.mktemp("archive")
    table = table_of({f"u{seed}/phone": make_person(seed, days=7) for seed in range(2)})
    write_history(folder / "history", table, 0, table.num_rows // 2)
    assert main(["history", "compact", "--out", str(folder / "history"), "--all"]) == 0
    write_history(folder / "history", table, table.num_rows // 2)
    write_places(LocalEngine(1), str(folder / "history"), str(folder / "places"))
    return folder


class Row(NamedTuple):
    time: str
    lat: float
    lon: float


async def track(archive: Archive, device: str, from_ms: int, to_ms: int) -> list[Row]:
    track = await archive.track(device, from_ms, to_ms, recent=[], circles=None, name="csv")
    body = b"".join(track)
    rows = csv.DictReader(io.StringIO(body.decode()))
    return [Row(row["time"], float(row["lat"]), float(row["lon"])) for row in rows]


def written(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def rows(answer: list[bytes]) -> list[dict[str, Any]]:
    decoded: list[dict[str, Any]] = json.loads(b"".join(answer))
    return decoded


async def test_a_track_and_visits_come_from_parquet(history: Path) -> None:
    archive = Archive(str(history / "history"), str(history / "places"))
    expected = rows_of(make_person(1, days=7), "u1/phone")
    try:
        points = await track(archive, "u1/phone", -LATEST, LATEST)
        assert {point.time for point in points} == set(map(written, expected["time"].to_pylist()))
        assert [point.time for point in points] == sorted(point.time for point in points)
        assert {(point.lat, point.lon) for point in points} == set(
            zip(expected["lat"].to_pylist(), expected["lon"].to_pylist(), strict=True)
        )
        day = await track(archive, "u1/phone", START_MS, START_MS + DAY_MS)
        first_day = written(START_MS), written(START_MS + DAY_MS)
        assert day == [point for point in points if first_day[0] <= point.time <= first_day[1]]
        assert await track(archive, "nobody/phone", -LATEST, LATEST) == []
        visits = rows(await archive.visits("u1/phone", -LATEST, LATEST))
        assert len(visits) > 7
        assert visits == sorted(visits, key=lambda visit: visit["arrival"])
        for visit in visits:
            assert visit["arrival_earliest"] <= visit["arrival"] <= visit["arrival_latest"]
            assert visit["departure_earliest"] <= visit["departure"] <= visit["departure_latest"]
        first, second, *_ = visits
        both_visits = await archive.visits("u1/phone", first["arrival"], second["arrival"])
        assert rows(both_visits) == visits[:2]
        both_visits = await archive.visits("u1/phone", first["departure"], second["departure"])
        assert rows(both_visits)[:2] == visits[:2]
        trips = rows(await archive.trips("u1/phone", -LATEST, LATEST))
        assert len(trips) > 5
        assert trips == sorted(trips, key=lambda trip: trip["start"])
        assert {trip["origin"] for trip in trips} & {visit["place_id"] for visit in visits}
        # Concurrent questions get their own answers.
        both = await asyncio.gather(
            track(archive, "u0/phone", START_MS, START_MS + DAY_MS),
            track(archive, "u1/phone", START_MS, START_MS + DAY_MS),
        )
        assert both[1] == day != both[0]
    finally:
        await archive.close()


@pytest.mark.parametrize("is_in_memory", [False, True])
async def test_squares_are_the_same_from_whatever_time_on_they_are_asked_for(
    history: Path, is_in_memory: bool
) -> None:
    folder = None if is_in_memory else str(history / "history")
    archive = Archive(folder, str(history / "places"))
    person = rows_of(make_person(1, days=1), "u1/phone")
    columns = [person[name].to_pylist() for name in ("time", "lat", "lon")]
    packed = b"".join(
        pack_point(time, lat, lon, None, None, None, None)
        for time, lat, lon in zip(*columns, strict=True)
    )
    recent = [packed] if is_in_memory else []
    # An edge goes through the place of the longest stay.
    grid = Grid(500.0, -median(columns[1]) * METRES_PER_DEGREE / 500.0 % 1, 0.7, 300_000)

    async def squares(from_ms: int) -> list[list[str]]:
        to_ms = START_MS + DAY_MS
        answer = archive.track(
            "u1/phone", from_ms, to_ms, recent=recent, circles=(), grid=grid, name="csv"
        )
        rows = csv.DictReader(io.StringIO(b"".join(await answer).decode()))
        return [[row["time"], row["lat"], row["lon"]] for row in rows]

    try:
        whole = await squares(START_MS)
        assert len(whole) > 10
        for hour in range(1, 24):
            part = await squares(START_MS + hour * 3_600_000 + 1_234_567)
            assert part[1:] == whole[len(whole) - len(part) + 1 :]
            assert part[0][1:] == whole[-len(part)][1:]
    finally:
        await archive.close()


async def test_what_is_added_to_the_history_is_found_a_little_later(tmp_path: Path) -> None:
    table = table_of({"u0/phone": make_person(0, days=1)})
    half = table.num_rows // 2
    write_history(tmp_path / "history", table, 0, half)
    archive = Archive(str(tmp_path / "history"), None)
    async with asyncio.timeout(60), aclosing_archive(archive):
        first = await track(archive, "u0/phone", -LATEST, LATEST)
        assert first
        write_history(tmp_path / "history", table, half)
        while len(await track(archive, "u0/phone", -LATEST, LATEST)) < len(first) + half // 2:
            await asyncio.sleep(0.2)


async def test_without_parquet_there_is_nothing(tmp_path: Path) -> None:
    nowhere = Archive(None, None)
    assert await track(nowhere, "u/p", -LATEST, LATEST) == []
    assert rows(await nowhere.visits("u/p", -LATEST, LATEST)) == []
    await nowhere.close()
    empty = Archive(str(tmp_path / "history"), str(tmp_path / "places"))
    assert await track(empty, "u/p", -LATEST, LATEST) == []
    assert rows(await empty.visits("u/p", -LATEST, LATEST)) == []
    await empty.close()


async def test_what_can_not_be_read_or_is_too_long_is_explained(
    history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "history"
    (out / "month=2026-01").mkdir(parents=True)
    name = f"2026-01-01-location-0-{0:020d}-{9:020d}.parquet"
    (out / "month=2026-01" / name).write_bytes(b"PAR1 no")
    broken = Archive(str(out), None)
    with pytest.raises(AnswerUnavailable, match="2026-01-01 cannot be read"):
        await track(broken, "u/p", -LATEST, LATEST)
    await broken.close()
    monkeypatch.setattr("gateway.tracks.archive.POINTS_MAX", 100)
    archive = Archive(str(history / "history"), None)
    with pytest.raises(AnswerRefused, match="ask for a shorter time"):
        await track(archive, "u1/phone", -LATEST, LATEST)
    assert await track(archive, "u1/phone", START_MS, START_MS + 60_000)
    await archive.close()


async def test_no_question_ends_the_process(history: Path) -> None:
    archive = Archive(str(history / "history"), str(history / "places"))
    day = await track(archive, "u1/phone", START_MS, START_MS + DAY_MS)
    processes = reading_processes()
    for far in (2**63, 2**64, 10**300):
        with pytest.raises(AnswerUnavailable, match="could not be read"):
            await archive.visits("u1/phone", far, far)
        with pytest.raises(AnswerUnavailable, match="could not be read"):
            await track(archive, "u1/phone", -far, far)
    assert await track(archive, "u1/phone", START_MS, START_MS + DAY_MS) == day
    assert reading_processes() == processes
    await archive.close()


@pytest.mark.parametrize("far", ["1e300", "9223372036854775807", "18446744073709551616"])
async def test_a_time_without_end_is_the_end(
    history: Path, tmp_path: Path, gateway: Gateway, far: str
) -> None:
    own = Gateway(tmp_path, gateway.bootstrap_servers, "--places", str(history / "places"))
    try:
        async with own.client(own.user("u1")) as client:
            path = "/v1/devices/u1%2Fphone/visits"
            visits = await json_of(await client.get(path))
            assert await json_of(await client.get(f"{path}?from=-{far}&to={far}")) == visits
            assert await json_of(await client.get(f"{path}?from={far}")) == []
    finally:
        own.close()


async def test_more_visits_than_one_answer_may_have_are_refused(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive(None, str(history / "places"))
    async with aclosing_archive(archive):
        count = len(rows(await archive.visits("u1/phone", -LATEST, LATEST)))
        monkeypatch.setattr("gateway.tracks.archive.ROWS_MAX", count)
        assert len(rows(await archive.visits("u1/phone", -LATEST, LATEST))) == count
        monkeypatch.setattr("gateway.tracks.archive.ROWS_MAX", count - 1)
        with pytest.raises(AnswerRefused, match="too many visits"):
            await archive.visits("u1/phone", -LATEST, LATEST)


def reading_processes() -> list[int]:
    return child_processes.children("gateway.tracks.archive_process")


async def test_points_in_memory_are_cut_by_time_and_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.tracks.archive.POINTS_MAX", 100)
    archive = Archive(None, None)
    packed = [pack_point(time, 1.0, 2.0, None, None, None, None) for time in range(300)]
    pieces = [b"".join(packed[begin : begin + 60]) for begin in range(0, 300, 60)]

    async def times(from_ms: int, to_ms: int) -> list[str]:
        answer = await archive.track(
            *("u/p", from_ms, to_ms), recent=iter(pieces), circles=None, name="csv"
        )
        return [row["time"] for row in csv.DictReader(io.StringIO(b"".join(answer).decode()))]

    async with aclosing_archive(archive):
        assert await times(50, 149) == [written(time) for time in range(50, 150)]
        [reader] = reading_processes()
        for to_ms in (150, 250):
            with pytest.raises(AnswerRefused, match="more than 100 points"):
                await times(50, to_ms)
        # What was refused has been read to its end, and the process goes on.
        assert await times(299, LATEST) == [written(299)]
        assert reading_processes() == [reader]


async def test_the_answer_to_a_cancelled_question_is_nobodys(history: Path) -> None:
    archive = Archive(str(history / "history"), None)
    async with aclosing_archive(archive):
        expected = await track(archive, "u0/phone", START_MS, START_MS + DAY_MS)
        [reader] = reading_processes()
        os.kill(reader, signal.SIGSTOP)
        try:
            asking = asyncio.create_task(track(archive, "u1/phone", START_MS, START_MS + DAY_MS))
            for _ in range(20):
                await asyncio.sleep(0)  # the question is sent
            asking.cancel()
        finally:
            os.kill(reader, signal.SIGCONT)
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await track(archive, "u0/phone", START_MS, START_MS + DAY_MS) == expected


async def test_questions_of_all_together_have_a_bound() -> None:
    archive = Archive(None, None)

    async def ask(count: int) -> list[str]:
        """Return why questions of so many users have been refused."""
        asked = (
            archive.track("u/p", 0, 1, recent=(), circles=None, name="csv", party=f"user {number}")
            for number in range(count)
        )
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(each, list | AnswerUnavailable) for each in answers)
        return [str(each) for each in answers if isinstance(each, AnswerUnavailable)]

    async with aclosing_archive(archive):
        assert await ask(258) == ["too many questions to the archive wait already"] * 2
        assert await ask(256) == []


@pytest.mark.parametrize("size", [1, 2, 5, 1_000])
def test_rows_are_decoded_however_they_are_cut_into_pieces(size: int) -> None:
    rows = [{"a": number, "b": f"}},{number}"} for number in range(20)]
    content = b"[\n" + b",\n".join(json.dumps(row).encode() for row in rows) + b"\n]"
    pieces = [content[begin : begin + size] for begin in range(0, len(content), size)]
    assert list(decoded_rows(pieces)) == rows
    assert list(decoded_rows([b"[]"])) == []


async def test_a_process_that_dies_is_started_again(history: Path) -> None:
    archive = Archive(str(history / "history"), None)
    day = await track(archive, "u1/phone", START_MS, START_MS + DAY_MS)
    [reader] = reading_processes()
    os.kill(reader, signal.SIGKILL)
    for _ in range(3):
        try:
            assert await track(archive, "u1/phone", START_MS, START_MS + DAY_MS) == day
            break
        except AnswerUnavailable:
            continue
    else:
        raise AssertionError("it does not come back")
    await archive.close()


async def test_the_gateway_joins_the_history_and_what_is_new(
    history: Path, tmp_path: Path, gateway: Gateway
) -> None:
    own = Gateway(
        tmp_path,
        gateway.bootstrap_servers,
        *("--history", str(history / "history"), "--places", str(history / "places")),
    )
    try:
        user = own.user("u1")
        await send(own, user, {"device": "phone", "lat": 47.5, "lon": 9.5, "time": now_ms()})
        async with own.client(user) as client:
            path = "/v1/devices/u1%2Fphone"
            answer = await client.get(f"{path}/track")
            [feature] = json.loads(await answer.read())["features"]
            assert feature["geometry"]["coordinates"][-1] == [9.5, 47.5]
            assert len(feature["geometry"]["coordinates"]) > 1000
            visits = await json_of(await client.get(f"{path}/visits"))
            places = await places_of(client, "u1/phone")
            known = {place["place_id"] for place in places}
            assert known and {visit["place_id"] for visit in visits} & known
            await json_of(await client.get("/v1/devices/u0%2Fphone/visits"), 403)
            home = next(place for place in places if place["label"] == "home")
        friend = own.user("friend")
        own.users.rights.befriend("u1", "friend", since=0)
        async with own.client(friend) as client:
            # Other users see the approximate place of the home, and nothing that happened there.
            shared = await json_of(await client.get(f"{path}/places"))
            [hidden] = [place for place in shared if place["label"] == "home"]
            away = haversine_m(home["lat"], home["lon"], hidden["lat"], hidden["lon"])
            assert 0 < away < 400
            assert hidden["address"] is hidden["name"] is None
            answer = await client.get(f"{path}/track")
            [feature] = json.loads(await answer.read())["features"]
            for lon, lat, *_ in feature["geometry"]["coordinates"]:
                assert (lat, lon) == (hidden["lat"], hidden["lon"]) or (
                    haversine_m(hidden["lat"], hidden["lon"], lat, lon) > 499
                )
            trips = await json_of(await client.get(f"{path}/trips"))
            assert "home" in {trip["origin"] for trip in trips}
            assert home["place_id"] not in {trip["destination"] for trip in trips}
            for visit in await json_of(await client.get(f"{path}/visits")):
                at = visit["lat"], visit["lon"]
                assert (visit["place_id"] == "home") == (at == (hidden["lat"], hidden["lon"]))
                assert visit["place_id"] not in known
    finally:
        own.close()


async def test_questions_of_one_user_do_not_keep_the_archive_from_others(history: Path) -> None:
    archive = Archive(str(history / "history"), str(history / "places"))
    async with asyncio.timeout(60), aclosing_archive(archive):
        greedy = [
            asyncio.create_task(archive.visits("u1/phone", -LATEST, LATEST, "greedy"))
            for _ in range(8)
        ]
        await asyncio.sleep(0)
        done: list[asyncio.Task[Any]] = []
        for task in greedy:
            task.add_done_callback(done.append)
        assert rows(await archive.visits("u1/phone", -LATEST, LATEST, "other"))
        # The one that is running, one between, and those refused at once are done.
        assert len([each for each in done if each.exception() is None]) <= 2
        answers = await asyncio.gather(*greedy, return_exceptions=True)
        refused = [each for each in answers if isinstance(each, AnswerUnavailable)]
        assert len(refused) == 3
        assert "of yours" in str(refused[0])


@asynccontextmanager
async def aclosing_archive(archive: Archive) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await archive.close()
