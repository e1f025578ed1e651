"""The places job on Spark, and the commands around it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from spark.history_files import HistoryFiles
from spark.landing import LandedFile, land
from spark.places import find_places
from spark.places_job import FILE, PLACES_SCHEMA, keep_ids, places_of_batches, write_places
from spark.schema import HISTORY_SCHEMA
from spark.storage import Storage
from tests.spark.synthetic import Person, degrees, make_person
from waylog.cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rows_of(person: Person, device: str) -> pa.Table:
    time, lat, lon = person.fixes
    count = len(time)
    columns: dict[str, Any] = {
        "id": [f"{device}-{number}" for number in range(count)],
        "device": [device] * count,
        "user": [device.partition("/")[0]] * count,
        "lat": lat,
        "lon": lon,
        "time": time,
        "received": time,
        "accuracy": pa.array(person.accuracy, from_pandas=True),
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


def write_history(out: Path, people: dict[str, Person]) -> None:
    """As the log has it: devices mixed, each in its order."""
    table = pa.concat_tables([rows_of(person, device) for device, person in people.items()])
    order = list(range(table.num_rows))
    random.Random(1).shuffle(order)
    table = table.take(order).set_column(
        HISTORY_SCHEMA.get_field_index("kafka_offset"),
        HISTORY_SCHEMA.field("kafka_offset"),
        pa.array(np.arange(table.num_rows)),
    )
    storage = Storage(str(out))
    files = HistoryFiles(storage)
    files.open()
    landed = land(table.to_batches(), storage, 0, table.num_rows)
    files.commit([LandedFile(**row) for batch in landed for row in batch.to_pylist()])


@pytest.mark.spark
def test_the_job_finds_for_every_device_what_its_fixes_alone_give(
    session: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    people = {f"user{seed}/phone": make_person(seed, days=14) for seed in range(6)}
    history, out = tmp_path / "history", tmp_path / "places"
    write_history(history, people)
    written = write_places(session, str(history), str(out))
    assert written.devices == len(people)
    assert [path.name for path in out.iterdir()] == [FILE]
    table = Storage(str(out)).read_parquet(FILE)
    assert table.schema.equals(PLACES_SCHEMA)
    for device, person in people.items():
        rows = [row for row in table.to_pylist() if row["device"] == device]
        # Time zones do not matter here: Berlin's winter is the sun's time.
        expected = find_places(device, person.fixes, person.accuracy)
        assert [(row["lat"], row["lon"], row["label"], row["visits"]) for row in rows] == [
            (place.lat, place.lon, place.label, place.visits) for place in expected
        ]
        assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
        assert {row["user"] for row in rows} == {device.partition("/")[0]}
    again = write_places(session, str(history), str(out))
    assert again.places == written.places
    assert Storage(str(out)).read_parquet(FILE).equals(table)

    assert main(["places", "show", "--places", str(out), "--device", "user1/phone", "--json"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    home = next(place for place in shown if place["label"] == "home")
    members = {"user", "device", "place_id", "lat", "lon", "label", "name", "visits", "dwell_s"}
    assert members | {"address"} <= set(home)
    lat, lon = degrees(people["user1/phone"].home)
    assert (home["lat"], home["lon"]) == pytest.approx((lat, lon), abs=0.001)
    assert main(["places", "show", "--places", str(out)]) == 0
    assert "user5/phone" in capsys.readouterr().out


def test_a_device_is_found_whole_however_its_rows_are_cut_into_batches() -> None:
    tables = [rows_of(make_person(seed, days=7), f"u{seed}/p") for seed in range(3)]
    whole = pa.concat_tables(tables).combine_chunks()
    expected = pa.Table.from_batches(places_of_batches(iter(whole.to_batches()))).to_pylist()
    assert len({row["device"] for row in expected}) == 3
    cut = whole.to_batches(max_chunksize=997)
    assert pa.Table.from_batches(places_of_batches(iter(cut))).to_pylist() == expected


def table_of(*rows: tuple[str, str, float, float]) -> pa.Table:
    places = [
        {
            "user": "u",
            "device": device,
            "place_id": place_id,
            "lat": lat,
            "lon": lon,
            "visits": 1,
            "dwell_s": 1,
            "rank": 1,
            "days": 1,
            "radius_m": 0.0,
            "first": 0,
            "last": 0,
        }
        for device, place_id, lat, lon in rows
    ]
    return pa.Table.from_pylist(places, schema=PLACES_SCHEMA)


def test_a_place_that_moved_a_little_keeps_its_id() -> None:
    older = table_of(("u/a", "one", 50.0, 10.0), ("u/b", "two", 50.0, 10.0))
    newer = table_of(
        ("u/a", "x", 50.0005, 10.0),  # 56 m away
        ("u/a", "y", 50.0006, 10.0),  # another place: the id is taken
        ("u/b", "z", 50.01, 10.0),  # too far
        ("u/c", "w", 50.0, 10.0),  # another device
    )
    assert keep_ids(newer, older)["place_id"].to_pylist() == ["one", "y", "z", "w"]


def test_ids_stay_different_when_a_neighbour_took_one_over() -> None:
    older = table_of(("u/a", "one", 50.0, 10.0))
    newer = table_of(("u/a", "x", 50.0005, 10.0), ("u/a", "one", 50.0, 10.0))
    ids = keep_ids(newer, older)["place_id"].to_pylist()
    assert len(set(ids)) == 2


def test_without_places_the_user_is_told_how_to_get_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["places", "show", "--places", str(tmp_path)]) == 1
    assert "waylog places run" in capsys.readouterr().err
    assert main(["places", "run", "--once", "--history", str(tmp_path / "none")]) == 1
    assert "there is no history" in capsys.readouterr().err
