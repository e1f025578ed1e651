"""Rows of a history by day."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

DAY_MS: Final = 86_400_000


def days_of_rows(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield the days (UTC) of rows that are ascending by time."""
    days = np.floor_divide(rows["time"].to_numpy(), DAY_MS)
    cuts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), rows.num_rows]
    for start, stop in pairwise(cuts):
        if start < stop:
            yield rows.slice(start, stop - start)
