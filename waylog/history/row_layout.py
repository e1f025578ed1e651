"""How rows are stored in a history's files, and the form in which the code works with them.

*Stored* rows are for every reader of Parquet, the same in all files: `time` and `received` are UTC
timestamps in milliseconds, `lat` and `lon` doubles, and `date` is the date of `time` in UTC. In the
code's own *rows* times are whole milliseconds since 1970, and there is no `date`.

Positions have seven decimals. Stored they are multiples of 2**-24 degrees, at most 3.4 mm from
these decimals: a double whose last bytes are zero takes half the room of one that is nearest to a
decimal, and rounding to seven decimals gives the same number back (decision 42).

The columns are the members of waylog.messages.Fix in their order, then partition and offset of the
record in the log. A new member is a nullable column, which files written before do not have.

Files of versions before that have times as whole milliseconds, no date, and, if they are packed,
positions as `lat_e7` and `lon_e7`. Both functions here take such columns as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

#: Positions are whole numbers of a unit; this many units are one degree.
UNITS_PER_DEGREE: Final = 10_000_000

STORED_TIME: Final = pa.timestamp("ms", tz="UTC")
DATE: Final = "date"

_TIMES: Final = ("time", "received")
_POSITIONS: Final = ("lat", "lon")
_UNITS_SUFFIX: Final = "_e7"
_DAY_MS: Final = 86_400_000
# The coarsest power of two from which rounding finds each unit again.
_STEPS_PER_DEGREE: Final = float(1 << 24)

FIX_FIELDS: Final = (
    pa.field("id", pa.string(), nullable=False),
    pa.field("device", pa.string(), nullable=False),
    pa.field("user", pa.string(), nullable=False),
    pa.field("lat", pa.float64(), nullable=False),
    pa.field("lon", pa.float64(), nullable=False),
    pa.field("time", pa.int64(), nullable=False),
    pa.field("received", pa.int64(), nullable=False),
    pa.field("accuracy", pa.float64()),
    pa.field("altitude", pa.float64()),
    pa.field("vertical_accuracy", pa.float64()),
    pa.field("speed", pa.float64()),
    pa.field("course", pa.float64()),
    pa.field("battery", pa.float64()),
    pa.field("charging", pa.bool_()),
    pa.field("trigger", pa.string()),
    pa.field("source", pa.string()),
    pa.field("attributes", pa.string()),
)

#: The schema of rows.
HISTORY_SCHEMA: Final = pa.schema(
    [
        *FIX_FIELDS,
        pa.field("kafka_partition", pa.int32(), nullable=False),
        pa.field("kafka_offset", pa.int64(), nullable=False),
    ]
)

#: The schema of the history's files.
STORED_SCHEMA: Final = pa.schema(
    [
        *(
            field.with_type(STORED_TIME) if field.name in _TIMES else field
            for field in HISTORY_SCHEMA
        ),
        pa.field(DATE, pa.date32(), nullable=False),
    ]
)

RowsT = TypeVar("RowsT", pa.RecordBatch, pa.Table)


def to_units(degrees: NDArray[np.float64]) -> NDArray[np.int32]:
    """Convert degrees to whole numbers of 1e-7 degrees."""
    return np.rint(degrees * UNITS_PER_DEGREE).astype(np.int32)


def stored_degrees(units: NDArray[np.int32]) -> NDArray[np.float64]:
    """Convert whole numbers of 1e-7 degrees to the doubles that are stored for them."""
    steps = np.rint(units * (_STEPS_PER_DEGREE / UNITS_PER_DEGREE))
    result: NDArray[np.float64] = steps / _STEPS_PER_DEGREE
    return result


def stored_names(there: Iterable[str], columns: Sequence[str]) -> list[str]:
    """Return the names that columns of rows have in a file with the columns `there`."""
    known = set(there)
    return [
        f"{name}{_UNITS_SUFFIX}" if name in _POSITIONS and name not in known else name
        for name in columns
    ]


def to_rows(batch: RowsT) -> RowsT:
    """Return the columns of a file as those of rows."""
    fields: list[pa.Field] = []
    columns: list[pa.Array | pa.ChunkedArray] = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        name = field.name.removesuffix(_UNITS_SUFFIX)
        if name == DATE:
            continue
        if name in _TIMES:
            field, column = field.with_type(pa.int64()), column.cast(pa.int64())  # noqa: PLW2901
        elif name in _POSITIONS:
            values = column.to_numpy()
            units = values if field.type == pa.int32() else np.rint(values * UNITS_PER_DEGREE)
            field = pa.field(name, pa.float64(), nullable=False)  # noqa: PLW2901
            column = pa.array(units / UNITS_PER_DEGREE)  # noqa: PLW2901
        fields.append(field)
        columns.append(column)
    return type(batch).from_arrays(columns, schema=pa.schema(fields))


def to_stored(rows: RowsT, schema: pa.Schema = STORED_SCHEMA) -> RowsT:
    """Return rows, or the columns of any file, as files have them.

    `schema` has some columns of STORED_SCHEMA; those that are missing in `rows` become null.
    """
    there = set(rows.schema.names)
    columns: list[pa.Array | pa.ChunkedArray] = []
    for field in schema:
        name = field.name
        units = f"{name}{_UNITS_SUFFIX}"
        if name in _POSITIONS:
            values = rows[units].to_numpy() if units in there else to_units(rows[name].to_numpy())
            columns.append(pa.array(stored_degrees(values)))
        elif name == DATE and name not in there:
            columns.append(_dates(rows["time"].cast(pa.int64()).to_numpy()))
        elif name in there:
            columns.append(rows[name].cast(field.type))
        else:
            columns.append(pa.nulls(rows.num_rows, field.type))
    return type(rows).from_arrays(columns, schema=schema)


def _dates(times_ms: NDArray[np.int64]) -> pa.Array:
    days = np.floor_divide(times_ms, _DAY_MS).astype(np.int32)
    return pa.array(days).view(pa.date32())
