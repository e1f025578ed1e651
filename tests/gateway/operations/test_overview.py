"""The arithmetic of the overview."""

from __future__ import annotations

import pytest

from gateway.observability.metrics import LATENCY_BUCKETS_S
from gateway.operations.overview import AddressTimes, latency_quantiles
from gateway.views.location_view import LocationView
from tests.gateway.records import address, fix, record
from waylog.messages import encode
from waylog.observability.telemetry import now_ms


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({}, (None, None)),
        ({0: 100}, (5.0, 5.0)),
        ({0: 98, 3: 2}, (5.0, 30.0)),
        ({0: 49, 1: 51}, (10.0, 10.0)),
        ({len(LATENCY_BUCKETS_S): 1}, (10_000.0, 10_000.0)),
    ],
)
def test_latency_is_rounded_up_to_a_bucket(
    counts: dict[int, int], expected: tuple[float | None, float | None]
) -> None:
    histogram = [counts.get(index, 0) for index in range(len(LATENCY_BUCKETS_S) + 1)]
    assert latency_quantiles(histogram) == expected


def test_the_way_of_some_addresses_is_timed() -> None:
    locations, now = LocationView(), [100.0]
    times = AddressTimes(locations, lambda: now[0])
    sent = fix(id="a", received=now_ms() - 300)
    locations.on_records([record(sent)])
    value = encode(address(fix_id="a"))
    times.address_changed(sent.device, value)
    # At once another one: most are passed over.
    times.address_changed(sent.device, value)
    [took] = times.newest()
    assert 300 <= took < 60_000
    now[0] += 1
    # Of another fix than the newest, of a device that is unknown, and no address at all.
    times.address_changed(sent.device, encode(address(fix_id="b")))
    now[0] += 1
    times.address_changed("nobody/phone", value)
    now[0] += 1
    times.address_changed(sent.device, b"{}")
    assert len(times.newest()) == 1
    now[0] += 121
    assert times.newest() == []
