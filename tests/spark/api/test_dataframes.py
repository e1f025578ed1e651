"""The functions for DataFrames: any source of fixes, any columns, cells and addresses."""

from __future__ import annotations

import datetime
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h3
import pyarrow.parquet as pq
import pytest

import spark as api
from geoservice.index.store import WORLD_PATH
from geoservice.reverse.geocoder import Geocoder
from spark.places.job import write_places
from spark.runtime.tasks import LocalEngine
from tests.spark.places.test_job import table_of, tables_of, write_history
from tests.spark.synthetic import make_person
from waylog.history.row_layout import to_stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.early, pytest.mark.spark]

PEOPLE = {f"demo/phone{seed}": make_person(seed, 10) for seed in range(4)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history, the places that the job has found in it, and its rows as a file alone."""
    folder = tmp_path_factory.mktemp("api")
    table = table_of(PEOPLE)
    write_history(folder / "history", table)
    write_places(LocalEngine(1), str(folder / "history"), str(folder / "places"))
    pq.write_table(to_stored(table), folder / "fixes.parquet")
    return folder


@pytest.fixture(scope="module")
def fixes(session: SparkSession, folder: Path) -> Iterator[DataFrame]:
    yield session.read.parquet(str(folder / "history"))


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    found = [each.asDict(recursive=True) for each in frame.collect()]
    return sorted(found, key=repr)


def in_ms(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its times as the job writes them."""
    converted = dict(row)
    for name, value in row.items():
        if hasattr(value, "timestamp"):
            converted[name] = round(value.timestamp() * 1000)
        if name == "roles":
            converted[name] = [in_ms(role) for role in value]
    return converted


def test_a_history_has_the_places_that_the_job_finds(fixes: DataFrame, folder: Path) -> None:
    job = tables_of(folder / "places")
    for row in job["places"]:
        del row["named_by"]
    for name, found in (
        ("places", api.favourite_places(fixes)),
        ("visits", api.visits(fixes)),
        ("trips", api.trips(fixes)),
    ):
        own = sorted((in_ms(row) for row in rows(found)), key=repr)
        assert own == sorted(job[name], key=repr)
        assert len(own) > 10


def test_candidates_are_taken_in_place_of_fixes(fixes: DataFrame) -> None:
    candidates = api.stay_candidates(fixes).cache()
    try:
        assert rows(api.favourite_places(candidates)) == rows(api.favourite_places(fixes))
        assert rows(api.stay_points(candidates)) == rows(api.stay_points(fixes))
        with pytest.raises(ValueError, match="give fixes instead"):
            api.stay_points(candidates, distance_m=50)
    finally:
        candidates.unpersist()


def test_any_columns_will_do_and_rows_that_are_no_fixes_count_nowhere(
    session: SparkSession, fixes: DataFrame
) -> None:
    from pyspark.sql import functions as sf

    other = fixes.select(
        sf.col("device").alias("who.is"),
        sf.col("time").alias("at"),
        sf.col("lat").cast("string").cast("decimal(12,9)").alias("y"),
        sf.col("lon").alias("x"),
    )
    noon = datetime.datetime(2026, 1, 8, 12, tzinfo=datetime.UTC)
    bad = session.createDataFrame(
        [
            (None, noon, Decimal(1), 1.0),
            ("demo/phone0", None, Decimal(1), 1.0),
            ("demo/phone0", noon, None, 1.0),
            ("demo/phone0", noon, Decimal(1), float("nan")),
            ("demo/phone0", noon, Decimal(91), 1.0),
            ("demo/phone0", noon, Decimal(1), 181.0),
        ],
        "`who.is` string, at timestamp, y decimal(12,9), x double",
    )
    names: dict[str, Any] = {"device": "who.is", "time": "at", "lat": "y", "lon": "x"}
    found = api.visits(other.unionByName(bad), **names)
    expected = rows(api.visits(fixes))
    assert [(row["arrival"], row["place_id"]) for row in rows(found)] == [
        (row["arrival"], row["place_id"]) for row in expected
    ]


@pytest.mark.parametrize(
    ("columns", "names", "message"),
    [
        ("device, time, lat", {}, "no column 'lon' for `lon`; this DataFrame has device, time"),
        ("device, unix_millis(time) as time, lat, lon", {}, "a timestamp, which timestamp_millis"),
        ("device, string(time) as time, lat, lon", {}, "a timestamp, which to_timestamp"),
        ("device, time, string(lat) as lat, lon", {}, "'lat' for `lat` is string; it has to be a"),
        ("array(device) as device, time, lat, lon", {}, "it has to be text or a whole number"),
        ("device, time, lat, lon", {"accuracy": "hdop"}, "no column 'hdop' for `accuracy`"),
        ("device, time, lat, lon, 'x' as accuracy", {}, "a number \\(metres\\)"),
    ],
)
def test_a_column_that_cannot_be_used_is_named(
    fixes: DataFrame, columns: str, names: dict[str, Any], message: str
) -> None:
    from pyspark.sql import functions as sf

    for function in (api.stay_points, api.visits, api.trips, api.favourite_places):
        with pytest.raises(ValueError, match=message):
            function(fixes.select(*(sf.expr(each) for each in _split(columns))), **names)


def _split(columns: str) -> list[str]:
    return [each.strip() for each in columns.split(",")]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"duration_s": 60.0}, "300 s or more; clean=False"),
        ({"distance_m": 0.0}, "more than 0"),
        ({"gap_s": -1.0}, "more than 0"),
    ],
)
def test_settings_of_stay_points_are_checked(
    fixes: DataFrame, settings: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        api.stay_points(fixes, **settings)  # type: ignore[arg-type]


def test_stay_points_take_settings(fixes: DataFrame) -> None:
    raw = api.stay_points(fixes, clean=False, duration_s=60, gap_s=900).collect()
    assert min(row.dwell_s for row in raw) < 300
    long = api.stay_points(fixes, duration_s=7200).collect()
    assert min(row.dwell_s for row in long) >= 7200
    wide = api.stay_points(fixes, clean=False, distance_m=1000).count()
    assert wide < api.stay_points(fixes, clean=False).count()


def test_cells_are_those_of_h3(session: SparkSession) -> None:
    frame = session.createDataFrame(
        [(52.5, 13.4), (-33.9, 151.2), (None, 1.0), (95.0, 1.0), (1.0, float("nan"))],
        "lat double, lon double",
    )
    found = [row[0] for row in frame.select(api.h3_cell("lat", frame.lon, 7)).collect()]
    assert found == [
        h3.latlng_to_cell(52.5, 13.4, 7),
        h3.latlng_to_cell(-33.9, 151.2, 7),
        *(None, None, None),
    ]
    assert frame.select(api.h3_cell("lat", "lon")).columns == ["h3_cell"]
    with pytest.raises(ValueError, match="0 to 15"):
        api.h3_cell("lat", "lon", 16)


POINTS = [
    (52.5, 13.4),
    (47.141, 9.5209),
    (52.5001, 13.4001),
    (0.0, -30.0),
    (None, 1.0),
    (91.0, 0.0),
]


def addresses(frame: DataFrame, *arguments: Any, **options: Any) -> list[Any]:
    found = frame.select(api.reverse_geocode("lat", "lon", *arguments, **options))
    assert found.columns == ["address"]
    return [row[0] for row in found.collect()]


def test_addresses_are_those_of_the_geocoder(session: SparkSession) -> None:
    frame = session.createDataFrame(POINTS, "lat double, lon double")
    geocoder = Geocoder.open()
    for zoom in (3, 18):
        found = addresses(frame, zoom=zoom)
        assert found[3:] == [None, None, None]
        for row, (lat, lon) in zip(found[:3], POINTS[:3], strict=True):
            assert lat is not None
            result = geocoder.reverse(lat, lon, zoom=zoom)
            assert result.place is not None
            assert row.display_name == result.display_name
            assert row.address == result.address
            assert row.distance == result.distance
            assert (row.name, row.timezone) == (result.place.name, result.place.timezone)
            assert (row.category, row.type) == (result.place.category, result.place.type)


def test_settings_of_addresses_are_checked(session: SparkSession) -> None:
    with pytest.raises(ValueError, match="3 \\(country\\) to 18"):
        api.reverse_geocode("lat", "lon", zoom=2)
    with pytest.raises(ValueError, match="give a list"):
        api.reverse_geocode("lat", "lon", languages="de")


def test_an_index_is_found_by_path_among_shipped_files_and_in_archives(
    session: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    frame = session.createDataFrame(POINTS[:2], "lat double, lon double")
    expected = addresses(frame)
    # Spark may fetch them for each task until the session ends.
    shipped = tmp_path_factory.mktemp("shipped")
    name = f"world-{uuid.uuid4().hex[:8]}"
    alone, inside = shipped / f"{name}.bin", shipped / "inside"
    shutil.copy(WORLD_PATH, alone)
    assert addresses(frame, str(alone)) == expected
    session.sparkContext.addFile(str(alone))
    inside.mkdir()
    shutil.copy(WORLD_PATH, inside / "index.bin")
    archive = shutil.make_archive(str(shipped / name), "zip", inside)
    session.sparkContext.addArchive(f"{archive}#{name}")
    assert addresses(frame, f"{name}.bin") == expected
    assert addresses(frame, f"{name}/index.bin") == expected


def test_an_index_that_is_nowhere_is_named(session: SparkSession) -> None:
    from pyspark.errors import PythonException

    frame = session.createDataFrame(POINTS[:2], "lat double, lon double")
    with pytest.raises(PythonException, match=r"no geocoding index nowhere\.idx on .*addArchive"):
        addresses(frame, "nowhere.idx")


def test_the_functions_are_loaded_when_they_are_asked_for() -> None:
    code = (
        "import spark, sys; assert 'pyspark' not in sys.modules; assert 'visits' in dir(spark); "
        "[getattr(spark, name) for name in spark.__all__]; assert 'pyspark' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'no_such_function'"):
        _ = api.no_such_function
