"""Timelines, days and statistics, out of Parquet and memory, and over HTTP."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gateway.tracks.archive import Archive
from gateway.tracks.asking import AnswerRefused
from gateway.views.track_store import pack_point
from spark.places.job import write_places
from spark.places.stay_points import haversine_m
from spark.runtime.tasks import LocalEngine
from tests.gateway.running import Gateway, json_of, places_of
from tests.gateway.tracks.test_archive import aclosing_archive, written
from tests.spark.places.test_job import rows_of, table_of, write_history
from tests.spark.synthetic import START_MS, make_person
from waylog.cli import main

DAY_MS = 86_400_000
WEEK = START_MS, START_MS + 7 * DAY_MS


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two people for a week, half of it compacted, and their places."""
    folder = tmp_path_factory.mktemp("summaries")
    table = table_of({f"su{seed}/phone": make_person(seed, days=7) for seed in range(2)})
    write_history(folder / "history", table, 0, table.num_rows // 2)
    assert main(["history", "compact", "--out", str(folder / "history"), "--all"]) == 0
    write_history(folder / "history", table, table.num_rows // 2)
    write_places(LocalEngine(1), str(folder / "history"), str(folder / "places"))
    return folder


async def summary(archive: Archive, kind: str, *times: int, **more: Any) -> dict[str, Any]:
    """Return a summary of su1's phone."""
    content = await archive.summary(
        kind, "su1/phone", *times, recent=more.pop("recent", ()), circles=None, **more
    )
    decoded: dict[str, Any] = json.loads(b"".join(content))
    return decoded


def metres_between(one: list[float], other: list[float]) -> float:
    """Return the distance of two pairs of longitude and latitude."""
    return float(haversine_m(one[1], one[0], other[1], other[0]))


async def test_a_timeline_agrees_with_the_visits(history: Path) -> None:
    archive = Archive(str(history / "history"), str(history / "places"))
    async with aclosing_archive(archive):
        items = (await summary(archive, "timeline", *WEEK))["items"]
        visits = json.loads(b"".join(await archive.visits("su1/phone", *WEEK)))
    assert {item["kind"] for item in items} >= {"stay", "trip"}
    for earlier, later in pairwise(items):
        assert earlier["end"] == later["start"]
    stays = [item for item in items if item["kind"] == "stay"]
    long = [visit for visit in visits if visit["dwell_s"] > 3600 and visit["silent_s"] < 600]
    assert len(long) > 5
    for visit in long:
        middle = (visit["arrival"] + visit["departure"]) / 2
        [stay] = [each for each in stays if each["start"] <= middle < each["end"]]
        assert haversine_m(visit["lat"], visit["lon"], stay["lat"], stay["lon"]) < 100


async def test_days_are_counted_as_they_were_lived(history: Path) -> None:
    times = rows_of(make_person(1, days=7), "su1/phone")["time"].to_pylist()
    archive = Archive(str(history / "history"), None)
    async with aclosing_archive(archive):
        days = (await summary(archive, "days", *WEEK))["days"]
        tokyo = (await summary(archive, "days", *WEEK, zone="Asia/Tokyo"))["days"]
    assert {day["date"]: day["fixes"] for day in days} == Counter(
        written(time)[:10] for time in set(times)
    )
    ahead = Counter(written(time + 9 * 3_600_000)[:10] for time in set(times))
    assert {day["date"]: day["fixes"] for day in tokyo} == ahead


async def test_statistics_of_a_month_are_the_sums_of_its_days(history: Path) -> None:
    archive = Archive(str(history / "history"), None)
    async with aclosing_archive(archive):
        days = (await summary(archive, "statistics", *WEEK, span="day"))["totals"]
        years = (await summary(archive, "statistics", *WEEK, span="year"))["totals"]
        items = (await summary(archive, "timeline", *WEEK))["items"]
    assert len(days) >= 7
    for name in ("distance_m", "moving_s"):
        total = sum(day[name] for day in days)
        assert sum(year[name] for year in years) == pytest.approx(total, abs=1)
        # The timeline and the statistics have the same figures.
        trips = sum(item[name] for item in items if item["kind"] == "trip")
        assert total == pytest.approx(trips, rel=0.01)
    assert all(day["visited"] for day in days if day["trips"])


async def test_points_in_memory_are_enough() -> None:
    archive = Archive(None, None)
    packed = [
        pack_point(minute * 60_000, 47 + max(0, minute - 30) * 0.005, 9.5, None, None, None, None)
        for minute in range(60)
    ]
    async with aclosing_archive(archive):
        items = (await summary(archive, "timeline", 0, DAY_MS, recent=[b"".join(packed)]))["items"]
        assert [item["kind"] for item in items] == ["stay", "trip"]
        assert not items[1]["ended"]
        days = await summary(archive, "days", 0, DAY_MS, recent=[b"".join(packed)])
        assert days["days"] == [{"date": "1970-01-01", "fixes": 60}]
        [total] = (await summary(archive, "statistics", 0, DAY_MS, recent=[b"".join(packed)]))[
            "totals"
        ]
        assert total["trips"] == 1


async def test_what_cannot_be_answered_is_explained(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive(str(history / "history"), None)
    async with aclosing_archive(archive):
        with pytest.raises(AnswerRefused, match="'Mars/Olympus' is not a time zone"):
            await summary(archive, "days", *WEEK, zone="Mars/Olympus")
        monkeypatch.setattr("gateway.tracks.archive.STATISTICS_POINTS_MAX", 100)
        with pytest.raises(AnswerRefused, match="ask for a shorter time"):
            await summary(archive, "statistics", *WEEK)


async def test_over_http_a_friend_finds_no_more_than_in_the_track(
    history: Path, tmp_path: Path, gateway: Gateway
) -> None:
    own = Gateway(
        tmp_path,
        gateway.bootstrap_servers,
        *("--history", str(history / "history"), "--places", str(history / "places")),
    )
    path = "/v1/devices/su1%2Fphone"
    week = f"from={WEEK[0]}&to={WEEK[1]}"
    try:
        async with own.client(own.user("su1")) as client:
            items = (await json_of(await client.get(f"{path}/timeline?{week}")))["items"]
            assert len(items) > 10
            for query, reason in (
                ("timeline", "32 days apart at most"),
                ("days", "400 days apart at most"),
                (f"statistics?{week}&by=decade", "day, week, month, year"),
                (f"days?{week}&tz=Mars/Olympus", "is not a time zone"),
                (f"days?{week}&tz={'x' * 100}", "tz must be the name"),
            ):
                refused = await json_of(await client.get(f"{path}/{query}"), 400)
                assert reason in refused["error"]
            places = await places_of(client, "su1/phone")
            home = next(place for place in places if place["label"] == "home")
        async with own.client(own.user("other")) as client:
            for kind in ("timeline", "days", "statistics"):
                await json_of(await client.get(f"{path}/{kind}?{week}"), 403)
        friend = own.user("friend")
        own.users.rights.befriend("su1", "friend", since=0)
        async with own.client(friend) as client:
            shared = await json_of(await client.get(f"{path}/places"))
            [hidden] = [place for place in shared if place["label"] == "home"]
            middle = [hidden["lon"], hidden["lat"]]
            told = (await json_of(await client.get(f"{path}/timeline?{week}")))["items"]
            totals = (await json_of(await client.get(f"{path}/statistics?{week}")))["totals"]
            assert (await json_of(await client.get(f"{path}/days?{week}")))["days"]
        # Of a trip that was under way friends find what came after the friendship began.
        trip = max(items, key=lambda item: item.get("distance_m", 0) * (item["kind"] == "trip"))
        since = trip["times"][len(trip["times"]) // 2]
        new = own.user("new-friend")
        own.users.rights.befriend("su1", "new-friend", since=since)
        async with own.client(new) as client:
            later = (await json_of(await client.get(f"{path}/timeline?{week}")))["items"]
            assert later[0]["start"] >= since
            assert all(time >= since for item in later for time in item.get("times", ()))
            [day, *_] = (await json_of(await client.get(f"{path}/statistics?{week}")))["totals"]
            [whole] = [each for each in totals if each["date"] == day["date"]]
            assert day["distance_m"] < whole["distance_m"]
        at_home = [home["lon"], home["lat"]]
        for item in told:
            spots = item.get("coordinates") or [[item["lon"], item["lat"]]]
            for spot in spots:
                assert metres_between(spot, middle) < 2 or metres_between(spot, middle) > 499
                assert metres_between(spot, at_home) > 100 or metres_between(spot, middle) < 2
        assert told and totals
    finally:
        own.close()
