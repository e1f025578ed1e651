"""Views, fed with records in the form that they have in the log."""

from __future__ import annotations

import asyncio

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fixes.device_times import DeviceTimes
from gateway.fixes.known_fixes import KnownFixes, fix_key
from gateway.tracks.track_points import merged, unpacked
from gateway.views.address_view import AddressView
from gateway.views.fix_view import take_fixes
from gateway.views.location_view import LocationView, _location_event, newest_fix
from gateway.views.track_store import TrackStore
from gateway.views.view import Rate, ViewEvent
from tests.gateway.records import NOW, StoredRecord, address, fix, record
from waylog.messages import Fix, encode

DAY = 24 * 3600 * 1000

_MEASURED = st.one_of(st.none(), st.floats(-1e4, 1e4), st.integers(-100, 100))
FIXES = st.builds(
    Fix,
    id=st.text(min_size=1, max_size=30),
    device=st.sampled_from(["ada/phone", "ada/bike", "bob/\u00e9", 'a"b/c']),
    user=st.just("ada"),
    lat=st.one_of(st.floats(-90, 90), st.integers(-90, 90)),
    lon=st.floats(-180, 180),
    time=st.one_of(st.integers(NOW - 3 * DAY, NOW + 3 * DAY), st.integers(-(2**40), 2**40)),
    received=st.integers(NOW - DAY, NOW + DAY),
    accuracy=_MEASURED,
    altitude=_MEASURED,
    speed=_MEASURED,
    course=_MEASURED,
    battery=_MEASURED,
    trigger=st.one_of(st.none(), st.text(max_size=5)),
    source=st.sampled_from([None, "positions"]),
    attributes=st.one_of(
        st.none(),
        st.dictionaries(st.text(max_size=5), st.sampled_from([1, "x", [1], {"speed": 5}])),
    ),
)


class Watcher:
    def __init__(self) -> None:
        self.watching = True
        self.events: list[ViewEvent] = []

    def on_events(self, events: list[ViewEvent]) -> None:
        self.events += events


async def test_last_known_is_the_greatest_time_not_the_last_arrival() -> None:
    view = LocationView()
    late = fix(time=NOW - 5000)
    view.on_records([record(fix(), 0), record(late, 1)])
    assert view.latest("ada/phone") == fix()
    assert view.latest("ada/other") is None
    track = merged(unpacked(b"".join(view.track_pieces("ada/phone"))))
    assert track["time"].tolist() == [NOW - 5000, NOW]


@pytest.mark.parametrize("ahead", [400 * DAY, DAY // 2, 6 * 60_000])
async def test_a_fix_from_the_future_counts_as_of_its_arrival(ahead: int) -> None:
    view, addresses = LocationView(), AddressView()
    future = fix(time=NOW + ahead, received=NOW, id="future")
    newer = fix(time=NOW + 1000, received=NOW + 1000)
    view.on_records([record(future, 0)])
    told = address("ada/phone", future.time, resolved=NOW + 200, fix_id=future.id)
    addresses.on_records([record(told, 0)])
    assert newest_fix(view, "ada/phone", told) == future
    view.on_records([record(newer, 1)])
    assert view.latest("ada/phone") == newer
    assert newest_fix(view, "ada/phone", addresses.latest("ada/phone")) == newer
    newest = address("ada/phone", newer.time, resolved=NOW + 1200, fix_id=newer.id)
    addresses.on_records([record(newest, 1)])
    assert addresses.latest("ada/phone") == newest


async def test_a_clock_that_is_a_little_ahead_orders_its_own_fixes() -> None:
    view = LocationView()
    newer = fix(time=NOW + 60_000, received=NOW)
    late = fix(time=NOW + 30_000, received=NOW + 1_000)
    view.on_records([record(newer, 0), record(late, 1)])
    assert view.latest("ada/phone") == newer


async def test_a_number_beyond_32_bits_is_unknown_and_the_fix_is_not() -> None:
    view = LocationView()
    view.on_records([record(fix(speed=1e39, altitude=-1e300), 0)])
    assert view.latest("ada/phone") is not None
    track = merged(unpacked(b"".join(view.track_pieces("ada/phone"))))
    assert np.isnan(track["speed"]).all()


async def test_what_the_log_has_is_known_to_the_submitter() -> None:
    view = LocationView()
    view.on_records([record(fix(id="x"))])
    assert fix_key("ada/phone", "x") in view.known_fixes
    assert fix_key("eve/phone", "x") not in view.known_fixes


async def test_devices_are_listed_by_user() -> None:
    view = LocationView()
    names = ["ada/phone", "adam/phone", "ada/bike"]
    view.on_records([record(fix(name), offset) for offset, name in enumerate(names)])
    assert view.devices("ada") == ["ada/bike", "ada/phone"]
    assert view.devices() == sorted(names)


async def test_the_device_heard_of_longest_ago_is_dropped_at_the_bound() -> None:
    view = LocationView(devices_max=2)
    for offset, name in enumerate(["a/1", "a/2", "a/1", "a/3"]):
        view.on_records([record(fix(name, NOW + offset), offset)])
    assert view.devices() == ["a/1", "a/3"]


@pytest.mark.parametrize(
    "foreign",
    [
        StoredRecord(b"a/b", b"not json"),
        StoredRecord(b"a/b", b"[1]"),
        StoredRecord(b"a/b", None),
        StoredRecord(None, b"{}"),
        StoredRecord(b"\xff", b'{"id":"x","time":1,"received":1,"lat":1,"lon":1}'),
        StoredRecord(b"a/b", b'{"id":"x","time":1,"received":1,"lat":1e300,"lon":1}'),
        StoredRecord(
            b"a/b", b'{"id":"x","time":99999999999999999999,"received":1,"lat":1,"lon":1}'
        ),
        StoredRecord(b"a/b", b'{"id":"x","time":%d,"received":%d,"lat":1,"lon":1}' % (2**63, NOW)),
        StoredRecord(b"a/b", b'{"id":"x","time":%d,"received":%d,"lat":1,"lon":1}' % (NOW, 2**63)),
        StoredRecord(b"a/b", b"[" * 100_000),
    ],
)
async def test_somebody_elses_records_stop_nothing(foreign: StoredRecord) -> None:
    known = KnownFixes()
    known.watch(DeviceTimes())
    locations, addresses = LocationView(known), AddressView()
    for view, good in ((locations, record(fix(), 1)), (addresses, record(address(), 1))):
        view.on_records([foreign, good])
        assert view.latest("ada/phone") is not None
        assert view.positions == {0: 2}
    # A fix that is left out is left out of all that a view knows.
    assert fix_key("a/b", "x") not in known


@pytest.mark.parametrize("member", ["time", "resolved"])
def test_an_address_of_a_time_that_no_snapshot_can_keep_is_left_out(member: str) -> None:
    view = AddressView()
    odd = msgspec.json.decode(encode(address("a/b")))
    odd[member] = 2**63
    view.on_records([StoredRecord(b"a/b", msgspec.json.encode(odd)), record(address(), 1)])
    assert list(view.newest) == ["ada/phone"] and view.unreadable == 1


async def test_who_cannot_take_an_address_keeps_it_from_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    view = AddressView()
    told: list[str] = []

    def fails(device: str, _: bytes) -> None:
        if device == "ada/bike":
            raise KeyError("nobody has thought of this")

    view.on_address(fails)
    view.on_address(lambda device, _: told.append(device))
    view.on_caught_up()
    devices = ["ada/phone", "ada/bike", "ada/car"]
    view.on_records([record(address(each), number) for number, each in enumerate(devices)])
    assert told == devices
    assert "a new address of 'ada/bike' could not be passed on" in caplog.text


async def test_watchers_get_news_only_after_the_view_has_caught_up() -> None:
    view, watcher = LocationView(), Watcher()
    view.watch(watcher)
    view.on_records([record(fix(), 0)])
    view.on_caught_up()
    view.on_records([record(fix(time=NOW + 1), 1, 3)])
    watcher.watching = False
    view.on_records([record(fix(time=NOW + 2), 2)])
    ((topic, partition, offset, device, lat, lon, _, live),) = watcher.events
    assert (topic, partition, offset, device) == ("location", 3, 1, "ada/phone")
    assert (lat, lon, live) == (47.14, 9.52, NOW + 1)


async def test_addresses_newer_than_the_known_one_are_told() -> None:
    view = AddressView()
    told: list[tuple[str, bytes]] = []
    view.on_address(lambda device, value: told.append((device, value)))
    view.on_records([record(address(time=NOW - 1), 0)])
    view.on_caught_up()
    view.on_records([record(address(), 1), record(address(time=NOW - 5), 2)])
    assert told == [("ada/phone", encode(address()))]
    assert view.latest("ada/phone") == address()


async def test_an_address_that_is_found_again_takes_the_place_of_the_one_before() -> None:
    view = AddressView()
    better = address(display_name="Staedtle 1, Vaduz", resolved=NOW + 5)
    view.on_records([record(address(), 0), record(better, 1)])
    assert view.latest("ada/phone") == better


async def test_a_tombstone_removes_an_address() -> None:
    view = AddressView()
    view.on_records([record(address(), 0), StoredRecord(b"ada/phone", None, 1)])
    assert view.latest("ada/phone") is None
    assert view.unreadable == 0


async def test_waiting_ends_with_the_address_of_the_fix_or_a_newer_one() -> None:
    view = AddressView()
    waiting = asyncio.create_task(view.wait("ada/phone", NOW, 10))
    await asyncio.sleep(0)
    view.on_records([record(address(time=NOW - 1), 0)])
    await asyncio.sleep(0)
    assert not waiting.done()
    view.on_records([record(address(time=NOW + 1), 1)])
    assert await waiting
    assert await view.wait("ada/phone", NOW, 0)
    assert not await view.wait("ada/phone", NOW + 2, 0.01)
    assert not view._waiting


async def test_tracks_share_one_bound() -> None:
    view = LocationView(tracks=TrackStore(32 * 64 * 2))
    for offset in range(1000):
        view.on_records([record(fix(f"a/{offset % 3}", NOW + offset), offset)])
    assert view.tracks.bytes <= 32 * 64 * 2


def test_a_rate_is_the_mean_of_whole_seconds() -> None:
    now = 100.0
    rate = Rate(lambda: now)
    for _ in range(10):
        rate.add(15)
        rate.add(5)
        now += 1
    assert rate.per_second() == 20
    now += 5
    assert rate.per_second() == 10
    now += 100
    assert rate.per_second() == 0


@given(st.lists(FIXES, max_size=6), st.booleans())
def test_what_is_plain_is_taken_as_anything_else(fixes: list[Fix], watched: bool) -> None:
    records = [record(each, offset) for offset, each in enumerate(fixes)]
    quick, complete = LocationView(), LocationView()
    events: list[ViewEvent] | None = [] if watched else None
    expected: list[ViewEvent] | None = [] if watched else None
    take_fixes(quick, records, quick.known_fixes, events, _location_event, quick.positions)
    for stored in records:
        complete.take_record(stored, expected)
    assert quick.newest == complete.newest
    assert list(quick.newest) == list(complete.newest)
    assert quick._shares.weight == complete._shares.weight
    assert events == expected
    for device in complete.devices():
        tracks = [b"".join(view.track_pieces(device)) for view in (quick, complete)]
        assert tracks[0] == tracks[1]
    for each in fixes:
        key = fix_key(each.device, each.id)
        assert key in quick.known_fixes


def test_an_erased_device_is_in_no_view_also_when_views_are_built_again() -> None:
    locations, addresses = LocationView(), AddressView()
    locations.on_records([record(fix(), 0), record(fix("ada/bike"), 1)])
    addresses.on_records([record(address(), 0)])
    addresses.on_records([StoredRecord(b"ada/phone", None, 1, time=NOW + 1)])
    addresses.on_erased(locations.forget)
    assert locations.latest("ada/phone") is None
    assert not list(locations.track_pieces("ada/phone"))
    assert locations.latest("ada/bike") is not None
    # Fixes received later are new; a further erasure takes effect at once.
    locations.on_records([record(fix(time=NOW + 5, received=NOW + 5), 2)])
    addresses.on_records([StoredRecord(b"ada/phone", None, 2, time=NOW + 2)])
    assert locations.latest("ada/phone") is not None
    addresses.on_records([StoredRecord(b"ada/phone", None, 3, time=NOW + 9)])
    assert locations.latest("ada/phone") is None


def test_a_user_with_invented_devices_evicts_its_own() -> None:
    view = LocationView(devices_max=200)
    honest = [f"user-{number}/phone" for number in range(90)]
    view.on_records([record(fix(name), offset) for offset, name in enumerate(honest)])
    eve = [fix("eve/phone", NOW + 200_000), *(fix(f"eve/{n}", NOW + n) for n in range(2000))]
    view.on_records([record(each, offset) for offset, each in enumerate(eve)])
    assert len(view) == 200
    assert all(name in view for name in honest)
    # Of its own devices the least recent ones go first, approximately.
    assert view.count_of("eve") == 110
    assert "eve/phone" in view
    assert not list(view.track_pieces("eve/0"))


def test_large_values_count_for_several_devices() -> None:
    view = LocationView(devices_max=100)
    view.on_records([record(fix(f"user-{number}/phone"), number) for number in range(50)])
    for number in range(50):
        large = fix(f"eve/{number}", NOW + number, attributes={"note": "x" * 5000})
        view.on_records([record(large, number)])
    assert sum(f"user-{number}/phone" in view for number in range(50)) == 50
    assert 1 <= view.count_of("eve") <= 5


def test_devices_are_paged_without_looking_at_all() -> None:
    view = LocationView()
    names = ["ada-b/x", "ada/a", "ada/b", "ada/c", "adam/x", "bob/x"]
    view.on_records([record(fix(name), offset) for offset, name in enumerate(names)])
    assert list(view.devices_after("", "ada")) == ["ada/a", "ada/b", "ada/c"]
    assert list(view.devices_after("ada/a", "ada")) == ["ada/b", "ada/c"]
    assert list(view.devices_after("ada/c", "ada")) == []
    assert list(view.devices_after("ada/b")) == ["ada/c", "adam/x", "bob/x"]


def test_what_is_older_is_taken_in_any_order_and_what_was_erased_is_not() -> None:
    locations, addresses = LocationView(), AddressView()
    locations.on_records([record(fix(time=NOW), 10)])
    addresses.on_records([record(address(time=NOW), 10)])
    before: dict[int, int] = {}
    locations.on_old_records(
        [record(fix(time=NOW - 5), 3), record(fix("ada/bike"), 4)],
        addresses.erasures,
        before,
        recent=False,
    )
    addresses.on_old_records([record(address(time=NOW - 5), 3)], before)
    assert locations.latest("ada/phone") == fix(time=NOW)
    assert locations.latest("ada/bike") is not None
    assert addresses.latest("ada/phone") == address(time=NOW)
    assert before == {0: 4}
    assert locations.positions == {0: 11}
    # A tombstone in between: later records stay, earlier ones do not come back.
    addresses.on_old_records([StoredRecord(b"ada/phone", None, 5, time=NOW - 1)], before)
    assert addresses.latest("ada/phone") is not None
    addresses.on_records([StoredRecord(b"ada/bike", None, 11, time=NOW + 1)])
    addresses.on_old_records([record(address("ada/bike"), 6)], before)
    locations.on_old_records(
        [record(fix("ada/bike", NOW - 1), 6)], addresses.erasures, before, recent=True
    )
    assert addresses.latest("ada/bike") is None
    assert not list(locations.track_pieces("ada/bike"))


def test_an_address_that_was_found_again_stays_when_older_records_are_read() -> None:
    addresses = AddressView()
    again = address(time=NOW, resolved=NOW + 60_000, display_name="found again")
    addresses.on_records([record(again, 10)])
    addresses.on_old_records([record(address(time=NOW), 3)], {})
    assert addresses.latest("ada/phone") == again
    # Among older records the later one counts.
    addresses.on_old_records([record(address("ada/bike", NOW), 4)], {})
    later = address("ada/bike", NOW, resolved=NOW + 1)
    addresses.on_old_records([record(later, 5)], {})
    assert addresses.latest("ada/bike") == later
