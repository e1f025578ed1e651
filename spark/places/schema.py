"""The tables of the places job. Times are in ms since 1970 UTC, positions in degrees."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from spark.places.stay_points import STAY_TYPE

#: The file with the favourite places of all devices.
FILE: Final = "places.parquet"

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
        pa.field("confidence", pa.float64()),  # of the label, 0..1
        # Minutes in each hour of the local week, from Monday 0:00.
        pa.field("profile", pa.list_(pa.int32())),
        pa.field("named_by", pa.string()),  # "user" if a user chose the name or the label
        # What the place is and was, in the order of time: "home" or "work" from the start of a
        # visit to the end of another, null if it still is.
        pa.field(
            "roles",
            pa.list_(
                pa.struct(
                    [
                        pa.field("label", pa.string(), nullable=False),
                        pa.field("since", pa.int64(), nullable=False),
                        pa.field("until", pa.int64()),
                        pa.field("confidence", pa.float64(), nullable=False),
                    ]
                )
            ),
        ),
    ]
)

VISITS_SCHEMA: Final = pa.schema(
    [
        pa.field("device", pa.string(), nullable=False),
        pa.field("arrival", pa.int64(), nullable=False),
        pa.field("departure", pa.int64(), nullable=False),
        pa.field("place_id", pa.string()),  # null: a place that is not a favourite
        pa.field("lat", pa.float64(), nullable=False),
        pa.field("lon", pa.float64(), nullable=False),
        pa.field("dwell_s", pa.int64(), nullable=False),
        # Part of it in silences of more than 15 minutes, without any fix.
        pa.field("silent_s", pa.int64(), nullable=False),
        pa.field("fixes", pa.int64(), nullable=False),
        # Between these the device arrived and departed; what is in between was in silence.
        pa.field("arrival_earliest", pa.int64()),
        pa.field("arrival_latest", pa.int64()),
        pa.field("departure_earliest", pa.int64()),
        pa.field("departure_latest", pa.int64()),
    ]
)

TRIPS_SCHEMA: Final = pa.schema(
    [
        pa.field("device", pa.string(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field("origin", pa.string()),  # place_id
        pa.field("destination", pa.string()),
        pa.field("distance_m", pa.float64(), nullable=False),  # in a straight line
    ]
)

#: The finished stays of each device; see `spark.places.stay_points.STAY_TYPE`.
STAYS_SCHEMA: Final = pa.schema(
    [
        pa.field("device", pa.string(), nullable=False),
        *(pa.field(name, pa.int64(), nullable=False) for name in STAY_TYPE.names or ()),
    ]
)

#: The state of each device's unfinished stay; see `StayFinder.state_bytes`.
STATES_SCHEMA: Final = pa.schema(
    [
        pa.field("device", pa.string(), nullable=False),
        pa.field("state", pa.binary(), nullable=False),
    ]
)
