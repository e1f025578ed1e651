"""The places job with and without Spark, and its commands."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pytest

from spark.fixes.fixes import to_degrees
from spark.fixes.staging import StagedFile, land
from spark.history.files import HistoryFiles
from spark.places.bucket import keep_ids
from spark.places.finding import Place, find_places
from spark.places.job import read_state, write_places
from spark.places.schema import FILE, PLACES_SCHEMA
from spark.places.stays import stays_of
from spark.runtime.tasks import LocalEngine, SparkEngine
from tests.spark.lives.kinds import make_life
from tests.spark.lives.phones import report
from tests.spark.synthetic import Person, degrees, make_person
from waylog.cli import main
from waylog.history.history_reader import HistoryReader
from waylog.history.place_edits import PlaceEdit
from waylog.history.row_layout import HISTORY_SCHEMA
from waylog.history.storage import Storage

pytestmark = pytest.mark.early

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MS = 86_400_000


def rows_of(person: Person, device: str) -> pa.Table:
    fixes = person.fixes
    count = len(fixes.time)
    columns: dict[str, Any] = {
        "id": [f"{device}-{number}" for number in range(count)],
        "device": [device] * count,
        "user": [device.partition("/")[0]] * count,
        "lat": to_degrees(fixes.lat),
        "lon": to_degrees(fixes.lon),
        "time": fixes.time,
        "received": fixes.time,
        "kafka_partition": np.zeros(count, np.int32),
        "kafka_offset": np.arange(count),
    }
    return pa.table(
        [
            pa.array(columns[field.name], field.type)
            if field.name in columns
            else pa.nulls(count, field.type)
            for field in HISTORY_SCHEMA
        ],
        schema=HISTORY_SCHEMA,
    )


def table_of(people: dict[str, Person]) -> pa.Table:
    """Return the fixes of all people, in the order of time."""
    tables = [rows_of(person, device) for device, person in people.items()]
    return numbered(pa.concat_tables(tables).sort_by("time"))


def numbered(table: pa.Table) -> pa.Table:
    return table.set_column(
        HISTORY_SCHEMA.get_field_index("kafka_offset"),
        HISTORY_SCHEMA.field("kafka_offset"),
        pa.array(np.arange(table.num_rows)),
    )


def write_history(out: Path, table: pa.Table, start: int = 0, end: int | None = None) -> None:
    """Write the files that the job writes for records start..end-1 of the log."""
    storage = Storage(str(out))
    files = HistoryFiles(storage)
    files.open()
    end = table.num_rows if end is None else end
    landed = land(table.slice(start, end - start).to_batches(), storage, start, end)
    files.commit([StagedFile(**row) for batch in landed for row in batch.to_pylist()])


def tables_of(out: Path) -> dict[str, list[dict[str, Any]]]:
    with duckdb.connect() as connection:
        return {
            name: connection.sql(f"from '{out}/{files}' order by all").to_arrow_table().to_pylist()
            for name, files in (
                ("places", FILE),
                ("visits", "visits/*.parquet"),
                ("trips", "trips/*.parquet"),
            )
        }


@pytest.mark.spark
def test_the_job_finds_for_every_device_what_its_fixes_alone_give(
    session: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    people = {f"user{seed}/phone": make_person(seed, days=14) for seed in range(6)}
    history, out, local = tmp_path / "history", tmp_path / "places", tmp_path / "local"
    write_history(history, table_of(people))
    written = write_places(SparkEngine(session), str(history), str(out))
    assert written.devices == len(people)
    assert written.rows == sum(len(person.fixes.time) for person in people.values())
    table = Storage(str(out)).read_parquet(FILE)
    assert table.schema.equals(PLACES_SCHEMA)
    for device, person in people.items():
        rows = [row for row in table.to_pylist() if row["device"] == device]
        # Time zones do not matter here: Berlin's winter time is the solar time zone.
        expected = find_places(device, stays_of(person.fixes)).places
        assert [(row["lat"], row["lon"], row["label"], row["visits"]) for row in rows] == [
            (place.lat, place.lon, place.label, place.visits) for place in expected
        ]
        assert [row["roles"] for row in rows] == [
            [role._asdict() for role in place.roles] for place in expected
        ]
        assert rows[0]["roles"][0]["label"] == "home"
        assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
        assert {row["user"] for row in rows} == {device.partition("/")[0]}
    again = write_places(SparkEngine(session), str(history), str(out))
    assert (again.places, again.rows, again.changed) == (written.places, 0, [])
    assert Storage(str(out)).read_parquet(FILE).equals(table)
    assert written == replace(
        write_places(LocalEngine(1), str(history), str(local)), seconds=written.seconds
    )
    assert tables_of(local) == tables_of(out)

    assert main(["places", "show", "--places", str(out), "--device", "user1/phone", "--json"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    home = next(place for place in shown if place["label"] == "home")
    members = {"user", "device", "place_id", "lat", "lon", "label", "name", "visits", "dwell_s"}
    assert members | {"address"} <= set(home)
    lat, lon = degrees(people["user1/phone"].home)
    assert (home["lat"], home["lon"]) == pytest.approx((lat, lon), abs=0.001)
    assert main(["places", "show", "--places", str(out)]) == 0
    assert "user5/phone" in capsys.readouterr().out


@pytest.mark.parametrize("cuts", [9, 2])
def test_increments_give_what_one_run_gives(tmp_path: Path, cuts: int) -> None:
    people = {f"u{seed}/p": make_person(seed, days=14) for seed in range(4)}
    # One phone is switched off for days, and one is new.
    people["u0/p"].fixes = people["u0/p"].fixes.take(slice(0, 4000))
    people["u1/p"].fixes = people["u1/p"].fixes.take(slice(9000, None))
    table = table_of(people)
    history, out, whole = tmp_path / "history", tmp_path / "places", tmp_path / "whole"
    bounds = [table.num_rows * number // cuts for number in range(cuts + 1)]
    ids: set[str] = set()
    for start, end in pairwise(bounds):
        write_history(history, table, start, end)
        write_places(LocalEngine(1), str(history), str(out))
        now = {row["place_id"] for row in tables_of(out)["places"]}
        # A place that was found remains, with its id.
        assert len(ids - now) <= 1
        ids = now
    write_places(LocalEngine(1), str(history), str(whole))
    assert tables_of(out) == tables_of(whole)
    # The files of earlier runs were removed.
    assert len(list((out / "_state").glob("*-stays.parquet"))) == 2


def test_fixes_that_come_late_are_put_where_they_belong(tmp_path: Path) -> None:
    people = {f"u{seed}/p": make_person(seed, days=10) for seed in range(3)}
    table = table_of(people)
    time = table["time"].to_numpy()
    device = table["device"].to_numpy(zero_copy_only=False)
    late = (device == "u1/p") & (time > time[0] + 4 * DAY_MS) & (time < time[0] + 6 * DAY_MS)
    order = np.concatenate([np.flatnonzero(~late), np.flatnonzero(late)])
    table = numbered(table.take(pa.array(order)))
    history, out, whole = tmp_path / "history", tmp_path / "places", tmp_path / "whole"
    write_history(history, table, 0, int((~late).sum()))
    write_places(LocalEngine(1), str(history), str(out))
    before = {row["place_id"] for row in tables_of(out)["places"] if row["device"] != "u1/p"}
    write_history(history, table, int((~late).sum()), table.num_rows)
    written = write_places(LocalEngine(1), str(history), str(out))
    assert written.changed == ["u1/p"]
    write_places(LocalEngine(1), str(history), str(whole))
    assert tables_of(out)["visits"] and tables_of(out)["trips"]
    columns = ("device", "arrival", "departure", "lat", "lon", "fixes")
    for name in ("visits", "trips"):
        assert len(tables_of(out)[name]) == len(tables_of(whole)[name])
    assert [[row[each] for each in columns] for row in tables_of(out)["visits"]] == [
        [row[each] for each in columns] for row in tables_of(whole)["visits"]
    ]
    assert before <= {row["place_id"] for row in tables_of(out)["places"]}


@pytest.mark.parametrize(
    "manner", ["significant change", "on motion", "periodic", "half before the door"]
)
def test_in_pieces_and_late_a_phone_that_reports_seldom_has_the_same_places(
    tmp_path: Path, manner: str
) -> None:
    lives = {f"u{seed}/p": make_life("office", seed, 12) for seed in range(2)}
    people = {
        device: Person([], True, [], report(life, manner, number, outliers=number == 1))
        for number, (device, life) in enumerate(lives.items())
    }
    table = table_of(people)
    time = table["time"].to_numpy()
    late = (time > time[0] + 5 * DAY_MS) & (time < time[0] + 7 * DAY_MS)
    order = np.concatenate([np.flatnonzero(~late), np.flatnonzero(late)])
    table = numbered(table.take(pa.array(order)))
    history, out, whole = tmp_path / "history", tmp_path / "places", tmp_path / "whole"
    begin = int((~late).sum())
    for start, end in pairwise([0, begin // 3, begin, table.num_rows]):
        write_history(history, table, start, end)
        write_places(LocalEngine(1), str(history), str(out))
    write_places(LocalEngine(1), str(history), str(whole))
    ids = {"place_id", "origin", "destination"}
    for name in ("places", "visits", "trips"):
        one, other = (
            [
                {key: value for key, value in row.items() if key not in ids}
                for row in tables_of(each)[name]
            ]
            for each in (out, whole)
        )
        assert sorted(one, key=str) == sorted(other, key=str)
        assert one


def test_a_run_that_was_cut_short_is_done_again(tmp_path: Path) -> None:
    people = {f"u{seed}/p": make_person(seed, days=7) for seed in range(3)}
    table = table_of(people)
    history, out, whole = tmp_path / "history", tmp_path / "places", tmp_path / "whole"
    half = table.num_rows // 2
    write_history(history, table, 0, half)
    write_places(LocalEngine(1), str(history), str(out))
    storage = Storage(str(out))
    state = storage.read_bytes("_state/current.json")
    kept = {path.name: path.read_bytes() for path in (out / "_state").iterdir()}
    assert state is not None
    write_history(history, table, half, table.num_rows)
    write_places(LocalEngine(1), str(history), str(out))
    # All is written except the state file, and nothing was cleaned up.
    for name, content in kept.items():
        (out / "_state" / name).write_bytes(content)
    write_places(LocalEngine(1), str(history), str(out))
    write_places(LocalEngine(1), str(history), str(whole))
    assert tables_of(out) == tables_of(whole)


def test_places_begin_anew_when_the_history_or_the_tables_are_others(tmp_path: Path) -> None:
    table = table_of({"u0/p": make_person(0, days=7)})
    history, other, out = tmp_path / "history", tmp_path / "other", tmp_path / "places"
    write_history(history, table)
    write_history(other, table, 0, table.num_rows // 2)
    write_places(LocalEngine(1), str(history), str(out))
    assert write_places(LocalEngine(1), str(other), str(out)).rows == table.num_rows // 2
    storage = Storage(str(out))
    state = read_state(storage)
    assert state is not None
    state.version += 1
    storage.replace_bytes("_state/current.json", msgspec.json.encode(state))
    assert read_state(storage) is None
    assert write_places(LocalEngine(1), str(other), str(out)).rows == table.num_rows // 2


def test_what_the_user_says_of_a_place_counts_and_stays(tmp_path: Path) -> None:
    table = table_of({"u0/p": make_person(0, days=14)})
    history, out = tmp_path / "history", tmp_path / "places"
    write_history(history, table, 0, table.num_rows // 2)
    write_places(LocalEngine(1), str(history), str(out))
    first, second, *_ = tables_of(out)["places"]
    edits = [
        PlaceEdit(
            device="u0/p",
            place_id=first["place_id"],
            lat=0,
            lon=0,
            time=5,
            name="Grandma",
            label="none",
        ),
        # The id is of another computation, but the position is right.
        PlaceEdit(
            device="u0/p", place_id="x", lat=second["lat"], lon=second["lon"], time=6, label="home"
        ),
        PlaceEdit(device="u0/p", place_id="y", lat=0, lon=0, time=7, name="nowhere"),
    ]
    written = write_places(LocalEngine(1), str(history), str(out), edits)
    assert (written.rows, written.changed) == (0, ["u0/p"])

    def check() -> None:
        rows = {row["place_id"]: row for row in tables_of(out)["places"]}
        named, labelled = rows[first["place_id"]], rows[second["place_id"]]
        assert (named["name"], named["label"], named["named_by"]) == ("Grandma", None, "user")
        assert (labelled["label"], labelled["confidence"]) == ("home", 1.0)
        # The home that was found stays one: friends are told nothing precise of either.
        assert [row["label"] for row in rows.values()].count("home") == 2

    check()
    assert write_places(LocalEngine(1), str(history), str(out), edits).changed == []
    write_history(history, table, table.num_rows // 2)
    write_places(LocalEngine(1), str(history), str(out), edits)
    check()


def test_places_are_merged_and_left_out_until_that_is_taken_back(tmp_path: Path) -> None:
    table = table_of({"u0/p": make_person(0, days=14)})
    history, out = tmp_path / "history", tmp_path / "places"
    write_history(history, table)
    write_places(LocalEngine(1), str(history), str(out))
    before = tables_of(out)
    home, *others = sorted(before["places"], key=lambda row: row["label"] != "home")
    assert home["label"] == "home" and len(others) >= 2
    whole, part = others[:2]

    def edits(time_ms: int, **members: Any) -> list[PlaceEdit]:
        return [
            PlaceEdit(
                **{"device": "u0/p", "place_id": row["place_id"], "lat": row["lat"]},
                **{"lon": row["lon"], "time": time_ms},
                **{name: value[row["place_id"]] for name, value in members.items()},
            )
            for row in (home, part)
        ]

    ids = home["place_id"], part["place_id"]
    merged = dict(zip(ids, (whole["place_id"],) * 2, strict=True))
    write_places(LocalEngine(1), str(history), str(out), edits(5, merged_into=merged))
    after = tables_of(out)
    rows = {row["place_id"]: row for row in after["places"]}
    # A home stays: what friends are told is blurred around it.
    assert rows.keys() == {row["place_id"] for row in before["places"]} - {part["place_id"]}
    for name in ("visits", "dwell_s"):
        assert rows[whole["place_id"]][name] == whole[name] + part[name]
    assert sum(rows[whole["place_id"]]["profile"]) == sum(whole["profile"]) + sum(part["profile"])

    def visited(tables: dict[str, list[dict[str, Any]]], place: dict[str, Any]) -> int:
        return [row["place_id"] for row in tables["visits"]].count(place["place_id"])

    assert visited(after, whole) == visited(before, whole) + visited(before, part)
    assert visited(after, part) == 0

    deleted = dict.fromkeys(ids, True)
    write_places(LocalEngine(1), str(history), str(out), edits(6, deleted=deleted))
    assert {row["place_id"] for row in tables_of(out)["places"]} == rows.keys()
    write_places(LocalEngine(1), str(history), str(out), edits(7))
    again = tables_of(out)
    for name in ("places", "visits"):
        assert again[name] == before[name]


def test_an_edit_of_the_future_hides_no_later_one(tmp_path: Path) -> None:
    table = table_of({f"u{number}/p": make_person(number, days=7) for number in range(2)})
    history, out = str(tmp_path / "history"), tmp_path / "places"
    write_history(Path(history), table)
    write_places(LocalEngine(1), history, str(out))
    places = {row["device"]: row["place_id"] for row in tables_of(out)["places"]}

    def edit(device: str, time_ms: int, name: str) -> PlaceEdit:
        return PlaceEdit(
            device=device, place_id=places[device], lat=0, lon=0, time=time_ms, name=name
        )

    edits = [edit("u0/p", 1 << 70, "far ahead")]
    write_places(LocalEngine(1), history, str(out), edits)
    edits.append(edit("u1/p", time.time_ns() // 1_000_000 + 1, "Grandma"))
    assert "u1/p" in write_places(LocalEngine(1), history, str(out), edits).changed
    names = {row["place_id"]: row["name"] for row in tables_of(out)["places"]}
    assert names[places["u0/p"]] == "far ahead"
    assert names[places["u1/p"]] == "Grandma"


def place_at(place_id: str, lat: float) -> Place:
    return Place(place_id, lat, 10.0, None, None, 2, 2, 1, 0.0, 0, 0, [])


def test_a_place_that_moved_a_little_keeps_its_id() -> None:
    older = [
        {"place_id": name, "lat": lat, "lon": 10.0} for name, lat in (("one", 50.0), ("b", 51))
    ]
    places = [
        place_at("x", 50.0005),  # 56 m away
        place_at("y", 50.0006),  # near another place, but the id is taken
        place_at("z", 50.01),  # too far
        place_at("b", 52.0),  # the same first stay
    ]
    from spark.places.finding import DevicePlaces

    assert keep_ids(DevicePlaces(places, [], []), older) == {
        "x": "one",
        "y": "y",
        "z": "z",
        "b": "b",
    }


def test_in_several_processes_the_result_is_the_same(tmp_path: Path) -> None:
    people = {f"u{seed}/p": make_person(seed, days=14) for seed in range(4)}
    history, one, two = tmp_path / "history", tmp_path / "one", tmp_path / "two"
    write_history(history, table_of(people))
    assert len(HistoryReader(str(history)).dates()) == 15
    words = ["places", "run", "--once", "--history", str(history), "--engine", "arrow"]
    assert main([*words, "--out", str(two), "--workers", "2"]) == 0
    write_places(LocalEngine(1), str(history), str(one))
    assert tables_of(one) == tables_of(two)


def test_without_places_the_user_is_told_how_to_get_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["places", "show", "--places", str(tmp_path)]) == 1
    assert "waylog places run" in capsys.readouterr().err
    assert main(["places", "run", "--once", "--history", str(tmp_path / "none")]) == 1
    assert "there is no history" in capsys.readouterr().err
    assert main(["places", "name", "u/p", "x", "--places", str(tmp_path)]) == 1
    assert "give a name" in capsys.readouterr().err


def test_a_program_gets_an_empty_list_of_places_before_the_first_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["places", "show", "--places", str(tmp_path), "--json"]) == 0
    said = capsys.readouterr()
    # A line for each, as other lists.
    assert said.out == ""
    assert "there are no places yet" in said.err
