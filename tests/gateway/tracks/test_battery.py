"""The course of a battery: thinned, out of Parquet, and over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from gateway.tracks.archive import Archive
from gateway.tracks.battery import BatteryLevel, thinned
from tests.gateway.running import Gateway, answered, json_of
from tests.gateway.tracks.test_archive import aclosing_archive
from tests.spark.places.test_job import table_of, write_history
from tests.spark.synthetic import START_MS, make_person
from waylog.cli import main
from waylog.history.row_layout import HISTORY_SCHEMA

DAY_MS = 86_400_000
WEEK = START_MS, START_MS + 7 * DAY_MS


def measured(table: pa.Table, device: str = "u1/phone") -> dict[int, float]:
    """Return the levels of a device by time."""
    rows = table.filter(pa.compute.equal(table["device"], device))
    pairs = zip(rows["time"].to_pylist(), rows["battery"].to_pylist(), strict=True)
    return {time: level for time, level in pairs if level is not None}


def with_batteries(table: pa.Table) -> pa.Table:
    """Return a table in which each third fix tells a level, between 10 and 100."""
    number = np.arange(table.num_rows)
    levels = np.round(55 + 45 * np.cos(number / 400), 1)
    column = HISTORY_SCHEMA.get_field_index("battery")
    told = pa.array(levels, HISTORY_SCHEMA.field(column).type, mask=number % 3 > 0)
    return table.set_column(column, HISTORY_SCHEMA.field(column), told)


@given(
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 100)), unique_by=lambda each: each[0]),
    st.integers(0, 2000),
)
def test_the_ends_and_the_extremes_are_kept(samples: list[tuple[int, int]], last: int) -> None:
    told = sorted(each for each in samples if each[0] <= last)
    times = np.array([time for time, _ in told], np.int64)
    levels = np.array([level for _, level in told], np.float64)
    found = thinned(times, levels, 0, last)
    assert len(found) <= 602
    pairs = [(each.time, each.battery) for each in found]
    assert pairs == sorted(set(pairs)) and set(pairs) <= {(t, float(v)) for t, v in told}
    if told:
        assert pairs[0] == told[0] and pairs[-1] == told[-1]
        assert {min(levels), max(levels)} <= {level for _, level in pairs}


async def test_it_is_read_from_loose_and_packed_files(tmp_path: Path) -> None:
    table = with_batteries(
        table_of({f"u{seed}/phone": make_person(seed, days=7) for seed in (0, 1)})
    )
    half = table.num_rows // 2
    write_history(tmp_path / "history", table, 0, half)
    assert main(["history", "compact", "--out", str(tmp_path / "history"), "--all"]) == 0
    write_history(tmp_path / "history", table, half)
    archive = Archive(str(tmp_path / "history"), None)
    async with aclosing_archive(archive):
        found = await archive.battery("u1/phone", *WEEK)
        nobody = await archive.battery("u9/phone", *WEEK)
    truth = measured(table)
    assert 300 < len(found) <= 602 and nobody == []
    assert all(truth[each.time] == each.battery for each in found)
    assert (found[0].time, found[-1].time) == (min(truth), max(truth))
    assert max(each.battery for each in found) == max(truth.values())
    assert min(each.battery for each in found) == min(truth.values())


async def test_an_owner_is_told_and_a_friend_is_not(tmp_path: Path, gateway: Gateway) -> None:
    # Fixes of u1 are in the log already: other tests send them.
    table = with_batteries(table_of({"owner/phone": make_person(1, days=2)}))
    write_history(tmp_path / "history", table)
    history = ("--history", str(tmp_path / "history"))
    own = Gateway(tmp_path / "gateway", gateway.bootstrap_servers, *history)
    path = "/v1/devices/owner%2Fphone/battery"
    days = f"from={START_MS}&to={START_MS + 2 * DAY_MS}"
    try:
        user, friend, stranger = (own.user(name) for name in ("owner", "friend", "other"))
        own.users.rights.befriend("owner", "friend", since=0)
        async with own.client(user) as client:
            levels = (await json_of(await client.get(f"{path}?{days}")))["levels"]
            assert levels[0] == {"time": min(measured(table, "owner/phone")), "battery": 100.0}
            # The newest one is told before the history has it.
            newest = {"lat": 47.1, "lon": 9.5, "time": WEEK[1], "device": "owner/phone"}
            sent = await client.post("/v1/positions", json=[newest | {"battery": 12}])
            assert sent.status == 200, await sent.text()
            both = f"from={START_MS}&to={WEEK[1]}"

            async def last() -> Any:
                return (await json_of(await client.get(f"{path}?{both}")))["levels"][-1]

            # The gateway reads it from the log, as it does what others have sent.
            await answered(last, lambda level: level == {"time": WEEK[1], "battery": 12.0})
            refused = await json_of(await client.get(path), 400)
            assert "32 days apart at most" in refused["error"]
        for login in (friend, stranger):
            async with own.client(login) as client:
                await json_of(await client.get(f"{path}?{days}"), 403)
    finally:
        own.close()


def test_one_level_is_a_course() -> None:
    assert thinned(np.array([5]), np.array([50.0]), 5, 5) == [BatteryLevel(5, 50.0)]
