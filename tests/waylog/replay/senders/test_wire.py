"""The gateway makes of a sent fix exactly the time and id that the sender has computed."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.formats import Context, overland, owntracks, positions
from waylog.messages import Fix
from waylog.replay.readers.recorded import RecordedFix
from waylog.replay.senders import wire

RECEIVED = 1748779200000

recorded_fixes = st.builds(
    RecordedFix,
    # From 1901: the gateway takes earlier OwnTracks times for milliseconds.
    time=st.integers(-(2**31) * 1000, RECEIVED),
    lat=st.floats(-90, 90),
    lon=st.floats(-180, 180),
    accuracy=st.none() | st.floats(0, 1e5),
    altitude=st.none() | st.floats(-500, 1e5),
    vertical_accuracy=st.none() | st.floats(0, 1e4),
    speed=st.none() | st.floats(0, 1000),
    course=st.none() | st.floats(0, 359),
    battery=st.none() | st.floats(0, 100),
    charging=st.none() | st.booleans(),
)


def through_gateway(wire_format: str, sent: wire.Outgoing) -> Fix:
    context = Context(user="mika", device=None, received=RECEIVED)
    if wire_format == "positions":
        parsed = positions.parse(wire.positions([sent]), context)
    elif wire_format == "overland":
        parsed = overland.parse(wire.overland([sent]), context)
    else:
        named = Context(user="mika", device=sent.name, received=RECEIVED)
        parsed = owntracks.parse(wire.owntracks(sent), named)
    assert not parsed.rejected
    return parsed.fixes[0]


@pytest.mark.parametrize("wire_format", ["positions", "overland", "owntracks"])
@given(recorded=recorded_fixes, name=st.text(min_size=1, max_size=200).map(wire.device_name))
def test_the_platform_knows_a_fix_by_the_foretold_device_time_and_id(
    wire_format: str, recorded: RecordedFix, name: str
) -> None:
    sent = wire.outgoing(recorded, "mika", name, wire_format)
    fix = through_gateway(wire_format, sent)
    assert (fix.device, fix.time, fix.id) == (sent.device, sent.time, sent.id)
    assert (fix.lat, fix.lon) == (recorded.lat, recorded.lon)


@pytest.mark.parametrize("wire_format", ["positions", "overland", "owntracks"])
def test_speed_battery_and_charging_keep_their_units(wire_format: str) -> None:
    recorded = RecordedFix(
        time=RECEIVED - 60_000, lat=47.1, lon=9.5, speed=10.0, battery=80.0, charging=True
    )
    fix = through_gateway(wire_format, wire.outgoing(recorded, "mika", "pixel", wire_format))
    assert (fix.speed, fix.battery, fix.charging) == (10.0, 80.0, True)


def test_a_recorded_tracker_id_is_sent_as_it_was() -> None:
    for attributes, tid in (({"tid": "MM", "SSID": "home"}, "MM"), (None, "el")):
        recorded = RecordedFix(time=RECEIVED, lat=47.1, lon=9.5, attributes=attributes)
        sent = wire.owntracks(wire.outgoing(recorded, "mika", "pixel", "owntracks"))
        assert msgspec.json.decode(sent)["tid"] == tid


def test_the_record_for_the_log_has_every_member() -> None:
    recorded = RecordedFix(RECEIVED, 47.1, 9.5, "d", 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, False)
    fix = wire.message(wire.outgoing(recorded, "mika", "d", "positions"), RECEIVED + 1)
    missing = [name for name, value in msgspec.structs.asdict(fix).items() if value is None]
    assert missing == ["trigger", "attributes"]


def test_osmand_queries_are_in_knots() -> None:
    recorded = RecordedFix(time=1748779200000, lat=47.1, lon=9.5, speed=1852 / 3600)
    assert (
        wire.osmand_query(wire.outgoing(recorded, "mika", "d", "osmand"))
        == "id=d&lat=47.1&lon=9.5&timestamp=1748779200&speed=1.0"
    )
