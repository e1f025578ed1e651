"""A grid over the earth, in which what is near each other has a cell in common."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from waylog.great_circle import EARTH_M

_METRES_OF_DEGREE: Final = math.radians(EARTH_M)
#: Cells are this many times as wide as what is near; few places then are in several cells.
_WIDTHS: Final = 20


@dataclass(frozen=True)
class Grid:
    """Rows of latitude, each divided into cells that are at least as wide as they are high."""

    near_m: float

    @property
    def _rows(self) -> int:
        return max(1, math.floor(180.0 * _METRES_OF_DEGREE / (_WIDTHS * self.near_m)))

    def home(self, lat: float, lon: float) -> tuple[int, int]:
        """Return the cell of a place, as row and column."""
        rows = self._rows
        row = min(rows - 1, max(0, math.floor((lat + 90.0) / 180.0 * rows)))
        columns = self._columns(row, rows)
        return row, math.floor((lon + 180.0) / 360.0 * columns) % columns

    def cells(self, lat: float, lon: float) -> set[tuple[int, int]]:
        """Return the cells of all places within `near_m`: the home, and up to three or four more.

        Costs some microseconds.
        """
        rows = self._rows
        dlat = self.near_m / _METRES_OF_DEGREE * 1.01
        found: set[tuple[int, int]] = set()
        for edge in (lat - dlat, lat, lat + dlat):
            row = min(rows - 1, max(0, math.floor((edge + 90.0) / 180.0 * rows)))
            columns = self._columns(row, rows)
            # Where the circle is widest, in degrees.
            cosine = math.cos(math.radians(min(90.0, abs(lat) + dlat)))
            dlon = min(180.0, dlat / max(cosine, 1e-9))
            first = math.floor((lon - dlon + 180.0) / 360.0 * columns)
            last = math.floor((lon + dlon + 180.0) / 360.0 * columns)
            found.update(
                (row, column % columns) for column in range(first, min(last, first + columns) + 1)
            )
        return found

    @staticmethod
    def _columns(row: int, rows: int) -> int:
        south, north = row * 180.0 / rows - 90.0, (row + 1) * 180.0 / rows - 90.0
        return max(1, math.floor(2 * rows * math.cos(math.radians(max(abs(south), abs(north))))))
