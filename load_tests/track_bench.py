"""The track of one device over a year, through the gateway: how long an answer takes.

    python -m load_tests.track_bench --devices 50 --fixes-a-day 200

A year of fixes is written as the history job leaves them, and packed; a gateway answers out of it.
Each question is for another device, over all of the year, and takes what reading its answer takes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from load_tests.broker_processes import WAYLOG, MeasuredBroker
from load_tests.measured_gateway import MeasuredGateway
from spark.compaction import compact_period, plan_period
from spark.history_manifest import ManifestWriter
from spark.landing import PARQUET_OPTIONS
from spark.schema import HISTORY_SCHEMA
from waylog.history_reader import HistoryReader
from waylog.kafka import ensure_topics
from waylog.messages import fix_id

_FIRST_DAY: Final = datetime(2025, 1, 1, tzinfo=UTC)
_DAYS: Final = 365
_DAY_MS: Final = 86_400_000


def measure(devices: int, each: int, questions: int, folder: Path) -> dict[str, Any]:
    """Write a year, pack it, ask for it."""
    history = folder / "history"
    for number in range(_DAYS):
        _write_day(history, _FIRST_DAY + timedelta(days=number), devices, each)
    _pack(history)
    with (
        MeasuredBroker(WAYLOG, folder / "broker") as broker,
        _with_topics(broker, folder) as gateway,
    ):
        times, points = [], 0
        for number in range(questions + 1):
            from_ms = round(_FIRST_DAY.timestamp() * 1000)
            path = f"/v1/devices/{_device(number % devices).replace('/', '%2F')}/track"
            began = time.perf_counter()
            answer = gateway.get(f"{path}?from={from_ms}&to={from_ms + _DAYS * _DAY_MS}")
            if number:  # the first one starts what reads Parquet
                times.append((time.perf_counter() - began) * 1000)
                points += (answer or b"").count(b'Z"')  # ends of times
    return {
        "name": "history: a device's track over a year",
        "files": len(HistoryReader(str(history)).files()),
        "points": round(points / questions),
        "p50_ms": round(float(np.percentile(times, 50)), 1),
        "p99_ms": round(float(np.percentile(times, 99)), 1),
        "max_ms": round(max(times), 1),
        "passed": points == questions * _DAYS * each,
    }


def _with_topics(broker: MeasuredBroker, folder: Path) -> MeasuredGateway:
    ensure_topics(broker.bootstrap_servers)
    return MeasuredGateway(broker.bootstrap_servers, folder)


def _device(number: int) -> str:
    return f"bench/d{number:05d}"


def _write_day(history: Path, day: datetime, devices: int, each: int) -> None:
    dice = np.random.default_rng(day.toordinal())
    rows = devices * each
    device, nth = np.repeat(np.arange(devices), each), np.tile(np.arange(each), devices)
    times = round(day.timestamp() * 1000) + nth * (_DAY_MS // each)
    lat = np.round(47 + device * 1e-2 + dice.normal(0, 8e-5, rows), 6)
    lon = np.round(9 + device * 7e-3 + dice.normal(0, 8e-5, rows), 6)
    names = [_device(number) for number in device.tolist()]
    given = zip(names, times.tolist(), lat.tolist(), lon.tolist(), strict=True)
    known = {
        "id": pa.array([fix_id(*each) for each in given]),
        "device": pa.array(names),
        "user": pa.array(["bench"] * rows),
        "lat": pa.array(lat),
        "lon": pa.array(lon),
        "time": pa.array(times),
        "received": pa.array(times + 300),
        "accuracy": pa.array(dice.choice([4.0, 6.5, 10.0, 14.2], rows)),
        "kafka_partition": pa.array(np.zeros(rows, np.int32)),
        "kafka_offset": pa.array(np.arange(rows) + (day - _FIRST_DAY).days * rows),
    }
    table = pa.Table.from_arrays(
        [known.get(field.name, pa.nulls(rows, field.type)) for field in HISTORY_SCHEMA],
        schema=HISTORY_SCHEMA,
    ).sort_by("time")
    folder = history / f"date={day:%Y-%m-%d}"
    folder.mkdir(parents=True)
    first = known["kafka_offset"][0].as_py()
    name = f"location-0-{first:020d}-{first + rows - 1:020d}.parquet"
    pq.write_table(table, folder / name, **PARQUET_OPTIONS)


def _pack(history: Path) -> None:
    reader = HistoryReader(str(history))
    writer = ManifestWriter(str(history))
    try:
        for month in sorted({period[:7] for period in reader.periods()}):
            writer.commit([compact_period(plan_period(reader, month))])
        writer.delete_superseded()
    finally:
        writer.close()


def main(argv: list[str] | None = None) -> int:
    """Measure once and print the figures as one JSON object."""
    parser = argparse.ArgumentParser(
        prog="python -m load_tests.track_bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--devices", type=int, default=50, help="that send (50)")
    parser.add_argument("--fixes-a-day", type=int, default=200, help="of each (200)")
    parser.add_argument("--questions", type=int, default=200, help="to the gateway (200)")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="waylog-track-") as folder:
        result = measure(
            arguments.devices, arguments.fixes_a_day, arguments.questions, Path(folder)
        )
    print(json.dumps(result))
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
