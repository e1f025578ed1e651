"""The places job: a history in Parquet to one table of favourite places.

Spark brings the fixes of a device together and in order; each task then goes through its devices
one after the other, holding the fixes of one device at a time.
"""

from __future__ import annotations

import logging
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark.cleaning import Fixes, distances_m
from spark.place_names import PlaceNames
from spark.places import find_places
from spark.schema import HISTORY_SCHEMA
from spark.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

FILE: Final = "places.parquet"

#: A place whose centre moved less than this since the last computation keeps its id.
SAME_PLACE_M: Final = 100.0

#: A row of the places table. Times are ms since 1970 UTC.
PLACES_SCHEMA: Final = pa.schema(
    [
        pa.field("user", pa.string(), nullable=False),
        pa.field("device", pa.string(), nullable=False),
        pa.field("place_id", pa.string(), nullable=False),
        pa.field("lat", pa.float64(), nullable=False),
        pa.field("lon", pa.float64(), nullable=False),
        pa.field("label", pa.string()),
        pa.field("name", pa.string()),
        pa.field("visits", pa.int64(), nullable=False),
        pa.field("dwell_s", pa.int64(), nullable=False),
        pa.field("address", pa.string()),
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("days", pa.int32(), nullable=False),
        pa.field("radius_m", pa.float64(), nullable=False),
        pa.field("first", pa.int64(), nullable=False),
        pa.field("last", pa.int64(), nullable=False),
    ]
)

_INPUT: Final = ("device", "user", "time", "lat", "lon", "accuracy")


@dataclass(frozen=True)
class PlacesWritten:
    """What a computation of places brought."""

    places: int
    devices: int
    seconds: float


def write_places(session: SparkSession, history: str, out: str) -> PlacesWritten:
    """Compute the places of all devices of a history and replace the table at `out`.

    Raises ConfigError for a place that can not be read or written.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    started = time.monotonic()
    source, target = Storage(history), Storage(out)
    target.open_folder()
    if source.list_files():
        frame = (
            session.read.schema(from_arrow_schema(HISTORY_SCHEMA))
            .parquet(source.spark_url)
            .select(*_INPUT, "kafka_offset")
            .repartition("device")
            # The offset decides between two fixes of one time: the same in every run.
            .sortWithinPartitions("device", "time", "kafka_offset")
            .select(*_INPUT)
        )
        places = frame.mapInArrow(places_of_batches, from_arrow_schema(PLACES_SCHEMA)).toArrow()
        # Spark does not know which columns are never null, and promises no order.
        places = pa.Table.from_batches(places.to_batches(), places.schema)
        places = places.cast(PLACES_SCHEMA).sort_by(
            [("device", "ascending"), ("rank", "ascending")]
        )
    else:
        places = PLACES_SCHEMA.empty_table()
    if FILE in target.list_files():
        places = keep_ids(places, target.read_parquet(FILE))
    aside = f".{FILE}.{os.getpid()}"
    target.write_parquet(aside, places, compression="zstd")
    target.rename(aside, FILE)
    target.flush_folder("")
    devices = len(places["device"].unique())
    seconds = time.monotonic() - started
    logger.info("%d places of %d devices, %.1f s", places.num_rows, devices, seconds)
    return PlacesWritten(places.num_rows, devices, seconds)


def places_of_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: rows ascending by device and time in, rows of PLACES_SCHEMA out."""
    names = PlaceNames()
    for device, parts in _by_device(batches):
        rows = _places_of_device(device, parts, names)
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=PLACES_SCHEMA)


def _by_device(
    batches: Iterator[pa.RecordBatch],
) -> Iterator[tuple[str, list[pa.RecordBatch]]]:
    waiting: list[pa.RecordBatch] = []
    current: str | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        # Runs of one device; far fewer than rows.
        runs = pc.run_end_encode(batch["device"])
        start = 0
        for device, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            if device != current:
                if current is not None:
                    yield current, waiting
                current, waiting = device, []
            waiting.append(batch.slice(start, end - start))
            start = end
    if current is not None:
        yield current, waiting


def _places_of_device(
    device: str, parts: list[pa.RecordBatch], names: PlaceNames
) -> list[dict[str, Any]]:
    def column(name: str) -> Any:
        return np.concatenate([part[name].to_numpy(zero_copy_only=False) for part in parts])

    fixes = Fixes(column("time"), column("lat"), column("lon"))
    accuracy = column("accuracy").astype(np.float64)
    user = parts[-1]["user"][-1].as_py()
    found = find_places(device, fixes, accuracy, names.local_offsets)
    rows = []
    for rank, place in enumerate(found, start=1):
        name = names.name_of(place.lat, place.lon)
        rows.append(
            {
                "user": user,
                "device": device,
                "place_id": place.place_id,
                "lat": place.lat,
                "lon": place.lon,
                "label": place.label,
                "name": name.name,
                "visits": place.visits,
                "dwell_s": place.dwell_ms // 1000,
                "address": name.address,
                "rank": rank,
                "days": place.days,
                "radius_m": place.radius_m,
                "first": place.first,
                "last": place.last,
            }
        )
    return rows


def keep_ids(places: pa.Table, older: pa.Table) -> pa.Table:
    """Give every place the id that it had: that of the nearest older place of its device.

    Of two places near one older place, the one that is listed first (more dwell) keeps the id.
    """
    known: dict[str, list[tuple[str, float, float]]] = defaultdict(list)
    for device, place_id, lat, lon in zip(
        *(older[name].to_pylist() for name in ("device", "place_id", "lat", "lon")), strict=True
    ):
        known[device].append((place_id, lat, lon))
    ids: list[str] = []
    given: set[tuple[str, str]] = set()
    for device, place_id, lat, lon in zip(
        *(places[name].to_pylist() for name in ("device", "place_id", "lat", "lon")), strict=True
    ):
        chosen = place_id
        candidates = [each for each in known[device] if (device, each[0]) not in given]
        if candidates:
            distances = distances_m(
                np.full(len(candidates), lat),
                np.full(len(candidates), lon),
                np.array([each[1] for each in candidates]),
                np.array([each[2] for each in candidates]),
            )
            nearest = int(np.argmin(distances))
            if distances[nearest] <= SAME_PLACE_M:
                chosen = candidates[nearest][0]
        if (device, chosen) in given:
            # The id of its own centre was taken over by a neighbour that is older.
            chosen = f"{place_id}-{len(ids)}"
        given.add((device, chosen))
        ids.append(chosen)
    return places.set_column(
        places.schema.get_field_index("place_id"),
        PLACES_SCHEMA.field("place_id"),
        pa.array(ids, pa.string()),
    )
