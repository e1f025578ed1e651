"""A client of the map by area: its own decoder of the frames, as docs/http.md describes them."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

HEADER: Final = struct.Struct("<BBBBIIIIIq")
POINT: Final = struct.Struct("<IiiIIHHHH")
CELL: Final = struct.Struct("<IIIIii")
NAMES, COUNTS, POINTS, CHOSEN = 1, 2, 3, 4
WHOLE: Final = 1
UNKNOWN: Final = 0xFFFF


class Point(NamedTuple):
    """A device, as a row of a frame has it."""

    lat: float
    lon: float
    time: int  # ms, to the second
    heard: int
    course: float | None
    speed: float | None
    accuracy: float | None


class AreaClient:
    """What a client knows after the frames that it has taken."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        #: None while the frames have counts.
        self.points: dict[str, Point] | None = None
        #: (count, live, lat, lon) by cell; None while the frames have points.
        self.cells: dict[tuple[int, int], tuple[int, int, float, float]] | None = None
        self.chosen: dict[str, Point] = {}
        self.inside = self.visible = self.level = 0
        self.kinds: list[tuple[int, bool]] = []

    def take(self, frame: bytes) -> None:
        """Apply a frame; fails if it is not to the letter."""
        version, kind, flags, level, rows, gone, inside, visible, zero, time = HEADER.unpack_from(
            frame
        )
        assert (version, zero) == (1, 0)
        assert flags in {0, WHOLE}
        whole = flags == WHOLE
        self.kinds.append((kind, whole))
        self.visible = visible
        at = HEADER.size
        if kind == NAMES:
            if whole:
                self.names.clear()
            for _ in range(rows):
                number, size = struct.unpack_from("<IH", frame, at)
                assert number not in self.names, "told twice"
                self.names[number] = frame[at + 6 : at + 6 + size].decode()
                at += 6 + size
            assert (gone, at) == (0, len(frame))
            return
        if kind == COUNTS:
            self._counts(frame, rows, gone, whole)
            at += rows * CELL.size + gone * 8
        else:
            points = dict(
                self._point(POINT.unpack_from(frame, at + n * POINT.size), time)
                for n in range(rows)
            )
            assert len(points) == rows
            at += rows * POINT.size
            if kind == CHOSEN:
                assert whole and not gone
                self.chosen = points
            else:
                assert kind == POINTS
                self.cells = None
                self.points = points if whole else {**self._known_points(), **points}
                for n in range(gone):
                    del self.points[self.names[struct.unpack_from("<I", frame, at + 4 * n)[0]]]
                at += 4 * gone
        assert at == len(frame)
        if kind != CHOSEN:
            self.inside, self.level = inside, level

    def _known_points(self) -> dict[str, Point]:
        assert self.points is not None, "a change without a beginning"
        return self.points

    def _counts(self, frame: bytes, rows: int, gone: int, whole: bool) -> None:
        self.points = None
        if whole:
            self.cells = {}
        assert self.cells is not None, "a change without a beginning"
        at = HEADER.size
        for _ in range(rows):
            x, y, count, live, lat, lon = CELL.unpack_from(frame, at)
            assert count >= live
            assert count > 0
            self.cells[x, y] = (count, live, lat / 1e7, lon / 1e7)
            at += CELL.size
        for _ in range(gone):
            del self.cells[struct.unpack_from("<II", frame, at)]
            at += 8

    def _point(self, row: tuple[int, ...], time: int) -> tuple[str, Point]:
        number, lat, lon, age, heard, course, speed, accuracy, zero = row
        assert zero == 0

        def known(value: int, by: float) -> float | None:
            return None if value == UNKNOWN else value / by

        point = Point(
            *(lat / 1e7, lon / 1e7, time - age * 1000, time - heard * 1000),
            *(known(course, 100), known(speed, 100), known(accuracy, 10)),
        )
        return self.names[number], point
