"""The map by area: what each viewer is shown, compared with all positions looked at one by one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.friends.home_blur import RADIUS_M
from gateway.shares.share import Terms
from gateway.users.auth import Identity
from gateway.users.rights import Rights
from gateway.viewers.areas import COUNT_TICKS, Area, AreaViewer
from gateway.viewers.viewers import Filter, Viewer
from tests.gateway.viewers.area_client import COUNTS, POINTS, AreaClient
from tests.gateway.viewers.town import NOW, Homes, Town
from waylog.bounding_box import BoundingBox

ADMIN = Identity("root", admin=True)
WORLD = BoundingBox(-180, -90, 180, 90)
VADUZ = BoundingBox(9.4, 47.0, 9.6, 47.3)
HOME = (47.1410, 9.5209)


class Page:
    """A viewer, and what its client knows."""

    def __init__(self, town: Town, identity: Identity = ADMIN) -> None:
        self.town = town
        self.viewer = Viewer(Filter(topics=frozenset()), {}, identity, lambda _: ())
        self.area: AreaViewer = town.areas.add(self.viewer)
        self.client = AreaClient()

    def look(self, box: BoundingBox, zoom: float, devices: Iterable[str] = ()) -> Page:
        self.area.look_at(Area.of(box, zoom), devices)
        return self

    def read(self) -> list[bytes]:
        frames = self.area.take(self.town.now)
        for frame in frames:
            self.client.take(frame)
        return frames

    @property
    def points(self) -> set[str] | None:
        self.read()
        return None if self.client.points is None else set(self.client.points)


def cell_of(level: int, lat: float, lon: float) -> tuple[int, int]:
    """Return the tile of a place: OpenStreetMap's formula, with the edges of the square."""
    n = 1 << level
    sine = math.sin(math.radians(max(-85.05112877980659, min(85.05112877980659, lat))))
    x = int((lon + 180) / 360 * n) % n
    y = (0.5 - math.log((1 + sine) / (1 - sine)) / (4 * math.pi)) * n
    return x, min(n - 1, max(0, int(y)))


def is_in(area: Area, lat: float, lon: float) -> bool:
    x, y = cell_of(area.level, lat, lon)
    return (x - area.x) % (1 << area.level) < area.columns and area.y <= y < area.y + area.lines


# --- areas ----------------------------------------------------------------------------------------

_lats = st.integers(-85_000_000, 85_000_000).map(lambda n: n / 1e6)
_lons = st.integers(-180_000_000, 180_000_000).map(lambda n: n / 1e6)


@given(_lats, _lats, _lons, _lons, st.floats(0, 24), st.floats(0, 1), st.floats(0, 1))
def test_an_area_has_all_of_its_box_and_no_more_cells_than_allowed(
    south: float, north: float, west: float, east: float, zoom: float, up: float, along: float
) -> None:
    south, north = min(south, north), max(south, north)
    box = BoundingBox(west, south, east, north)
    area = Area.of(box, zoom)
    assert area.columns * area.lines <= 4096
    assert 1 <= area.columns <= 1 << area.level
    lat = south + (north - south) * up
    lon = (west + ((east - west) if west <= east else east - west + 360) * along + 180) % 360 - 180
    assert is_in(area, lat, lon)


@pytest.mark.parametrize("zoom", [-1, 25, math.nan, math.inf])
def test_there_is_no_area_at_other_zooms(zoom: float) -> None:
    with pytest.raises(ValueError, match="zoom"):
        Area.of(WORLD, zoom)


# --- what is shown --------------------------------------------------------------------------------

_devices = st.integers(0, 11).map(lambda n: f"u{n % 3}/d{n}")
_places = st.one_of(
    st.tuples(_lats, _lons),
    # Most devices are near each other, on both sides of the antimeridian.
    st.tuples(st.floats(-17, -16), st.sampled_from([-180.0, 180.0, 179.5, -179.5, 179.9999999])),
    st.tuples(st.floats(47, 47.2), st.floats(9.4, 9.6)),
)
_boxes = st.sampled_from(
    [WORLD, VADUZ, BoundingBox(178, -20, -178, -10), BoundingBox(9.5, 47.1, 9.5, 47.1)]
)
_actions = st.lists(
    st.one_of(
        st.tuples(st.just("fix"), _devices, _places),
        st.tuples(st.just("forget"), _devices),
        st.tuples(st.just("look"), st.integers(0, 1), _boxes, st.integers(0, 14)),
        st.tuples(st.just("read"), st.integers(0, 1)),
        st.tuples(st.just("tick"), st.integers(1, 5)),
    ),
    max_size=40,
)


def _agrees(page: Page, area: Area, shown: dict[str, tuple[float, float]], few: int) -> None:
    client = page.client
    inside = {device: at for device, at in shown.items() if is_in(area, *at)}
    assert client.inside == len(inside)
    assert client.visible == len(shown)
    assert client.level == area.level
    if client.points is not None:
        assert len(inside) <= few * 5 // 4
        assert client.points.keys() == inside.keys()
        for name, at in inside.items():
            assert client.points[name][:2] == pytest.approx(at, abs=1e-7)
        return
    assert client.cells is not None
    assert len(inside) > few
    cells: defaultdict[tuple[int, int], int] = defaultdict(int)
    for at in inside.values():
        cells[cell_of(area.level, *at)] += 1
    assert {cell: count for cell, (count, *_) in client.cells.items()} == cells
    for cell, (_, _, lat, lon) in client.cells.items():
        assert cell_of(area.level, lat, lon) == cell


@settings(max_examples=200)
@example(
    actions=[
        ("fix", "u0/d0", (0.0, 0.0)),
        ("forget", "u0/d0"),
        ("look", 1, BoundingBox(west=9.4, south=47.0, east=9.6, north=47.3), 0),
        ("tick", 1),
        ("fix", "u1/d1", (0.0, 0.0)),
        ("read", 1),
        ("fix", "u0/d0", (0.0, 0.0)),
    ],
    few=0,
    one_user=False,
)
@given(actions=_actions, few=st.integers(0, 6), one_user=st.booleans())
def test_two_pages_see_what_is_inside_whatever_comes_and_whenever_they_read(
    actions: list[tuple[Any, ...]], few: int, one_user: bool
) -> None:
    town = Town(points_from=few)
    user = Identity("u1")
    pages = [Page(town, user if one_user else ADMIN), Page(town)]
    looks: list[Area | None] = [None, None]
    truth: dict[str, tuple[float, float]] = {}
    for kind, *rest in actions:
        if kind == "fix":
            device, (lat, lon) = rest
            truth[device] = (lat, lon)
            town.fix(device, lat, lon)
            town.now += 1
        elif kind == "forget":
            town.locations.forget(rest[0], town.now + 1)
            town.now += 2  # what comes later is no part of the erasure
            truth.pop(rest[0], None)
        elif kind == "look":
            number, box, zoom = rest
            pages[number].look(box, zoom)
            looks[number] = Area.of(box, zoom)
        elif kind == "read":
            pages[rest[0]].read()
        else:
            town.tick(rest[0])
    town.tick(COUNT_TICKS)
    for page, area in zip(pages, looks, strict=True):
        if area is not None:
            page.read()
            own = page.viewer.identity is user
            shown = {d: at for d, at in truth.items() if not own or d.startswith("u1/")}
            _agrees(page, area, shown, few)
            assert page.read() == []


def test_a_point_has_all_that_a_frame_has_room_for() -> None:
    town = Town()
    town.fix("ada/phone", 47.1, 9.5, speed=12.34, course=271.5, accuracy=4.2)
    town.fix("eve/phone", 47.2, 9.5, time=NOW - 2 * 365 * 86_400_000, accuracy=1e9, speed=-1)
    page = Page(town).look(VADUZ, 10)
    town.tick()
    page.read()
    assert page.client.points is not None
    ada, eve = page.client.points["ada/phone"], page.client.points["eve/phone"]
    assert (ada.course, ada.speed, ada.accuracy) == (271.5, 12.34, 4.2)
    assert abs(ada.time - NOW) <= 1000
    assert (eve.course, eve.speed, eve.accuracy) == (None, None, 6553.4)
    assert abs(eve.time - (NOW - 2 * 365 * 86_400_000)) <= 1000
    assert abs(eve.heard - NOW) <= 1000


def test_only_what_has_changed_is_sent_and_a_page_that_missed_a_tick_gets_the_whole() -> None:
    town = Town()
    for n in range(100):
        town.fix(f"ada/d{n}", 47.1, 9.5)
    page, late = Page(town).look(VADUZ, 10), Page(town).look(VADUZ, 10)
    town.tick()
    assert len(page.points or ()) == len(late.points or ()) == 100
    for lat in (47.11, 47.12):
        town.fix("ada/d1", lat, 9.5)
        town.tick()
        (frame,) = page.read()
        assert len(frame) < 100
    late.read()
    assert late.client.kinds[-1] == (POINTS, True)
    assert page.client.kinds[-1] == (POINTS, False)
    assert late.client.points is not None
    assert late.client.points["ada/d1"].lat == 47.12
    town.tick()
    assert page.read() == []


def test_pages_of_one_place_share_their_frames() -> None:
    town = Town()
    for n in range(3000):
        town.fix(f"ada/d{n}", 47.1, 9.4 + n / 20000)
    pages = [Page(town).look(WORLD, 1) for _ in range(20)]
    town.tick(COUNT_TICKS)
    frames = [page.read()[-1] for page in pages]
    assert all(frame is frames[0] for frame in frames)
    assert pages[0].client.kinds == [(COUNTS, True)]
    assert pages[0].client.inside == 3000


def test_counts_become_points_by_number_not_by_zoom() -> None:
    town = Town(points_from=10)
    page = Page(town).look(WORLD, 0)
    for n in range(10):
        town.fix(f"ada/d{n}", 47.1, 9.5)
    town.tick(COUNT_TICKS)
    assert len(page.points or ()) == 10
    for n in range(10, 13):
        town.fix(f"ada/d{n}", 47.1, 9.5)
    town.tick(COUNT_TICKS)
    assert page.points is None
    assert page.client.cells is not None
    assert [count for count, *_ in page.client.cells.values()] == [13]
    for n in range(3):
        town.locations.forget(f"ada/d{n}", town.now)
    town.tick(COUNT_TICKS)
    assert len(page.points or ()) == 10


def test_chosen_devices_are_shown_wherever_they_are_and_however_many_there_are() -> None:
    town = Town(points_from=1)
    for n in range(5):
        town.fix(f"ada/d{n}", -33.0, 151.0)
    page = Page(town).look(VADUZ, 10, ["ada/d3", "nobody/knows"])
    town.tick(COUNT_TICKS)
    page.read()
    assert set(page.client.chosen) == {"ada/d3"}
    town.fix("ada/d3", -34.0, 151.0)
    town.tick()
    assert page.read()
    assert page.client.chosen["ada/d3"].lat == -34.0
    town.fix("ada/d4", -34.0, 151.0)
    town.tick()
    assert page.read() == []
    town.locations.forget("ada/d3", town.now + 1)
    town.tick()
    page.read()
    assert page.client.chosen == {}
    town.tick()
    assert page.read() == []


def test_without_pages_nothing_is_followed() -> None:
    town = Town()
    page = Page(town).look(WORLD, 1)
    town.fix("ada/phone", 47.1, 9.5)
    town.tick()
    assert town.locations.followed is not None
    town.areas.remove(page.area)
    town.tick(100)
    assert town.locations.followed is None
    later = Page(town).look(WORLD, 1)
    town.tick()
    assert later.points == {"ada/phone"}


def test_devices_that_come_and_go_do_not_add_up() -> None:
    town = Town()
    page = Page(town).look(WORLD, 1)
    town.tick()
    for n in range(11_000):
        town.fix(f"ada/d{n}", 47.1, 9.5)
        town.locations.forget(f"ada/d{n}", town.now)
    town.fix("ada/phone", 47.1, 9.5)
    town.tick(2)
    assert page.points == {"ada/phone"}
    assert town.locations.followed is not None
    assert town.locations.followed.count == 1


# --- rights ---------------------------------------------------------------------------------------

BOB = Identity("bob", rights=Rights(friends={"ada": NOW - 1000}))


def test_a_user_sees_own_devices_and_friends_and_a_device_token_its_own() -> None:
    town = Town()
    for device in ("bob/phone", "bob/watch", "ada/phone", "eve/phone"):
        town.fix(device, 47.2, 9.5)
    bob, token = Page(town, BOB), Page(town, replace(BOB, device="watch"))
    alone = Page(town, BOB)
    for page in (bob, token):
        page.look(WORLD, 1, ["eve/phone", "bob/phone", "ada/phone"])
    alone.area.look_at(Area.of(WORLD, 1), own_only=True)
    town.tick()
    assert bob.points == {"bob/phone", "bob/watch", "ada/phone"}
    assert set(bob.client.chosen) == {"bob/phone", "ada/phone"}
    assert token.points == {"bob/watch", "ada/phone"}
    assert set(token.client.chosen) == {"ada/phone"}
    assert alone.points == {"bob/phone", "bob/watch"}
    assert bob.client.visible == 3


def test_friends_see_the_circle_around_a_home_and_its_quarter_of_an_hour() -> None:
    town = Town(Homes(HOME))
    exact = town.fix("ada/phone", *HOME, speed=1.5, course=90.0)
    bob, ada = Page(town, BOB).look(VADUZ, 10), Page(town, Identity("ada")).look(VADUZ, 10)
    town.tick()
    assert bob.points == ada.points == {"ada/phone"}
    assert bob.client.points is not None
    assert ada.client.points is not None
    told, own = bob.client.points["ada/phone"], ada.client.points["ada/phone"]
    circle = town.filter.at_home("ada", *HOME)
    assert circle is not None
    assert [told.lat, told.lon] == pytest.approx([circle.lat, circle.lon])
    assert (told.speed, told.course, told.accuracy) == (None, None, RADIUS_M)
    assert abs(told.time - exact.time // 900_000 * 900_000) <= 1000
    assert (own.lat, own.lon) == HOME
    # Another fix at home in this quarter of an hour is no news: it would tell of the way to the
    # door.
    town.fix("ada/phone", HOME[0] + 0.0005, HOME[1])
    town.tick()
    assert ada.read()
    assert bob.read() == []


def test_a_home_that_is_found_later_hides_what_was_shown() -> None:
    homes = Homes()
    town = Town(homes)
    town.fix("ada/phone", *HOME)
    bob = Page(town, BOB).look(VADUZ, 10)
    town.tick()
    assert bob.points == {"ada/phone"}
    homes.of["ada"] = (HOME,)
    town.filter.homes_changed()
    town.tick()
    bob.read()
    assert bob.client.points is not None
    told = bob.client.points["ada/phone"]
    circle = town.filter.at_home("ada", *HOME)
    assert circle is not None
    assert [told.lat, told.lon] == pytest.approx([circle.lat, circle.lon])


def test_friends_are_shown_nothing_before_homes_are_known_nor_of_before_the_friendship() -> None:
    homes = Homes(looked_up=False)
    town = Town(homes)
    town.fix("ada/phone", 47.2, 9.5)
    town.fix("ada/old", 47.2, 9.5, time=NOW - 5000)
    bob = Page(town, BOB).look(WORLD, 1, ["ada/phone", "ada/old"])
    town.tick()
    assert bob.points == set()
    assert bob.client.chosen == {}
    homes.looked_up = True
    town.filter.homes_changed()
    town.tick()
    assert bob.points == {"ada/phone"}
    assert bob.client.visible == 1


def test_a_friendship_that_ends_is_seen_at_once_by_its_viewers_only() -> None:
    town = Town()
    town.fix("bob/phone", 47.2, 9.5)
    town.fix("ada/phone", 47.2, 9.5)
    bob, other = Page(town, BOB).look(WORLD, 1), Page(town, BOB).look(WORLD, 1)
    town.tick()
    assert bob.points == other.points == {"bob/phone", "ada/phone"}
    town.fix("ada/phone", 47.3, 9.5)
    town.tick()
    bob.viewer.identity = replace(BOB, rights=Rights())
    assert bob.read() == []
    town.tick()
    assert bob.points == {"bob/phone"}
    assert bob.client.names == {0: "bob/phone"}
    assert other.points == {"bob/phone", "ada/phone"}


def coarse(metres: int) -> Identity:
    """Return bob, who is shown squares of ada's devices."""
    return Identity("bob", rights=replace(BOB.rights, coarse={"ada": Terms(cell_m=metres)}))


def test_a_friend_who_sees_squares_sees_their_middles_and_others_see_positions() -> None:
    town = Town()
    town.fix("ada/phone", 47.2, 9.5, speed=1.5, course=90.0)
    exact, square = Page(town, BOB).look(WORLD, 1), Page(town, coarse(5_000)).look(WORLD, 1)
    square.look(WORLD, 1, ["ada/phone"])
    town.tick()
    assert exact.points == square.points == {"ada/phone"}
    assert exact.client.points is not None and square.client.points is not None
    seen, told = exact.client.points["ada/phone"], square.client.points["ada/phone"]
    grid = town.filter.grid_for("ada", Terms(cell_m=5_000))
    assert grid is not None
    assert (seen.lat, seen.lon, seen.speed) == (47.2, 9.5, 1.5)
    assert [told.lat, told.lon] == pytest.approx(grid.square(47.2, 9.5).centre)
    assert (told.speed, told.course, told.accuracy) == (None, None, 2_500)
    assert square.client.chosen["ada/phone"].lat == told.lat
    # A way within the square, in one step of time, is no news: not even that there is one.
    square.read()
    town.fix("ada/phone", 47.2 + (told.lat - 47.2) / 2, 9.5)
    town.tick()
    assert exact.read()
    assert square.read() == []


def test_changed_terms_and_a_friendship_that_is_over_change_the_picture() -> None:
    town = Town()
    town.fix("ada/phone", 47.2, 9.5)
    bob = Page(town, BOB).look(WORLD, 1)
    town.tick()
    assert bob.points == {"ada/phone"}
    assert bob.client.points is not None
    assert bob.client.points["ada/phone"].lat == 47.2
    bob.viewer.identity = coarse(5_000)
    assert bob.read() == []
    town.tick()
    bob.read()
    assert bob.client.points["ada/phone"].lat != 47.2
    ended = replace(BOB.rights, ends={"ada": 1})
    bob.viewer.identity = Identity("bob", rights=ended)
    town.tick()
    bob.read()
    assert bob.points == set()
