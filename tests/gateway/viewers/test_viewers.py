"""Live viewers: the events that each gets, and the treatment of slow ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert

from gateway.friends.friend_events import FriendEventFilter
from gateway.friends.friend_filter import FriendFilter
from gateway.observability.metrics import GatewayMetrics
from gateway.shares.share import Terms
from gateway.users.auth import Identity
from gateway.users.database import UserStore
from gateway.users.permissions import Permissions
from gateway.users.rights import Rights
from gateway.viewers import live_events
from gateway.viewers import viewers as module
from gateway.viewers.cursors import Cursor, CursorSeal, written
from gateway.viewers.live_events import Batch, Feed, LiveEvent
from gateway.viewers.viewers import Filter, TooManyViewers, Viewer, Viewers
from gateway.views.places import Places
from gateway.views.view import ViewEvent
from waylog.bounding_box import BoundingBox
from waylog.messages import Fix, encode

TELLING = FriendEventFilter(FriendFilter(Places(None), b"secret"))
ADA = Identity("ada")
ADMIN = Identity("root", admin=True)


def viewer_of(
    identity: Identity = ADMIN, wanted: Filter | None = None, positions: Cursor | None = None
) -> Viewer:
    return Viewer(wanted or Filter(), positions or {}, identity, lambda _: ())


def shown(viewer: Viewer, events: list[ViewEvent]) -> list[ViewEvent]:
    viewer.offer(Batch([LiveEvent(each, n, "") for n, each in enumerate(events)], 0, 1))
    return [live.event for live in viewer.take()]


_stores: list[UserStore] = []


@pytest.fixture(autouse=True)
def _closing() -> Iterator[None]:
    yield
    while _stores:
        _stores.pop().close()


def _store(folder: Path) -> UserStore:
    _stores.append(UserStore(folder / "users.db"))
    return _stores[-1]


def watched(tmp_path: Path, identity: Identity = ADMIN, **bounds: int) -> tuple[Viewers, Viewer]:
    permissions = Permissions(_store(tmp_path))
    viewers = Viewers((), GatewayMetrics(), permissions, TELLING, **bounds)
    return viewers, viewers.add(Filter(), identity)


def offsets(viewer: Viewer) -> list[int]:
    return [live.event.offset for live in viewer.take()]


def event(device: str = "ada/phone", offset: int = 0, **members: object) -> ViewEvent:
    made = ViewEvent("location", 0, offset, device, 47.1, 9.5, b"{}")
    return made._replace(**members)  # type: ignore[arg-type]


def test_a_user_sees_own_devices_and_an_admin_all() -> None:
    events = [event("ada/phone"), event("adam/phone"), event("eve/phone")]
    assert [e.device for e in shown(viewer_of(ADA), events)] == ["ada/phone"]
    assert len(shown(viewer_of(ADMIN), events)) == 3


def test_filters_narrow_by_device_topic_and_box() -> None:
    for wanted, passes in (
        (Filter(devices=frozenset(["ada/bike"])), False),
        (Filter(topics=frozenset(["address"])), False),
        (Filter(box=BoundingBox(9, 47, 10, 48)), True),
        (Filter(box=BoundingBox(9, 46, 10, 47)), False),
    ):
        assert bool(shown(viewer_of(ADA, wanted), [event()])) == passes


def test_a_box_may_span_the_antimeridian() -> None:
    fiji = BoundingBox.of([177, -20, -178, -15])
    assert fiji.contains(-17, 178)
    assert fiji.contains(-17, -179)
    assert not fiji.contains(-17, 0)


@pytest.mark.parametrize("numbers", [[1, 2, 3], [0, 10, 1, 5], [0, -91, 1, 5], [200, 0, 1, 1]])
def test_boxes_that_are_none_are_refused(numbers: list[float]) -> None:
    with pytest.raises(ValueError):
        BoundingBox.of(numbers)


async def test_events_wait_in_order_and_are_taken_in_steps(tmp_path: Path) -> None:
    viewers, viewer = watched(tmp_path)
    viewers.on_events([event(offset=n) for n in range(5)])
    assert viewer.wake.is_set()
    assert [live.event.offset for live in viewer.take(3)] == [0, 1, 2]
    viewers.on_events([event(offset=5)])
    assert viewer.wake.is_set()
    assert offsets(viewer) == [3, 4, 5]
    assert not viewer.wake.is_set()
    assert offsets(viewer) == []


async def test_a_slow_viewer_gets_the_newest_of_each_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ORDERED_EVENTS_MAX", 10)
    monkeypatch.setattr(live_events, "NEWEST_EVENTS_MAX", 4)
    viewers, viewer = watched(tmp_path)
    for offset in range(300):
        viewers.on_events([event(f"ada/{offset % 3}", offset)])
    assert offsets(viewer) == [297, 298, 299]
    assert viewer.take_skipped() == 297
    for offset in range(300):
        viewers.on_events([event(f"ada/{offset}", offset)])
    assert offsets(viewer) == [296, 297, 298, 299]
    viewers.on_events([event(offset=1000)])
    assert offsets(viewer) == [1000]


def test_more_devices_than_a_feed_remembers_make_an_event_no_dearer() -> None:
    feed = Feed()

    def seconds_each(first: int, last: int) -> float:
        events = [LiveEvent(event(f"ada/{n}", n), n, "") for n in range(first, last)]
        began = thread_time()
        for each in events:
            feed.add(each)
        return (thread_time() - began) / len(events)

    few = seconds_each(0, 10_000)
    seconds_each(10_000, live_events.NEWEST_EVENTS_MAX)
    assert seconds_each(live_events.NEWEST_EVENTS_MAX, 60_000) < 8 * few


async def test_a_slow_viewer_does_not_lose_what_a_step_has_not_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ORDERED_EVENTS_MAX", 10)
    viewers, viewer = watched(tmp_path)
    viewers.on_events([event(f"ada/{n}", n) for n in range(8)])
    assert [live.event.offset for live in viewer.take(3)] == [0, 1, 2]
    viewers.on_events([event(f"ada/{n}", 100 + n) for n in range(5)])
    assert offsets(viewer) == [5, 6, 7, 100, 101, 102, 103, 104]
    assert viewer.take_skipped() == 2


@given(st.data())
def test_of_every_device_the_newest_arrives_however_slowly_a_viewer_reads(
    data: st.DataObject,
) -> None:
    with pytest.MonkeyPatch.context() as patched, TemporaryDirectory() as folder:
        patched.setattr(module, "ORDERED_EVENTS_MAX", 12)
        viewers, viewer = watched(Path(folder), ADA)
        newest: dict[str, int] = {}
        got: dict[str, int] = {}
        last = offset = received = 0
        for _ in range(data.draw(st.integers(1, 12))):
            devices = data.draw(
                st.lists(st.sampled_from(["ada/a", "ada/b", "ada/c", "eve/a"]), max_size=9)
            )
            events = [event(device, offset + n) for n, device in enumerate(devices)]
            offset += len(events)
            newest |= {each.device: each.offset for each in events if each.device != "eve/a"}
            viewers.on_events(events)
            taken = viewer.take(data.draw(st.integers(0, 20)))
            for live in [*taken] if data.draw(st.booleans()) else [*taken, *viewer.take(99)]:
                # In the order of the log, and with the cursor at which to resume.
                assert live.event.offset >= last
                assert live.cursor == f"l0-{live.event.offset + 1}"
                last = live.event.offset
                got[live.event.device] = last
                received += 1
        for live in viewer.take(999):
            got[live.event.device] = live.event.offset
            received += 1
        assert not viewer.wake.is_set()
        assert got == newest


def test_what_came_at_one_time_of_several_users_is_given_in_the_order_of_the_log() -> None:
    viewer = viewer_of()
    live = [LiveEvent(event(f"u{n % 3}/a", n), n, "") for n in range(12)]
    for call, part in ((1, live[:6]), (2, live[6:])):
        for user in range(3):
            own = [each for each in part if each.event.device == f"u{user}/a"]
            viewer.offer(Batch(own, 0, call))
    taken = [*viewer.take(4), *viewer.take(1), *viewer.take()]
    assert taken == live


async def test_what_waits_for_viewers_that_do_not_read_is_the_same_for_all(
    tmp_path: Path,
) -> None:
    """The cost of a batch does not grow with the product of its events and its viewers."""
    viewers, first = watched(tmp_path, of_user_max=500)
    others = [viewers.add(Filter(), ADMIN) for _ in range(499)]
    for number in range(100):
        viewers.on_events([event(f"ada/{n}", number * 1_000 + n) for n in range(1_000)])
    batches = [each for viewer in (first, *others) for each in viewer._waiting]
    assert not batches
    encoded = [live for live in first.take(20_000, 10**9) if live.event.offset >= 99_000]
    assert len(encoded) == 1_000
    seal = CursorSeal(bytes(32))
    of_another = [live.sse(seal) for live in others[0].take(20_000, 10**9)]
    assert [live.sse(seal) for live in encoded] == of_another
    assert encoded[0] in viewers._feed_of_all.newest_since(0)


async def test_the_number_of_viewers_is_bounded(tmp_path: Path) -> None:
    permissions = Permissions(_store(tmp_path))
    viewers = Viewers((), GatewayMetrics(), permissions, TELLING, viewers_max=2)
    assert not viewers.watching
    first = viewers.add(Filter(), ADA)
    viewers.add(Filter(), ADA)
    with pytest.raises(TooManyViewers):
        viewers.add(Filter(), ADA)
    viewers.remove(first)
    viewers.add(Filter(), ADA)
    assert viewers.watching


async def test_a_user_and_an_address_have_a_share_of_them(tmp_path: Path) -> None:
    viewers, first = watched(tmp_path, ADA, of_user_max=2, of_address_max=3)
    viewers.add(Filter(), ADA, "192.0.2.1")
    with pytest.raises(TooManyViewers, match="of this user"):
        viewers.add(Filter(), ADA, "192.0.2.2")
    bob, eve = Identity("bob"), Identity("eve")
    viewers.add(Filter(), bob, "192.0.2.1")
    viewers.add(Filter(), bob, "192.0.2.1")
    with pytest.raises(TooManyViewers, match="from your address"):
        viewers.add(Filter(), eve, "192.0.2.1")
    viewers.remove(first)
    viewers.add(Filter(), ADA, "192.0.2.2")
    viewers.add(Filter(), eve)


async def test_the_id_of_an_event_tells_where_to_go_on() -> None:
    viewer = viewer_of(positions={("location", 0): 5, ("location", 1): 7})
    assert viewer.advance(event(offset=6)) == "l0-7.l1-7"
    assert viewer.advance(event(offset=2, topic="address", partition=3)) == "l0-7.l1-7.a3-3"
    # A catch-up may give an older event after a newer one: the cursor does not go back.
    assert viewer.advance(event(offset=5)) == "l0-7.l1-7.a3-3"


def test_a_slow_viewer_does_not_get_a_late_fix_in_place_of_the_newest() -> None:
    feed = Feed()
    for number, time in enumerate((10, 30, 20)):
        feed.add(LiveEvent(event(offset=number, live=time), number, ""))
    assert [live.event.live for live in feed.newest_since(0)] == [30]
    # A viewer that has had the newest event gets none that is older.
    assert list(feed.newest_since(2)) == []


async def test_news_of_friends_wait_until_it_is_known_where_they_live(tmp_path: Path) -> None:
    places = Places(str(tmp_path / "places"))
    friend_filter = FriendFilter(places, b"secret")
    places.on_change(friend_filter.homes_changed)
    permissions = Permissions(_store(tmp_path))
    viewers = Viewers((), GatewayMetrics(), permissions, FriendEventFilter(friend_filter))
    telling = asyncio.create_task(viewers.tell_withheld())
    bob = Identity("bob", rights=Rights(friends={"ada": 0}))
    owner, friend, behind = (viewers.add(Filter(), each) for each in (ADA, bob, bob))

    def came(offset: int, device: str = "ada/phone") -> None:
        where = {"device": device, "user": "ada", "lat": 47.1, "lon": 9.5}
        fix = convert({"id": str(offset), "time": offset, "received": offset, **where}, Fix)
        viewers.on_events([event(device, offset, value=encode(fix))])

    for offset in (1, 2, 3):
        came(offset)
    came(4, "ada/bike")
    assert offsets(owner) == [1, 2, 3, 4]
    assert offsets(friend) == []
    for _ in range(module.ORDERED_EVENTS_MAX):
        came(5, "ada/car")
    late = viewers.add(Filter(), bob)
    await places.refresh()
    await telling
    told = friend.take(module.STEP_EVENTS * 1000)
    assert [live.event.offset for live in told] == [3, 4, 5]
    # Event ids continue from the current position of the stream.
    assert {live.cursor for live in told} == {written("location", 0, 6)}
    # A viewer that fell behind gets each event once, and one added later gets none of them.
    assert sorted(offsets(behind)) == [3, 4, 5]
    assert offsets(late) == []
    came(6)
    assert [offsets(each)[-1:] for each in (friend, late)] == [[6], [6]]


async def test_what_a_viewer_has_not_been_told_yet_outlives_a_change_of_its_rights(
    tmp_path: Path,
) -> None:
    store = _store(tmp_path)
    for name in ("ada", "bob", "eve"):
        store.add(name)
    store.rights.befriend("ada", "bob", since=0)
    places = Places(str(tmp_path / "places"))
    friend_filter = FriendFilter(places, b"secret")
    places.on_change(friend_filter.homes_changed)
    permissions = Permissions(store)
    viewers = Viewers((), GatewayMetrics(), permissions, FriendEventFilter(friend_filter))
    permissions.subscribe(viewers.rights_changed)
    telling = asyncio.create_task(viewers.tell_withheld())
    bob = permissions.now(Identity("bob"))
    assert bob is not None
    viewer = viewers.add(Filter(), bob)

    def came(offset: int, user: str) -> None:
        where = {"device": f"{user}/phone", "user": user, "lat": 47.1, "lon": 9.5}
        fix = convert({"id": str(offset), "time": offset, "received": offset, **where}, Fix)
        viewers.on_events([event(f"{user}/phone", offset, value=encode(fix))])

    came(1, "ada")
    assert offsets(viewer) == []
    for offset in range(2, module.ORDERED_EVENTS_MAX + 3):
        came(offset, "bob")
    store.rights.befriend("eve", "bob", since=0)
    permissions.look()
    assert "eve" in viewer.identity.rights.friends
    await places.refresh()
    await telling
    assert offsets(viewer) == [offset, 1]
    came(offset + 1, "eve")
    assert offsets(viewer) == [offset + 1]

    store.rights.unfriend("ada", "bob")
    permissions.look()
    came(offset + 2, "ada")
    came(offset + 3, "eve")
    assert offsets(viewer) == [offset + 3]


def test_who_wants_no_events_costs_nothing_and_may_want_them_again(tmp_path: Path) -> None:
    viewers, viewer = watched(tmp_path)
    assert viewers.watching
    viewer.wanted.topics = frozenset()
    viewers.wanted_changed(viewer)
    assert not viewers.watching
    viewer.wanted.topics = frozenset(("location",))
    viewers.wanted_changed(viewer)
    assert viewers.watching
    viewers.on_events([event(offset=7)])
    (live,) = viewer.take()
    assert live.cursor == written("location", 0, 8)
    viewers.remove(viewer)
    assert not viewers.watching


async def test_each_friend_is_told_by_the_terms_of_the_own_friendship(tmp_path: Path) -> None:
    places = Places(None)
    friend_filter = FriendFilter(places, b"secret")
    permissions = Permissions(_store(tmp_path))
    viewers = Viewers((), GatewayMetrics(), permissions, FriendEventFilter(friend_filter))
    town, rights = Terms(cell_m=5_000), Rights(friends={"ada": 0})
    exact = viewers.add(Filter(), Identity("bob", rights=rights))
    coarse = [
        viewers.add(Filter(box=box), Identity(name, rights=replace(rights, coarse={"ada": town})))
        for name, box in (("cyd", None), ("dan", None), ("eve", BoundingBox.of((9.4, 47, 9.6, 48))))
    ]
    grid = friend_filter.grid_for("ada", town)
    assert grid is not None
    middle = grid.square(47.1, 9.5).centre

    def came(offset: int, lat: float, lon: float, later_ms: int = 0) -> None:
        where = {"device": "ada/phone", "user": "ada", "lat": lat, "lon": lon}
        time = 10**12 + offset + later_ms
        times = {"time": time, "received": time}
        fix = convert({"id": str(offset), **times, **where, "speed": 2.0}, Fix)
        viewers.on_events([event("ada/phone", offset, lat=lat, lon=lon, value=encode(fix))])

    for offset in range(3):
        came(offset, middle[0] + offset * 1e-4, middle[1])
    came(3, middle[0] + 0.2, middle[1])  # no news within a step of time
    came(4, middle[0] + 0.2, middle[1], town.step_ms)
    assert [live.event.lat for live in exact.take()] == [
        *(middle[0], round(middle[0] + 1e-4, 5), round(middle[0] + 2e-4, 5)),
        *[round(middle[0] + 0.2, 5)] * 2,
    ]
    for viewer in coarse:
        told = [live.event for live in viewer.take()]
        assert [each.offset for each in told] == [0, 4]
        assert (told[0].lat, told[0].lon) == middle
        assert b"speed" not in told[0].value
        assert b"999999999" not in told[0].value  # times are rounded
    # What was missed is told alike; a small box does not find the position in the square.
    missed = [event("ada/phone", 9, lat=47.1, lon=9.5, value=encode(_fix_at(47.1, 9.5)))]
    again = FriendEventFilter(friend_filter)
    [told_late] = coarse[0].shown_of_before(missed, again)
    assert (told_late.lat, told_late.lon) == middle
    edge = BoundingBox.of((9.4999, 47.0999, 9.5001, 47.1001))
    coarse[1].wanted.box = edge
    assert coarse[1].shown_of_before(missed, FriendEventFilter(friend_filter)) == []


def _fix_at(lat: float, lon: float) -> Fix:
    where = {"device": "ada/phone", "user": "ada", "lat": lat, "lon": lon}
    return convert({"id": "late", "time": 10**12, "received": 10**12, **where}, Fix)


def test_who_is_told_by_other_terms_is_told_nothing_without_a_filter() -> None:
    rights = Rights(friends={"ada": 0}, coarse={"ada": Terms(cell_m=500)})
    viewer = viewer_of(Identity("bob", rights=rights))
    live = LiveEvent(event(value=encode(_fix_at(47.1, 9.5))), 0, "")
    live.told, live.told_ms = LiveEvent(live.event, 0, ""), 10**12
    viewer.offer(Batch([live], 0, 1))
    assert viewer.take() == []
