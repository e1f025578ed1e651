"""The resolver's logic on records made by hand: order, lateness, bad records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import msgspec
import pytest
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE
from hypothesis import given, settings
from hypothesis import strategies as st

from consumers.resolver.newest_fixes import NewestFixes, StationaryLimits
from consumers.resolver.resolver import Resolver
from consumers.worker.fix_records import RAW_BYTES_MAX
from consumers.worker.records import OutputRecord, StateRecord
from geoservice.reverse.geocoder import Geocoder
from geoservice.reverse.watch import FixedGeocoder
from tests.odd_records import MALFORMED_VALUES
from waylog.kafka.dead_letters import read_dead_letter
from waylog.messages import Address, Fix, decode_address, decode_rejected, encode, fix_id

NOW = 1_700_000_000_000
#: The times of fixes are given as ms since then.
BEGIN = NOW - 1_000_000_000


@dataclass(frozen=True)
class Record:
    """A record as from the log, made without one."""

    _value: bytes | None
    _key: bytes | None = None
    _headers: Sequence[tuple[str, bytes | None]] | None = None
    _partition: int = 0
    _offset: int = 0

    def topic(self) -> str:
        return "location"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> Any:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_NOT_AVAILABLE, 0


def make_fix(device: str = "ann/phone", time: int = 1000, lat: float = 47.14, **more: Any) -> Fix:
    lon = more.pop("lon", 9.52)
    time += BEGIN
    return Fix(
        id=fix_id(device, time, lat, lon),
        device=device,
        user=device.partition("/")[0],
        lat=lat,
        lon=lon,
        time=time,
        received=time + 5,
        **more,
    )


def record_of(fix: Fix, partition: int = 0, offset: int = 0) -> Record:
    return Record(encode(fix), fix.device.encode(), None, partition, offset)


@pytest.fixture(scope="module")
def geocoder() -> Geocoder:
    return Geocoder.open()


@pytest.fixture
def resolver(geocoder: Geocoder) -> Resolver:
    return Resolver(FixedGeocoder(geocoder))


def resolve(
    resolver: Resolver, records: Sequence[Record], state: NewestFixes | None = None
) -> list[OutputRecord]:
    return resolver.process({0: records}, {0: state if state is not None else NewestFixes()}, NOW)


def restore(state: NewestFixes, *values: bytes | None) -> None:
    """Restore a state from records of topic `address` with these values."""
    state.restore([StateRecord(b"ann/phone", value) for value in values])


def test_a_fix_becomes_the_address_of_its_place(resolver: Resolver) -> None:
    fix = make_fix()
    [output] = resolve(resolver, [record_of(fix)])
    assert (output.topic, output.partition, output.key) == ("address", 0, b"ann/phone")
    address = decode_address(output.value)
    assert address.address["town"] == "Vaduz"
    assert address.address["country_code"] == "li"
    assert address.display_name == "Vaduz, Liechtenstein"
    assert address.distance is not None and address.distance < 1000
    assert (address.fix_id, address.time, address.lat, address.lon) == (
        fix.id, BEGIN + 1000, 47.14, 9.52,
    )  # fmt: skip
    assert address.resolved == NOW
    assert len(address.index_version) == 12


def test_an_address_goes_where_its_fix_came_from(resolver: Resolver) -> None:
    batch = {
        partition: [record_of(make_fix(f"u/{partition}"), partition)] for partition in (3, 1, 2)
    }
    states = {partition: NewestFixes() for partition in batch}
    outputs = resolver.process(batch, states, NOW)
    assert [(output.partition, output.key) for output in outputs] == [
        (3, b"u/3"), (1, b"u/1"), (2, b"u/2"),
    ]  # fmt: skip


def test_addresses_go_where_their_fixes_came_from_if_some_devices_stand_still(
    geocoder: Geocoder,
) -> None:
    resolver = standing(geocoder)
    states = {partition: resolver.new_state() for partition in (3, 1, 2)}
    moving, still = make_fix("u/moves"), make_fix("u/stands")
    resolver.process({1: [record_of(still, 1)]}, states, NOW)
    trace = [("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")]
    batch = {
        3: [record_of(make_fix("u/other"), 3)],
        1: [record_of(make_fix("u/stands", time=2000), 1), record_of(moving, 1)],
        2: [Record(encode(make_fix("u/traced")), b"u/traced", trace, 2)],
    }
    outputs = resolver.process(batch, states, NOW)
    assert [(output.partition, output.key, output.headers) for output in outputs] == [
        (3, b"u/other", None), (1, b"u/moves", None), (2, b"u/traced", trace),
    ]  # fmt: skip


def test_of_a_batch_only_the_newest_fix_of_a_device_is_resolved(resolver: Resolver) -> None:
    fixes = [make_fix(time=time) for time in (5, 9, 7)] + [make_fix("bob/car", 1)]
    outputs = resolve(resolver, [record_of(fix) for fix in fixes])
    assert {(output.key, decode_address(output.value).time - BEGIN) for output in outputs} == {
        (b"ann/phone", 9), (b"bob/car", 1),
    }  # fmt: skip


def test_a_late_fix_yields_nothing(resolver: Resolver) -> None:
    state = NewestFixes()
    assert resolve(resolver, [record_of(make_fix(time=9))], state)
    assert not resolve(resolver, [record_of(make_fix(time=8))], state)


def test_a_fix_from_the_future_does_not_keep_later_ones_from_their_address(
    resolver: Resolver,
) -> None:
    state = NewestFixes()
    future = make_fix(time=400 * 86_400_000)
    future.received = BEGIN + 10_000
    [written] = resolve(resolver, [record_of(future)], state)
    assert not resolve(resolver, [record_of(make_fix(time=9_000))], state)
    later = make_fix(time=11_000)
    assert resolve(resolver, [record_of(later)], state)
    assert state.time_of(future.device) == later.time
    # After a restart the time of its arrival is not known.
    restored = NewestFixes()
    restore(restored, written.value)
    assert restored.time_of(future.device) == future.time
    assert resolve(resolver, [record_of(later)], restored)
    assert restored.time_of(future.device) == later.time
    restore(restored, written.value)
    assert restored.time_of(future.device) == later.time


def test_of_two_fixes_of_the_same_time_the_later_record_counts(resolver: Resolver) -> None:
    state = NewestFixes()
    resolve(resolver, [record_of(make_fix(time=9))], state)
    [output] = resolve(resolver, [record_of(make_fix(time=9, lat=48.2, lon=16.37))], state)
    assert decode_address(output.value).address["city"] == "Vienna"


def test_a_restored_state_knows_what_was_resolved_before(resolver: Resolver) -> None:
    [written] = resolve(resolver, [record_of(make_fix(time=9))])
    state = NewestFixes()
    restore(state, written.value, None, b"not an address", b'{"device": 3}', b'{"device": "\xff"}')
    assert len(state) == 1
    assert not resolve(resolver, [record_of(make_fix(time=8))], state)
    assert resolve(resolver, [record_of(make_fix(time=10))], state)


def test_a_state_is_restored_past_records_of_other_programs(resolver: Resolver) -> None:
    [address] = resolve(resolver, [record_of(make_fix())])
    state = NewestFixes()
    restore(state, *MALFORMED_VALUES, None, address.value)
    assert len(state) == 1
    assert state.time_of("ann/phone") == BEGIN + 1000


def test_a_state_restored_from_disordered_records_has_the_newest() -> None:
    state = NewestFixes()
    times = [BEGIN + time for time in (3, 8, 5)]
    restore(state, *(json.dumps({"device": "d", "time": time}).encode() for time in times))
    assert not state.accept("d", BEGIN + 7, BEGIN + 7)
    assert state.accept("d", BEGIN + 8, BEGIN + 8)


def test_the_trace_of_a_fix_goes_on_with_its_address(resolver: Resolver) -> None:
    trace = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    record = Record(encode(make_fix()), b"ann/phone", [("other", b"1"), trace])
    [output] = resolve(resolver, [record])
    assert output.headers == [trace]


def test_at_sea_the_name_is_the_coordinates(resolver: Resolver) -> None:
    [output] = resolve(resolver, [record_of(make_fix(lat=-12.345, lon=-23.456))])
    address = decode_address(output.value)
    assert address.display_name == "12.345 S, 23.456 W"
    assert address.address == {}
    assert address.distance is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no value"),
        (b"", "not a fix"),
        (b"{", "not a fix"),
        (b"\xff\xfe", "not a fix"),
        (b"[]", "not a fix"),
        (b'{"lat": 1}', "not a fix"),
        (encode(make_fix(lat=91.0)), "<= 90.0 - at `$.lat`"),
        (encode(make_fix(lon=-180.5)), ">= -180.0 - at `$.lon`"),
        (encode(make_fix(device="")), "length >= 1 - at `$.device`"),
        (encode(make_fix(device="d" * 1001)), "length <= 1000 - at `$.device`"),
        (encode(make_fix(device="ann/pho\nne")), "has a line feed - at `$.device`"),
        (encode(msgspec.structs.replace(make_fix(), id="i" * 1001)), "<= 1000 - at `$.id`"),
        (encode(make_fix()).replace(b"47.14", b"1e999"), "not a fix"),
        (encode(make_fix()).replace(b"47.14", b"NaN"), "not a fix"),
        (encode(make_fix()).replace(b"ann/phone", b"\xff"), "not a fix"),
        (encode(make_fix())[:-1] + b',"x":' + b"[" * 3000 + b"]" * 3000 + b"}", "not a fix"),
        (encode(make_fix(time=1 << 63)), "- at `$.time`"),
        (encode(msgspec.structs.replace(make_fix(), received=-(1 << 70))), "- at `$.received`"),
        (encode(msgspec.structs.replace(make_fix(), received=1 << 63)), "- at `$.received`"),
        (encode(make_fix(time=-(1 << 70))), "- at `$.time`"),
    ],
)
def test_a_bad_record_is_kept_in_topic_error_and_stops_nobody(
    resolver: Resolver, value: bytes | None, reason: str
) -> None:
    bad = Record(value, b"ann/phone", None, 0, 77)
    outputs = resolve(resolver, [record_of(make_fix("a/1")), bad, record_of(make_fix("a/2"))])
    [error] = [output for output in outputs if output.topic == "error"]
    rejected = decode_rejected(error.value)
    assert reason in rejected.reason
    assert rejected.raw == (value or b"")
    assert rejected.device == "ann/phone"
    assert rejected.headers == {"topic": "location", "partition": "0", "offset": "77"}
    assert {output.key for output in outputs if output.topic == "address"} == {b"a/1", b"a/2"}


def test_a_bad_record_is_kept_with_its_headers(resolver: Resolver) -> None:
    headers = [("app", b"meter"), ("app", b"again"), ("none", None), ("__connect.errors.x", b"y")]
    bad = Record(b"{", b"ann/phone", headers, 0, 77)
    [error] = resolve(resolver, [bad])
    letter = read_dead_letter(Record(error.value, error.key, error.headers, 0, 1))
    assert (letter.headers, letter.is_whole) == (headers[:3], True)
    trace = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    bad = Record(b"{", b"ann/phone", [("large", b"x" * 200_000), trace], 0, 77)
    [error] = resolve(resolver, [bad])
    letter = read_dead_letter(Record(error.value, error.key, error.headers, 0, 1))
    assert (letter.headers, letter.is_whole) == ([trace], False)


def test_a_huge_bad_record_still_fits_into_topic_error(resolver: Resolver) -> None:
    bad = Record(b"x" * 1_000_000, b"k" * 5000)
    [error] = resolve(resolver, [bad])
    rejected = decode_rejected(error.value)
    assert len(rejected.raw) == RAW_BYTES_MAX
    assert "of 1000000 bytes" in rejected.reason
    assert error.key is None
    assert len(error.value) < 1_000_000


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_no_bytes_stop_the_resolver(geocoder: Geocoder, value: bytes) -> None:
    outputs = resolve(Resolver(FixedGeocoder(geocoder)), [Record(value)])
    assert len(outputs) == 1


arrivals = st.lists(
    st.tuples(st.sampled_from(["a/1", "b/2", "c/3"]), st.integers(0, 20)), max_size=60
)


@settings(max_examples=300)
@given(arrivals, st.integers(1, 9), st.sets(st.integers(0, 60), max_size=3))
def test_the_newest_address_is_always_that_of_the_newest_fix(
    geocoder: Geocoder,
    arrived: list[tuple[str, int]],
    batch_records: int,
    restarts: set[int],
) -> None:
    """Holds for any order of fixes and any batches, and with reprocessing after a crash."""
    resolver = Resolver(FixedGeocoder(geocoder))
    records = [
        record_of(make_fix(device, time, lat=40 + time / 10), 0, offset)
        for offset, (device, time) in enumerate(arrived)
    ]
    log: list[bytes] = []
    state = NewestFixes()
    position = 0
    committed = 0
    while position < len(records):
        batch = records[position : position + batch_records]
        log += [output.value for output in resolve(resolver, batch, state)]
        position += len(batch)
        if position in restarts:
            # Killed: results are written, but the offsets only up to the batch before.
            restarts = restarts - {position}
            position = committed
            state = NewestFixes()
            restore(state, *log)
        else:
            committed = position
    written = [decode_address(value) for value in log]
    for _, of_device in groupby(
        sorted(written, key=lambda address: address.device), key=lambda address: address.device
    ):
        times = [address.time for address in of_device]
        assert times == sorted(times)
    newest: dict[str, Address] = {address.device: address for address in written}
    wanted: dict[str, int] = {}
    for device, time in arrived:
        wanted[device] = max(wanted.get(device, 0), time)
    assert {device: address.time - BEGIN for device, address in newest.items()} == wanted


def standing(geocoder: Geocoder, distance_m: float = 50.0, resend_s: int = 60) -> Resolver:
    return Resolver(
        FixedGeocoder(geocoder), standstill=StationaryLimits(distance_m, resend_s * 1000)
    )


def times_sent(resolver: Resolver, state: NewestFixes, *fixes: Fix) -> list[int]:
    """Return the times of the fixes that got an address, each sent in a batch of its own."""
    sent: list[int] = []
    for fix in fixes:
        outputs = resolve(resolver, [record_of(fix)], state)
        sent += [decode_address(output.value).time - BEGIN for output in outputs]
    return sent


NORTH_20_M = 20 / 111_195


def test_by_default_every_newest_fix_gets_its_address(resolver: Resolver) -> None:
    fixes = [make_fix(time=1000 * number) for number in range(5)]
    assert times_sent(resolver, resolver.new_state(), *fixes) == [0, 1000, 2000, 3000, 4000]


def test_a_device_that_stands_still_is_left_alone(geocoder: Geocoder) -> None:
    resolver = standing(geocoder)
    fixes = [make_fix(time=1000 * number, lat=47.14 + number % 2 * 1e-4) for number in range(5)]
    assert times_sent(resolver, resolver.new_state(), *fixes) == [0]
    assert resolver.stood_still == 4


def test_a_device_that_creeps_does_not_drift_away_from_its_address(geocoder: Geocoder) -> None:
    resolver = standing(geocoder)
    fixes = [make_fix(time=1000 * number, lat=47 + number * NORTH_20_M) for number in range(7)]
    assert times_sent(resolver, resolver.new_state(), *fixes) == [0, 3000, 6000]


def test_across_the_date_line_it_is_a_short_way(geocoder: Geocoder) -> None:
    resolver = standing(geocoder)
    fixes = [make_fix(time=1, lat=-17, lon=179.9999), make_fix(time=2, lat=-17, lon=-179.9999)]
    assert times_sent(resolver, resolver.new_state(), *fixes) == [1]


def test_an_address_is_sent_again_after_a_while(geocoder: Geocoder) -> None:
    resolver = standing(geocoder, resend_s=60)
    fixes = [make_fix(time=20_000 * number) for number in range(8)]
    assert times_sent(resolver, resolver.new_state(), *fixes) == [0, 60_000, 120_000]


def test_an_older_fix_does_not_replace_the_one_that_stood_still(geocoder: Geocoder) -> None:
    resolver = standing(geocoder)
    elsewhere = make_fix(time=1500, lat=48.2, lon=16.37)
    sent = times_sent(
        resolver, resolver.new_state(), make_fix(time=1000), make_fix(time=2000), elsewhere
    )
    assert sent == [1000]


def test_a_restored_state_knows_where_a_device_stands(geocoder: Geocoder) -> None:
    resolver = standing(geocoder)
    [written] = resolve(resolver, [record_of(make_fix(time=1000))], resolver.new_state())
    state = resolver.new_state()
    restore(state, written.value)
    assert times_sent(resolver, state, make_fix(time=2000)) == []
    assert times_sent(resolver, state, make_fix(time=3000, lat=48.0)) == [3000]


def test_an_address_out_of_another_index_is_resolved_again(geocoder: Geocoder) -> None:
    resolver = standing(geocoder)
    [written] = resolve(resolver, [record_of(make_fix(time=1000))], resolver.new_state())
    address = decode_address(written.value)
    state = resolver.new_state()
    restore(state, encode(msgspec.structs.replace(address, index_version="another")))
    assert times_sent(resolver, state, make_fix(time=2000)) == [2000]


def test_a_record_without_coordinates_keeps_nothing_from_being_resolved(
    geocoder: Geocoder,
) -> None:
    resolver = standing(geocoder)
    state = resolver.new_state()
    version = geocoder.index_version
    of_another = {"device": "ann/phone", "time": 1, "index_version": version}
    restore(state, json.dumps(of_another).encode())
    assert times_sent(resolver, state, make_fix(time=2)) == [2]


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 120)), max_size=40),
    st.sets(st.integers(0, 40), max_size=3),
)
def test_nobody_is_farther_from_the_address_than_the_threshold(
    geocoder: Geocoder, moves: list[tuple[int, int]], restarts: set[int]
) -> None:
    """Holds for any way of a device, given as metres north by seconds since the fix before."""
    resolver = standing(geocoder, distance_m=100.0, resend_s=300)
    state = resolver.new_state()
    log: list[bytes] = []
    time = 0
    for number, (metres, seconds) in enumerate(moves):
        time += 1000 * seconds
        fix = make_fix(time=time, lat=46.0 + metres / 111_195)
        log += [output.value for output in resolve(resolver, [record_of(fix)], state)]
        newest = decode_address(log[-1])
        assert abs(newest.lat - fix.lat) * 111_195 < 100.001
        assert fix.time - newest.time < 300_000
        if number in restarts:
            state = resolver.new_state()
            restore(state, *log)
