"""Rows come back out of a file as they went in; what is stored is what every program expects."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.spark.history.test_compaction import some_fixes
from waylog.history.row_layout import (
    HISTORY_SCHEMA,
    STORED_SCHEMA,
    stored_degrees,
    to_rows,
    to_stored,
    to_units,
)

DAY_MS = 86_400_000


@given(arrays.arrays(np.int32, 100, elements=st.integers(-1_800_000_000, 1_800_000_000)))
def test_each_decimal_is_found_again(units: np.ndarray) -> None:
    degrees = stored_degrees(units)
    assert (to_units(degrees) == units).all()
    assert (np.round(degrees, 7) == units / 1e7).all()
    assert np.abs(degrees - units / 1e7).max() <= 2**-25 + 1e-15
    # Half of each double is zero bits, which take no room.
    assert (degrees.view(np.int64) & 0xFFFFF == 0).all()


def test_rows_come_back_and_what_is_stored_stays_so() -> None:
    rows = some_fixes(100)
    stored = to_stored(rows)
    assert stored.schema == STORED_SCHEMA
    assert to_rows(stored).schema == HISTORY_SCHEMA
    assert to_rows(stored).equals(rows)
    assert to_stored(stored).equals(stored)
    [batch] = stored.combine_chunks().to_batches()
    assert to_rows(batch).equals(rows.combine_chunks().to_batches()[0])


@pytest.mark.parametrize(
    ("time_ms", "date"),
    [
        (20_454 * DAY_MS, "2026-01-01"),
        (20_454 * DAY_MS - 1, "2025-12-31"),
        (20_455 * DAY_MS - 1, "2026-01-01"),
        (-1, "1969-12-31"),
    ],
)
def test_a_date_begins_at_midnight_utc(time_ms: int, date: str) -> None:
    rows = some_fixes(1)
    index = HISTORY_SCHEMA.get_field_index("time")
    rows = rows.set_column(index, HISTORY_SCHEMA.field("time"), pa.array([time_ms]))
    [row] = to_stored(rows).to_pylist()
    assert row["date"] == datetime.date.fromisoformat(date) == row["time"].date()
