"""Country borders as a quadtree: the conversion of geometry to cells for the world index.

Every ring of a border is cut along the sides of cells, as Sutherland and Hodgman do (what is
outside is projected onto the side), until a cell holds few vertices. This can leave edges that run
along a side and back again. They do no harm, because a parity test counts them twice. Coordinates
are integers of 1e-7 degrees counted from the south-west corner (-180, -90).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

ROOT_SHIFT: Final = 26
ROOT_COLUMNS: Final = 54
ROOT_ROWS: Final = 27
HALF_TURN: Final = 1_800_000_000
QUARTER_TURN: Final = 900_000_000

LEAF_VERTICES: Final = 40
#: Smallest size of a leaf, as a power of two: 0.026 degrees. Only where many borders meet does a
#: leaf this small have more than LEAF_VERTICES vertices.
LEAF_SHIFT_MIN: Final = 18

SEA: Final = -1

Ring = NDArray[np.int64]  # n x 2: u, v; closed

#: Territories without an ISO code of their own in the source.
_CODES: Final = {
    # British bases on Cyprus, whose nearest towns are those of Cyprus.
    "ESB": "CY",
    "WSB": "CY",
    "USG": "CU",  # Guantanamo Bay, leased
    "BRT": "EG",  # Bir Tawil, between Egypt and Sudan
    "PGA": "",  # Spratly Islands, claimed by six
    "SCR": "",  # Scarborough Reef, claimed by three
}


@dataclass(frozen=True)
class Border:
    """All rings of one country."""

    code: str  # ISO 3166-1 alpha-2
    name: str
    rings: list[Ring]


@dataclass(frozen=True)
class Cells:
    """The sections of the quadtree, described in index.pyx."""

    cells: NDArray[np.int32]
    leaves: NDArray[np.int32]
    pieces: NDArray[np.int32]
    vertices: NDArray[np.int32]


def read_borders(shapefile_zip: Path) -> list[Border]:
    """Read Natural Earth's admin 0 countries, merged by ISO code and sorted by it."""
    import shapefile

    borders: dict[str, Border] = {}
    with shapefile.Reader(str(shapefile_zip)) as reader:
        for feature in reader.iterShapeRecords():
            record = feature.record
            code = _CODES.get(record["ADM0_A3"], record["ISO_A2_EH"])
            if len(code) != 2 or not code.isalpha():
                continue
            border = borders.setdefault(code, Border(code, record["NAME_LONG"], []))
            border.rings.extend(_rings(feature.shape))
    return [borders[code] for code in sorted(borders)]


def _rings(shape: object) -> Iterator[Ring]:
    points = np.asarray(shape.points, dtype=np.float64)  # type: ignore[attr-defined]
    steps = np.rint(points * 1e7).astype(np.int64)
    steps += np.array([HALF_TURN, QUARTER_TURN])
    starts = [*shape.parts, len(steps)]  # type: ignore[attr-defined]
    for start, end in pairwise(starts):
        if end - start >= 4:
            yield steps[start:end]


def build_cells(borders: list[Border]) -> Cells:
    """Build the quadtree; countries are numbered as in `borders`."""
    builder = _Builder()
    rings = [(number, ring) for number, border in enumerate(borders) for ring in border.rings]
    rows: list[list[tuple[int, Ring]]] = [[] for _ in range(ROOT_ROWS)]
    _sort_into(rows, rings, axis=1)
    for row, in_row in enumerate(rows):
        columns: list[list[tuple[int, Ring]]] = [[] for _ in range(ROOT_COLUMNS)]
        _sort_into(columns, in_row, axis=0)
        for column, in_cell in enumerate(columns):
            origin = (column << ROOT_SHIFT, row << ROOT_SHIFT)
            builder.fill(row * ROOT_COLUMNS + column, in_cell, origin, ROOT_SHIFT)
    return builder.finish()


def _sort_into(
    bands: list[list[tuple[int, Ring]]], rings: Iterable[tuple[int, Ring]], axis: int
) -> None:
    """Cut rings at the bands of root cells along one axis."""
    for country, ring in rings:
        first = int(ring[:, axis].min()) >> ROOT_SHIFT
        last = min(int(ring[:, axis].max()) >> ROOT_SHIFT, len(bands) - 1)
        rest = ring
        for band in range(first, last):
            below, rest = _split(rest, axis, (band + 1) << ROOT_SHIFT)
            if len(below):
                bands[band].append((country, below))
        if len(rest):
            bands[last].append((country, rest))


def _split(ring: Ring, axis: int, at: int) -> tuple[Ring, Ring]:
    """Split a closed ring at a line into what is at or below it, and what is at or above it.

    A part is empty if there is nothing on that side.
    """
    along = ring[:, axis]
    empty = ring[:0]
    if int(along.max()) <= at:
        return ring, empty
    if int(along.min()) >= at:
        return empty, ring
    start, end = ring[:-1], ring[1:]
    a, b = start[:, axis], end[:, axis]
    crossing = ((a < at) & (b > at)) | ((a > at) & (b < at))
    # Compute the same point for both directions of an edge, because two countries share it.
    low = np.where((a < b)[:, None], start, end)[crossing]
    high = np.where((a < b)[:, None], end, start)[crossing]
    other = 1 - axis
    fraction = (at - low[:, axis]) / (high[:, axis] - low[:, axis])
    cut = np.empty((len(low), 2), dtype=np.int64)
    cut[:, axis] = at
    cut[:, other] = np.rint(low[:, other] + fraction * (high[:, other] - low[:, other]))
    # Merge vertices and cuts in the order of the ring: a cut follows the start of its edge.
    position = np.flatnonzero(crossing) + 1
    merged = np.insert(start, position, cut, axis=0)
    value = merged[:, axis]
    return _closed(merged[value <= at]), _closed(merged[value >= at])


def _closed(ring: Ring) -> Ring:
    if len(ring) < 3:
        return ring[:0]
    ring = np.vstack((ring, ring[:1]))
    # Of several vertices in line along a cell's side only the turning points are kept.
    step = np.diff(ring, axis=0)
    before = np.roll(step, 1, axis=0)
    straight = ((step == 0) & (before == 0)).any(axis=1) & (step * before >= 0).all(axis=1)
    ring = ring[:-1][~straight]
    if len(ring) < 3:
        return ring[:0]
    return np.vstack((ring, ring[:1]))


def _twice_area(rings: list[Ring], origin: tuple[int, int]) -> int:
    """Return twice the signed area. Partial sums may wrap around; the result is correct."""
    total = 0
    for ring in rings:
        x, y = (ring - np.array(origin)).T
        total += int((x[:-1] * y[1:] - x[1:] * y[:-1]).sum())
    return total


class _Builder:
    def __init__(self) -> None:
        self._cells = [SEA] * (ROOT_COLUMNS * ROOT_ROWS)
        self._leaves = [0]
        self._pieces: list[tuple[int, int]] = []
        self._vertices: list[Ring] = [np.empty((0, 2), dtype=np.int64)]
        self._vertex_count = 0

    def fill(
        self, cell: int, rings: list[tuple[int, Ring]], origin: tuple[int, int], shift: int
    ) -> None:
        """Build one cell from the rings that were cut to it."""
        by_country: dict[int, list[Ring]] = {}
        for country, ring in rings:
            by_country.setdefault(country, []).append(ring)
        full = 2 << (2 * shift)
        for country in list(by_country):
            area = abs(_twice_area(by_country[country], origin))
            if area == full:
                self._cells[cell] = -2 - 2 * country
                return
            if area == 0:
                # Only edges along a side remain.
                del by_country[country]
        if not by_country:
            return
        vertices = sum(len(ring) for rings in by_country.values() for ring in rings)
        if vertices <= LEAF_VERTICES or shift <= LEAF_SHIFT_MIN:
            self._leaf(cell, by_country)
            return
        shift -= 1
        u, v = origin
        size = 1 << shift
        quarters: list[list[tuple[int, Ring]]] = [[], [], [], []]
        for country, ring in rings:
            if country not in by_country:
                continue
            for half, part in enumerate(_split(ring, 1, v + size)):
                if not len(part):
                    continue
                for side, quarter in enumerate(_split(part, 0, u + size)):
                    if len(quarter):
                        quarters[2 * half + side].append((country, quarter))
        first = len(self._cells)
        self._cells[cell] = first
        self._cells.extend([SEA] * 4)
        for number, quarter_rings in enumerate(quarters):
            corner = (u + size * (number & 1), v + size * (number >> 1))
            self.fill(first + number, quarter_rings, corner, shift)

    def _leaf(self, cell: int, by_country: dict[int, list[Ring]]) -> None:
        self._cells[cell] = -2 - (2 * (len(self._leaves) - 1) + 1)
        for country, rings in sorted(by_country.items()):
            for ring in rings:
                self._pieces.append((country, self._vertex_count))
                self._vertices.append(ring)
                self._vertex_count += len(ring)
        self._leaves.append(len(self._pieces))

    def finish(self) -> Cells:
        """Return the sections."""
        vertices = np.concatenate(self._vertices) - np.array([HALF_TURN, QUARTER_TURN])
        return Cells(
            cells=np.array(self._cells, dtype=np.int32),
            leaves=np.array(self._leaves, dtype=np.int32),
            pieces=np.array([*self._pieces, (-1, self._vertex_count)], dtype=np.int32),
            vertices=vertices.astype(np.int32),
        )
