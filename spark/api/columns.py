"""The columns that functions for DataFrames take, and those that they return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from spark.places.schema import PLACES_SCHEMA, TRIPS_SCHEMA, VISITS_SCHEMA
from spark.places.stay_points import STAY_TYPE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Spark's timestamps are in microseconds.
_TIME: Final = pa.timestamp("us", tz="UTC")
_TIMES: Final = frozenset(
    {
        *("arrival", "departure", "start", "end", "first", "last", "since", "until", "seen"),
        *("arrival_earliest", "arrival_latest", "departure_earliest", "departure_latest"),
        *("before", "after"),
    }
)
_DEGREES: Final = frozenset(
    {"lat", "lon", "before_lat", "before_lon", "after_lat", "after_lon"},
)
#: Lengths of time, which are whole milliseconds here and seconds in what users get.
_LENGTHS: Final = {"silent": "silent_ms", "quiet": "quiet_ms", "longest": "longest_ms"}

_NUMBERS: Final = (
    *(ByteType, ShortType, IntegerType, LongType),
    *(FloatType, DoubleType, DecimalType),
)
_DEVICES: Final = (StringType, ByteType, ShortType, IntegerType, LongType)


def with_timestamps(schema: pa.Schema, unit: pa.DataType = _TIME) -> pa.Schema:
    """Return a schema of places, visits or trips whose times are timestamps."""
    return pa.schema([_timed(field, unit) for field in schema])


def _timed(field: pa.Field, unit: pa.DataType) -> pa.Field:
    if field.name in _TIMES:
        return field.with_type(unit)
    if pa.types.is_list(field.type) and pa.types.is_struct(field.type.value_type):
        inner = [_timed(each, unit) for each in field.type.value_type]
        return field.with_type(pa.list_(pa.struct(inner)))
    return field


def _candidate_field(name: str) -> pa.Field:
    if name in _TIMES:
        return pa.field(name, _TIME, nullable=False)
    kind = pa.float64() if name in _DEGREES else pa.int64()
    return pa.field(_LENGTHS.get(name, name), kind, nullable=False)


#: What `stay_candidates` returns: the members of STAY_TYPE.
CANDIDATES: Final = pa.schema(
    [
        pa.field("device", pa.string(), nullable=False),
        *map(_candidate_field, STAY_TYPE.names or ()),
    ]
)

#: What `stay_points` returns.
STAY_POINTS: Final = pa.schema(
    [
        pa.field("device", pa.string(), nullable=False),
        pa.field("start", _TIME, nullable=False),
        pa.field("end", _TIME, nullable=False),
        pa.field("lat", pa.float64(), nullable=False),
        pa.field("lon", pa.float64(), nullable=False),
        pa.field("fixes", pa.int64(), nullable=False),
        pa.field("dwell_s", pa.int64(), nullable=False),
        pa.field("silent_s", pa.int64(), nullable=False),
    ]
)

# Users say who named a place in the platform, which fixes do not tell.
PLACES: Final = with_timestamps(
    pa.schema([field for field in PLACES_SCHEMA if field.name != "named_by"])
)
VISITS: Final = with_timestamps(VISITS_SCHEMA)
TRIPS: Final = with_timestamps(TRIPS_SCHEMA)


@dataclass(frozen=True)
class FixColumns:
    """The names of the columns of a DataFrame that has fixes."""

    device: str = "device"
    time: str = "time"
    lat: str = "lat"
    lon: str = "lon"
    accuracy: str | None = "accuracy"

    def of(self, frame: DataFrame) -> DataFrame:
        """Return device, time, lat, lon and accuracy of the rows that are fixes.

        Rows without a device, a time or a point on earth are left out. Raises ValueError for a
        column that is missing or of a wrong type.
        """
        from pyspark.sql import functions as sf

        types = {field.name: field.dataType for field in frame.schema.fields}
        for role, name, kinds, wanted in (
            ("device", self.device, _DEVICES, "text or a whole number"),
            ("time", self.time, (TimestampType, TimestampNTZType), "a timestamp"),
            ("lat", self.lat, _NUMBERS, "a number (degrees)"),
            ("lon", self.lon, _NUMBERS, "a number (degrees)"),
        ):
            _check(types, role, name, kinds, wanted)
        accuracy = sf.lit(None).cast("double")
        if self.accuracy is not None and self.accuracy in types:
            _check(types, "accuracy", self.accuracy, _NUMBERS, "a number (metres)")
            accuracy = frame[_quoted(self.accuracy)].cast("double")
        elif self.accuracy not in {None, "accuracy"}:
            _check(types, "accuracy", str(self.accuracy), _NUMBERS, "a number (metres)")
        lat, lon = frame[_quoted(self.lat)], frame[_quoted(self.lon)]
        rows = frame.select(
            frame[_quoted(self.device)].cast("string").alias("device"),
            frame[_quoted(self.time)].cast("timestamp").alias("time"),
            lat.cast("double").alias("lat"),
            lon.cast("double").alias("lon"),
            accuracy.alias("accuracy"),
        )
        return rows.where(
            sf.col("device").isNotNull()
            & sf.col("time").isNotNull()
            & is_point(sf.col("lat"), sf.col("lon"))
        )


def is_point(lat: Column, lon: Column) -> Column:
    """Return whether there is such a point on earth; NaN is larger than any number in Spark."""
    return lat.between(-90.0, 90.0) & lon.between(-180.0, 180.0)


def _check(
    types: dict[str, DataType],
    role: str,
    name: str,
    kinds: tuple[type[DataType], ...],
    wanted: str,
) -> None:
    kind = types.get(name)
    if kind is None:
        raise ValueError(
            f"no column {name!r} for `{role}`; this DataFrame has {', '.join(types)}: "
            f"name the column with {role}=..."
        )
    if isinstance(kind, kinds):
        return
    hint = ""
    if role == "time" and isinstance(kind, LongType):
        hint = ", which timestamp_millis or timestamp_seconds of pyspark.sql.functions makes"
    elif role == "time" and isinstance(kind, StringType):
        hint = ", which to_timestamp of pyspark.sql.functions makes"
    raise ValueError(
        f"column {name!r} for `{role}` is {kind.simpleString()}; it has to be {wanted}{hint}"
    )


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def is_candidates(frame: DataFrame) -> bool:
    """Return whether a DataFrame is what `stay_candidates` returns."""
    return set(CANDIDATES.names) <= set(frame.columns)
