"""Shapes compared with truth.py: the poles, the antimeridian, holes, long edges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.consumers.streams.geofences.truth import depth
from waylog.geofences.definition import (
    InvalidGeofence,
    decode_geofence,
    encode_geofence,
)
from waylog.geofences.shape import INSIDE, OUTSIDE, UNDECIDED, Shape, shape_of

Definition = dict[str, Any]


def shape(definition: Definition) -> Shape:
    return shape_of(decode_geofence(msgspec.json.encode(definition)))


def polygon(*rings: Sequence[Any]) -> Definition:
    return {"polygon": {"type": "Polygon", "coordinates": list(rings)}}


def box(west: float, south: float, east: float, north: float) -> list[list[float]]:
    return [[west, south], [east, south], [east, north], [west, north], [west, south]]


def turned(lon: float) -> float:
    return (lon + 180) % 360 - 180


def check(definition: Definition, lat: float, lon: float, margin: float) -> None:
    """Compare a shape with the truth, which may be off by a metre and a thousandth."""
    found, true = shape(definition), depth(definition, lat, lon)
    doubt = 1.0 + 0.002 * margin
    side = found.side(lat, lon, margin)
    if abs(abs(true) - margin) > doubt:
        expected = UNDECIDED if abs(true) < margin else INSIDE if true > 0 else OUTSIDE
        assert side == expected, (true, margin)
    if true > 1.0:
        assert any(
            west <= lon <= east and south <= lat <= north
            for west, south, east, north in found.boxes()
        ), found.boxes()


@st.composite
def near(draw: Any, lat: float, lon: float, reach_m: float) -> tuple[float, float]:
    """Draw a place within some reach of another one."""
    far = draw(st.floats(0, 2)) * reach_m / 6_371_000
    bearing = draw(st.floats(0, 2 * math.pi))
    phi = math.radians(lat)
    sine = math.sin(phi) * math.cos(far) + math.cos(phi) * math.sin(far) * math.cos(bearing)
    there = math.asin(max(-1.0, min(1.0, sine)))
    turn = math.atan2(
        math.sin(bearing) * math.sin(far) * math.cos(phi),
        math.cos(far) - math.sin(phi) * math.sin(there),
    )
    return math.degrees(there), turned(lon + math.degrees(turn))


PLACES = st.tuples(
    st.sampled_from([0.0, 47.14, -33.9, 71.0, 89.0, 89.995, -89.9, 90.0]),
    st.sampled_from([0.0, 9.52, 179.9, -179.999, 180.0, -180.0]),
)


@given(st.data())
def test_circles_are_those_of_the_sphere(data: st.DataObject) -> None:
    lat, lon = data.draw(PLACES)
    radius = data.draw(st.sampled_from([5.0, 150.0, 20_000.0, 2_000_000.0]))
    there = data.draw(near(lat, lon, radius))
    check({"circle": {"lat": lat, "lon": lon, "radius": radius}}, *there,
          data.draw(st.sampled_from([0.0, 10.0, 500.0])))  # fmt: skip


@given(st.data())
def test_polygons_are_those_of_straight_edges_in_degrees(data: st.DataObject) -> None:
    lat, lon = data.draw(PLACES)
    size = data.draw(st.sampled_from([0.001, 0.05, 1.0, 8.0]))
    count = data.draw(st.integers(3, 9))
    corners = []
    for number in range(count):
        away = size * data.draw(st.floats(0.3, 1.0))
        bearing = 2 * math.pi * number / count
        up = lat + away * math.sin(bearing)
        assume(abs(up) < 89.9)
        across = away * math.cos(bearing) / math.cos(math.radians(lat))
        assume(abs(across) < 60)
        corners.append([turned(lon + across), up])
    rings = [[*corners, corners[0]]]
    if data.draw(st.booleans()):
        hole = [[turned(lon + 0.2 * turned(x - lon)), lat + 0.2 * (y - lat)] for x, y in corners]
        rings.append([*hole, hole[0]])
    definition = polygon(*rings)
    try:
        shape(definition)
    except InvalidGeofence as error:
        # Straight edges near a pole may cross those that go around it.
        assume(abs(lat) < 70 or "rings must not" not in str(error))
        raise
    there = data.draw(near(lat, lon, 111_000 * size))
    check(definition, *there, data.draw(st.sampled_from([0.0, 10.0, 500.0])))


@given(st.data())
def test_corridors_are_what_is_near_their_line(data: st.DataObject) -> None:
    lat, lon = data.draw(PLACES.filter(lambda place: abs(place[0]) < 89.99))
    step = data.draw(st.sampled_from([0.0001, 0.01, 1.0]))
    line = [[lon, lat]]
    for _ in range(data.draw(st.integers(1, 5))):
        east = data.draw(st.floats(-1, 1)) * step / max(0.05, math.cos(math.radians(lat)))
        north = line[-1][1] + data.draw(st.floats(-1, 1)) * step
        line.append([turned(line[-1][0] + east), max(-89.99, min(89.99, north))])
    width = data.draw(st.sampled_from([10.0, 400.0, 30_000.0]))
    lon, lat = data.draw(st.sampled_from(line))
    there = data.draw(near(lat, lon, width))
    check({"corridor": {"line": {"type": "LineString", "coordinates": line}, "width": width}},
          *there, data.draw(st.sampled_from([0.0, 10.0, 500.0])))  # fmt: skip


def test_a_ring_around_a_pole_holds_the_pole() -> None:
    for sign in (1, -1):
        ring = [[0, 80 * sign], [90, 80 * sign], [180, 80 * sign], [-90, 80 * sign], [0, 80 * sign]]
        around = shape(polygon(ring))
        assert around.boxes()[0][0] == -180 and around.boxes()[0][2] == 180
        assert around.side(89.99 * sign, 33, 100) == INSIDE
        assert around.side(80.01 * sign, 45, 100) == INSIDE
        assert around.side(79.99 * sign, 45, 100) == OUTSIDE
        assert around.side(80.0001 * sign, -135, 100) == UNDECIDED
        assert around.side(-85 * sign, 0, 100) == OUTSIDE


@pytest.mark.parametrize(
    "ring",
    [
        box(-0.0024, 51.4097, 0.0053, 51.4148),
        [
            [15.985238, -53.605375],
            [16.063443, -53.65307],
            [15.986432, -53.672664],
            [15.936067, -53.643324],
            [15.985238, -53.605375],
        ],
        box(179.9987, -16.5041, -179.9964, -16.4998),
    ],
)
def test_a_ring_ends_where_it_begins_to_the_last_bit(ring: list[list[float]]) -> None:
    # Sums of differences of these longitudes are not the longitudes.
    assert shape(polygon(ring)).side(ring[0][1], ring[0][0], 1) == UNDECIDED


def test_parts_that_meet_at_the_antimeridian_are_one() -> None:
    east, west = box(179, -1, 180, 1), box(-180, -1, -179, 1)
    west.insert(-1, [-180, 0.3])
    both = shape({"polygon": {"type": "MultiPolygon", "coordinates": [[east], [west]]}})
    for lon in (180.0, -180.0, 179.9999, -179.9999):
        assert both.side(0.2, lon, 5000) == INSIDE
    assert both.side(0, 178.99, 100) == OUTSIDE
    assert both.side(0, -178.99, 100) == OUTSIDE


def test_a_long_corridor_has_boxes_that_follow_it() -> None:
    line = [[number, number] for number in range(0, 40)]
    boxes = shape(
        {"corridor": {"line": {"type": "LineString", "coordinates": line}, "width": 100}}
    ).boxes()
    assert sum((east - west) * (north - south) for west, south, east, north in boxes) < 100


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ({}, "one of the members circle, polygon and corridor"),
        ({"circle": {"lat": 1, "lon": 2, "radius": 3}, "polygon": {}}, "one of the members"),
        ({"circle": {"lat": 91, "lon": 2, "radius": 3}}, r"\$.circle.lat"),
        ({"circle": {"lat": 1, "lon": 2, "radius": 0}}, r"\$.circle.radius"),
        ({"circle": {"lat": 1, "lon": 2, "radius": 6e6}}, r"\$.circle.radius"),
        ({"circle": {"lat": 1, "lon": 2}}, "radius"),
        ({"circle": {"lat": 1, "lon": 2, "radius": 3}, "dwell": -1}, r"\$.dwell"),
        ({"circle": {"lat": 1, "lon": 2, "radius": 3}, "devices": [3]}, r"\$.devices\[0\]"),
        ({"polygon": {"type": "Point", "coordinates": [1, 2]}}, "polygon.type: Polygon or Multi"),
        ({"polygon": {"type": "Polygon", "coordinates": 3}}, "polygon.coordinates: an array"),
        (polygon(), "at least one ring"),
        (polygon([[0, 0], [1, 1], [0, 0]]), r"coordinates\[0\]: at least 4 positions"),
        (polygon([[0, 0], [1, 0], [1, 1], [0, 1]]), r"coordinates\[0\]: a ring ends where"),
        (polygon([[0, 0], [1, 0], [181, 1], [0, 0]]), r"coordinates\[0\]\[2\]: longitude is"),
        (polygon([[0, 0], [1, 0], [True, 1], [0, 0]]), r"coordinates\[0\]\[2\]: longitude is"),
        (polygon([[0, 0], [1, 0], "no", [0, 0]]), r"coordinates\[0\]\[2\]: \[longitude"),
        (polygon([[0, 0], [1, 1], [0, 1], [1, 0], [0, 0]]), "rings must not cross"),
        (polygon([[0, 0], [1, 0], [2, 0], [0, 0]]), "rings must not cross"),
        (polygon(box(-90, -40, 60, 40)), "at most 5000 km"),
        (polygon([[0, 0]] * 10_001), "more than 10000 positions"),
        ({"polygon": {"type": "MultiPolygon", "coordinates": []}}, "at least one polygon"),
        (
            {"corridor": {"line": {"type": "Line", "coordinates": []}, "width": 1}},
            "corridor.line.type: LineString",
        ),
        (
            {"corridor": {"line": {"type": "LineString", "coordinates": [[0, 0]]}, "width": 1}},
            "corridor.line.coordinates: at least 2",
        ),
    ],
)
def test_a_wrong_definition_is_refused_with_the_member(definition: Any, message: str) -> None:
    with pytest.raises(InvalidGeofence, match=message):
        shape(definition)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(
            st.sampled_from(["type", "coordinates", "lat", "lon", "radius", "line", "width"]), inner
        )
    ),
    max_leaves=20,
)


@given(
    st.dictionaries(st.sampled_from(["circle", "polygon", "corridor", "devices", "dwell"]), JSON)
    | st.builds(
        lambda kind, coordinates: {"polygon": {"type": kind, "coordinates": coordinates}},
        st.sampled_from(["Polygon", "MultiPolygon"]),
        st.recursive(st.floats(-200, 200) | st.none(), lambda x: st.lists(x, max_size=6)),
    )
)
def test_any_json_is_a_shape_or_refused(definition: Any) -> None:
    try:
        fence = decode_geofence(msgspec.json.encode(definition))
        found = shape_of(fence)
    except InvalidGeofence as error:
        assert str(error)
        return
    assert found.side(1.0, 2.0, 3.0) in (INSIDE, OUTSIDE, UNDECIDED)
    assert decode_geofence(encode_geofence(fence)) == fence


@pytest.mark.parametrize("value", [b"", b"{", b"[" * 5000, b'{"polygon":' + b"[" * 3000, b"\xff"])
def test_any_bytes_are_refused(value: bytes) -> None:
    with pytest.raises(InvalidGeofence):
        decode_geofence(value)
