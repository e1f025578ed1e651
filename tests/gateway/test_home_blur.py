"""What others learn of a home."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.home_blur import RADIUS_M, HomeBlur
from gateway.track_points import Points, unpacked, without_homes
from gateway.track_store import pack_point


def place(place_id: str, lat: float, lon: float, label: str | None = None) -> dict[str, Any]:
    named = {"name": "Name", "address": "Street 5", "visits": 3}
    return {"place_id": place_id, "lat": lat, "lon": lon, "label": label, **named}


def track(*points: tuple[int, float, float]) -> Points:
    return unpacked(b"".join(pack_point(*point, 400.0, 5.0, 1.0, 90.0) for point in points))


def metres(lat_1: float, lon_1: float, lat_2: float, lon_2: float) -> float:
    east = ((lon_2 - lon_1 + 180) % 360 - 180) * math.cos(math.radians(lat_1))
    return math.hypot(lat_2 - lat_1, east) * 111_195


@given(st.text(min_size=1), st.floats(-80, 80), st.floats(-180, 180))
def test_a_home_is_somewhere_else_within_its_circle_and_always_there(
    place_id: str, lat: float, lon: float
) -> None:
    home = place(place_id, lat, lon, "home")
    [shown] = HomeBlur([home]).places([home])
    assert HomeBlur([home]).places([home]) == [shown]
    assert 90 < metres(lat, lon, shown["lat"], shown["lon"]) < 360 < RADIUS_M
    assert (shown["place_id"], shown["name"], shown["address"]) == ("home", None, None)
    assert shown["visits"] == 3


def test_a_way_loses_its_parts_at_home() -> None:
    blur = HomeBlur([place("a", 47.0, 9.0, "home")])
    [home] = blur.places([place("a", 47.0, 9.0, "home")])
    away = (1, 47.1, 9.0), (2, 47.2, 9.0)
    back = (3, 47.0, 9.0), (4, 47.0001, 9.0), (5, 47.1, 9.0)
    middle = pack_point(3, home["lat"], home["lon"], None, RADIUS_M, None, None)
    shown = without_homes(track(*away, *back), blur.circles)
    assert shown.tobytes() == track(*away).tobytes() + middle + track(back[-1]).tobytes()


def test_visits_at_home_and_next_door_can_not_be_told_apart() -> None:
    places = [place("a", 47.0, 9.0, "home"), place("b", 47.0002, 9.0), place("c", 48, 9, "work")]
    blur = HomeBlur(places)
    assert [each["label"] for each in blur.places(places)] == ["home", "work"]
    visits = [
        {"place_id": each["place_id"], "lat": each["lat"], "lon": each["lon"]} for each in places
    ]
    home, door, work = blur.visits(visits)
    assert home == door
    assert work == visits[2]


def test_its_owner_sees_everything() -> None:
    places = [place("a", 47.0, 9.0, "home")]
    blur = HomeBlur(())
    assert blur.places(places) == places
    assert without_homes(track((1, 47.0, 9.0)), blur.circles) == track((1, 47.0, 9.0))
    assert blur.visits(places) == places
