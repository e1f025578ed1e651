"""Measures a packed day of the history: the size of each column, and the cost of a query.

    python -m spark.history.layout_bench --rows 2000000 --devices 4000

Each device has three places, home and two at an exponentially distributed distance from it, with
the error of a phone around them, and sends whole seconds; ids are those that Waylog makes. The
fixes of a day are written as the history job writes them and packed as `waylog history compact`
does. Queries are DuckDB's, with one thread; processor time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark.fixes.staging import PARQUET_OPTIONS
from spark.history.compaction import compact_period, plan_period
from spark.history.manifest import ManifestWriter
from waylog.history.file_names import OffsetSpan, folder_of, landed_path
from waylog.history.history_reader import HistoryReader
from waylog.history.row_layout import HISTORY_SCHEMA, to_stored
from waylog.messages import fix_id

_DAY: Final = "2026-01-01"
_DAY_MS: Final = 1_767_225_600_000
_PARTITIONS: Final = 4
_QUERIES: Final = 20
_AREA_DEG: Final = (0.02, 0.04)


def measure(rows: int, devices: int, folder: Path, roam_km: float) -> dict[str, Any]:
    """Write a day, compact it, and measure size and queries."""
    history = folder / "history"
    _write_day(history, rows // devices, devices, roam_km)
    landed = sum(path.stat().st_size for path in history.rglob("*.parquet"))
    writer = ManifestWriter(str(history))
    began = time.process_time()
    try:
        result = compact_period(plan_period(HistoryReader(str(history)), _DAY))
        packing_s = time.process_time() - began
        writer.commit([result])
        writer.delete_superseded()
    finally:
        writer.close()
    paths = [f"{history}/{file.path}" for file in HistoryReader(str(history)).files()]
    packed = sum(Path(path).stat().st_size for path in paths)
    count = sum(file.rows for file in result.compacted.files)
    columns: dict[str, float] = {}
    for path in paths:
        metadata = pq.read_metadata(path)
        for group in range(metadata.num_row_groups):
            for index in range(metadata.num_columns):
                column = metadata.row_group(group).column(index)
                name = column.path_in_schema
                columns[name] = columns.get(name, 0) + column.total_compressed_size
    return {
        "name": f"history: a packed day of {devices} devices",
        "rows": count,
        "bytes_landed": round(landed / count, 2),
        "bytes_packed": round(packed / count, 2),
        "packing_cpu_us": round(packing_s / count * 1e6, 2),
        "bytes_of_column": {name: round(size / count, 2) for name, size in columns.items()},
        **_query(paths, devices),
    }


def _write_day(history: Path, each: int, devices: int, roam_km: float) -> None:
    dice = np.random.default_rng(1)
    step_ms = 86_400_000 // each
    (history / folder_of(_DAY)).mkdir(parents=True)
    for partition in range(_PARTITIONS):
        own = np.arange(partition, devices, _PARTITIONS)
        rows = len(own) * each
        device = np.repeat(own, each)
        nth = np.tile(np.arange(each), len(own))
        late = dice.integers(0, step_ms // 2, rows)
        times = _DAY_MS + (nth * step_ms + late) // 1000 * 1000
        # Each device has three places a day, the first at home, with a phone's error around each.
        home = dice.random((2, len(own))) * [[1.6], [1.2]] + [[47], [9]]
        away_deg = dice.exponential(roam_km / 111, (len(own), 3)) * [0, 1, 1]
        direction = dice.uniform(0, 2 * np.pi, (len(own), 3))
        row, place = np.repeat(np.arange(len(own)), each), nth * 3 // each
        noise = dice.normal(0, 8e-5, (2, rows)).cumsum(axis=1) % 2e-4
        north = (away_deg * np.sin(direction))[row, place]
        east = (away_deg * np.cos(direction))[row, place] / np.cos(np.radians(47.8))
        lat = np.round(home[0][row] + north + noise[0], 6)
        lon = np.round(home[1][row] + east + noise[1], 6)
        order = np.argsort(times, kind="stable")
        names = [f"u{number:06d}/phone" for number in device[order].tolist()]
        ids = [
            fix_id(name, moment, north, east)
            for name, moment, north, east in zip(
                names,
                times[order].tolist(),
                lat[order].tolist(),
                lon[order].tolist(),
                strict=True,
            )
        ]
        known = {
            "id": pa.array(ids),
            "device": pa.array(names),
            "user": pa.array([name.partition("/")[0] for name in names]),
            "lat": pa.array(lat[order]),
            "lon": pa.array(lon[order]),
            "time": pa.array(times[order]),
            "received": pa.array(np.sort(times + dice.integers(200, 1500, rows))),
            "accuracy": pa.array(dice.choice([4.0, 6.5, 10.0, 14.2, 20.0, 35.0], rows)),
            "source": pa.array(["owntracks"] * rows),
            "kafka_partition": pa.array(np.full(rows, partition, np.int32)),
            "kafka_offset": pa.array(np.arange(rows)),
        }
        columns = [known.get(field.name, pa.nulls(rows, field.type)) for field in HISTORY_SCHEMA]
        table = pa.Table.from_arrays(columns, schema=HISTORY_SCHEMA)
        # The same files as those of a job with a batch every few seconds.
        for start in range(0, rows, 10_000):
            piece = table.slice(start, 10_000)
            span = OffsetSpan(partition, start, start + piece.num_rows - 1)
            path = history / landed_path(_DAY, span)
            pq.write_table(to_stored(piece), path, **PARQUET_OPTIONS)


def _query(paths: list[str], devices: int) -> dict[str, Any]:
    import duckdb

    dice = np.random.default_rng(2)
    with duckdb.connect() as connection:
        connection.execute("set threads = 1")
        given = ", ".join(f"'{path}'" for path in paths)
        source = f"from read_parquet([{given}])"

        def device() -> int:
            name = f"u{int(dice.integers(devices)):06d}/phone"
            asked = f"select time, lat, lon {source} where device = '{name}'"
            return int(connection.sql(asked).to_arrow_table().num_rows)

        def area() -> int:
            south, west = 47.2 + dice.random(), 9.2 + dice.random() * 0.8
            north, east = south + _AREA_DEG[0], west + _AREA_DEG[1]
            asked = (
                f"select device, time {source} where lat between {south} and {north} "
                f"and lon between {west} and {east}"
            )
            return int(connection.sql(asked).to_arrow_table().num_rows)

        return {"device_query": _timed(device), "area_query": _timed(area)}


def _timed(query: Callable[[], int]) -> dict[str, float]:
    query()
    costs, rows = [], 0
    for _ in range(_QUERIES):
        began = time.process_time()
        rows += query()
        costs.append((time.process_time() - began) * 1000)
    return {
        "cpu_ms_median": round(float(np.median(costs)), 2),
        "cpu_ms_max": round(max(costs), 2),
        "rows": round(rows / _QUERIES),
    }


def main(argv: list[str] | None = None) -> int:
    """Measure once and print the figures as one JSON object."""
    parser = argparse.ArgumentParser(
        prog="python -m spark.history.layout_bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=2_000_000, help="fixes of the day (2000000)")
    parser.add_argument("--devices", type=int, default=4_000, help="that send them (4000)")
    parser.add_argument(
        "--roam-km", type=float, default=10.0, help="mean way from home to work and shops (10)"
    )
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="waylog-layout-") as folder:
        given = arguments.rows, arguments.devices, Path(folder), arguments.roam_km
        print(json.dumps(measure(*given)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
