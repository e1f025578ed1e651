"""Mapbox Vector Tile 2.1 encoding: the part of it that the base map needs.

Geometry arrives in tile units (x to the right, y down, 0..extent, a little beyond for the buffer).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]  # shape (n, 2)
Value = str | int
_MOVE_TO = 1
_LINE_TO = 2
_CLOSE_PATH = 7


class GeometryType(IntEnum):
    """Geometry types (section 4.3.4 of the specification)."""

    POINT = 1
    LINE = 2
    POLYGON = 3


class Layer:
    """One layer of a tile: features with integer or text members."""

    def __init__(self, name: str, extent: int) -> None:
        self.name = name
        self.extent = extent
        self.feature_count = 0
        self._features = bytearray()
        self._keys: dict[str, int] = {}
        self._values: dict[Value, int] = {}

    def add_point(self, x: float, y: float, members: dict[str, Value]) -> None:
        """Add one feature with one point."""
        commands = [_command(_MOVE_TO, 1), _zigzag(round(x)), _zigzag(round(y))]
        self._add(GeometryType.POINT, commands, members)

    def add_lines(self, lines: Iterable[Points], members: dict[str, Value]) -> None:
        """Add one feature with these lines; lines that shrink to a point are left out."""
        commands: list[int] = []
        cursor = (0, 0)
        for line in lines:
            whole = _without_repeats(_rounded(line))
            if len(whole) < 2:
                continue
            _append_path(commands, whole, cursor)
            cursor = (int(whole[-1][0]), int(whole[-1][1]))
        if commands:
            self._add(GeometryType.LINE, commands, members)

    def add_polygons(self, polygons: Iterable[Sequence[Points]], members: dict[str, Value]) -> None:
        """Add one feature with these polygons: each an outer ring followed by its holes.

        The winding order is corrected to that of the specification (outer rings have a positive
        area with y down), because it alone tells a reader where a polygon starts.
        """
        commands: list[int] = []
        cursor = (0, 0)
        for rings in polygons:
            for index, ring in enumerate(rings):
                whole = _without_repeats(_rounded(ring))
                if len(whole) > 1 and (whole[0] == whole[-1]).all():
                    whole = whole[:-1]
                area = _doubled_area(whole) if len(whole) > 2 else 0
                if area == 0:
                    if index == 0:
                        break  # without the outer ring its holes are left out, too
                    continue
                if (area > 0) != (index == 0):
                    whole = whole[::-1]
                _append_path(commands, whole, cursor)
                commands.append(_command(_CLOSE_PATH, 1))
                cursor = (int(whole[-1][0]), int(whole[-1][1]))
        if commands:
            self._add(GeometryType.POLYGON, commands, members)

    def encode(self) -> bytes:
        """Return the layer as a protobuf message."""
        out = bytearray()
        _append_bytes(out, 1, self.name.encode())
        out += self._features
        for key in self._keys:
            _append_bytes(out, 3, key.encode())
        for value in self._values:
            encoded = bytearray()
            if isinstance(value, str):
                _append_bytes(encoded, 1, value.encode())
            else:
                _append_tag(encoded, 6, 0)  # sint64
                _append_varint(encoded, _zigzag(value))
            _append_bytes(out, 4, bytes(encoded))
        _append_tag(out, 5, 0)
        _append_varint(out, self.extent)
        _append_tag(out, 15, 0)
        _append_varint(out, 2)  # version
        return bytes(out)

    def _add(
        self, geometry_type: GeometryType, commands: list[int], members: dict[str, Value]
    ) -> None:
        feature = bytearray()
        tags = bytearray()
        for key, value in members.items():
            _append_varint(tags, self._keys.setdefault(key, len(self._keys)))
            _append_varint(tags, self._values.setdefault(value, len(self._values)))
        if tags:
            _append_bytes(feature, 2, bytes(tags))
        _append_tag(feature, 3, 0)
        _append_varint(feature, geometry_type)
        geometry = bytearray()
        for number in commands:
            _append_varint(geometry, number)
        _append_bytes(feature, 4, bytes(geometry))
        _append_bytes(self._features, 2, bytes(feature))
        self.feature_count += 1


def encode_tile(layers: Iterable[Layer]) -> bytes:
    """Return a tile of the layers that have features; empty bytes if none has."""
    out = bytearray()
    for layer in layers:
        if layer.feature_count:
            _append_bytes(out, 3, layer.encode())
    return bytes(out)


def _append_path(
    commands: list[int], whole: npt.NDArray[np.int64], cursor: tuple[int, int]
) -> None:
    deltas = _deltas(whole, cursor)
    commands.append(_command(_MOVE_TO, 1))
    commands += deltas[:2]
    commands.append(_command(_LINE_TO, len(whole) - 1))
    commands += deltas[2:]


def _command(identifier: int, count: int) -> int:
    return identifier | count << 3


def _rounded(points: Points) -> npt.NDArray[np.int64]:
    return np.rint(points).astype(np.int64)


def _without_repeats(whole: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    if len(whole) < 2:
        return whole
    keep = np.ones(len(whole), dtype=bool)
    keep[1:] = (whole[1:] != whole[:-1]).any(axis=1)
    return whole[keep]


def _deltas(whole: npt.NDArray[np.int64], cursor: tuple[int, int]) -> list[int]:
    """Return zigzag-encoded differences, x and y in turn, starting from the cursor."""
    differences = np.diff(whole, axis=0, prepend=np.array([cursor], dtype=np.int64))
    zigzag: list[int] = ((differences << 1) ^ (differences >> 63)).ravel().tolist()
    return zigzag


def _doubled_area(ring: npt.NDArray[np.int64]) -> int:
    x, y = ring[:, 0], ring[:, 1]
    return int(np.dot(x, np.roll(y, -1)) - np.dot(np.roll(x, -1), y))


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _append_tag(out: bytearray, field: int, wire_type: int) -> None:
    _append_varint(out, field << 3 | wire_type)


def _append_bytes(out: bytearray, field: int, content: bytes) -> None:
    _append_tag(out, field, 2)
    _append_varint(out, len(content))
    out += content


def _append_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
