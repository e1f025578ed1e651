"""What our exports write, `waylog replay` reads back and sends as the same fixes."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.formats import Context, overland, owntracks, positions
from gateway.tracks.track_encoders import encode_track
from gateway.tracks.track_points import unpacked
from gateway.views.track_store import pack_point
from waylog.history.row_layout import HISTORY_SCHEMA
from waylog.history.track_writers import WRITERS
from waylog.messages import Fix, fix_id
from waylog.replay.player import read_files
from waylog.replay.readers.recorded import RecordedFix
from waylog.replay.senders import wire

RECEIVED: Final = 1_761_994_812_000
USER: Final = "ada"
#: Formats that replay reads; Parquet is the history's own.
FORMATS: Final = ("geojson", "gpx", "kml", "csv")

degrees_e7 = st.integers(-900_000_000, 900_000_000)
measured = st.none() | st.integers(0, 10_000_000).map(lambda value: value / 1000)
texts = st.text(
    st.characters(
        codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff"
    ),
    min_size=1,
    max_size=12,
).filter(lambda text: text == text.strip())
scalars = st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e6, 1e6) | texts
attributes = st.none() | st.dictionaries(
    texts, scalars | st.lists(scalars, min_size=1, max_size=3), min_size=1, max_size=4
)


@st.composite
def fixes(draw: st.DrawFn) -> list[Fix]:
    """Draw the fixes of one device within a day, by time."""
    device = f"{USER}/{wire.device_name(draw(texts))}"
    times = draw(st.lists(st.integers(0, 80_000_000), min_size=1, max_size=5, unique=True))
    found = []
    for time in sorted(times):
        lat, lon, trigger = draw(degrees_e7) / 1e7, draw(degrees_e7) / 1e7, draw(st.none() | texts)
        moment = 1_761_955_200_000 - 86_400_000 + time
        found.append(
            Fix(
                id=fix_id(
                    device, moment, lat, lon, trigger, draw(st.none() | st.just("app's own"))
                ),
                device=device,
                user=USER,
                lat=lat,
                lon=lon,
                time=moment,
                received=RECEIVED,
                accuracy=draw(measured),
                altitude=draw(
                    st.none() | st.integers(-500_000, 90_000_000).map(lambda a: a / 1000)
                ),
                vertical_accuracy=draw(measured),
                speed=draw(measured),
                course=draw(st.none() | st.integers(0, 359_999).map(lambda a: a / 1000)),
                battery=draw(st.none() | st.integers(0, 100).map(float)),
                charging=draw(st.none() | st.booleans()),
                trigger=trigger,
                source="positions",
                attributes=draw(attributes),
            )
        )
    return found


def exported_history(name: str, sent: list[Fix]) -> bytes:
    rows = [
        msgspec.structs.asdict(fix)
        | {
            "attributes": fix.attributes and msgspec.json.encode(fix.attributes).decode(),
            "kafka_partition": 0,
            "kafka_offset": offset,
        }
        for offset, fix in enumerate(sent)
    ]
    stream = io.BytesIO()
    writer = WRITERS[name](stream)
    writer.begin(sent[0].device)
    writer.day(pa.Table.from_pylist(rows, HISTORY_SCHEMA))
    writer.end()
    writer.close()
    return stream.getvalue()


def replayed(path: Path, wire_format: str = "positions") -> list[Fix]:
    """Return what the gateway makes of a file that is replayed."""
    skipped: Counter[str] = Counter()
    recorded = list(read_files([path], device=None, limit=None, skipped=skipped, user=USER))
    assert not skipped.total()
    found = []
    for each in recorded:
        assert each.device is not None
        sent = wire.outgoing(each, USER, each.device, wire_format)
        context = Context(USER, None, RECEIVED)
        if wire_format == "positions":
            parsed = positions.parse(wire.positions([sent]), context)
        elif wire_format == "overland":
            parsed = overland.parse(wire.overland([sent]), context)
        else:
            named = Context(USER, sent.name, RECEIVED)
            parsed = owntracks.parse(wire.owntracks(sent), named)
        assert not parsed.rejected
        (fix,) = parsed.fixes
        assert fix.id == sent.id
        found.append(fix)
    return found


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=60, deadline=None)
@given(sent=fixes())
def test_an_export_of_the_history_comes_back_as_the_same_fixes(
    name: str, tmp_path_factory: pytest.TempPathFactory, sent: list[Fix]
) -> None:
    path = tmp_path_factory.mktemp("export") / f"track.{name}"
    path.write_bytes(exported_history(name, sent))
    assert replayed(path) == sent


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("wire_format", ["positions", "overland", "owntracks"])
def test_attributes_as_deep_as_the_gateway_takes_them_come_back_whole(
    name: str, wire_format: str, tmp_path: Path
) -> None:
    def nested(levels: int) -> Any:
        return [{"a": 1}] if levels == 2 else {"in": nested(levels - 1)}

    body = msgspec.json.encode({"lat": 1, "lon": 2, "t": RECEIVED, "deep": nested(16), "flat": 7})
    sent = positions.parse(body, Context(USER, "phone", RECEIVED)).fixes
    path = tmp_path / f"track.{name}"
    path.write_bytes(exported_history(name, sent))
    (fix,) = replayed(path, wire_format)
    assert sent[0].attributes == {"deep": nested(16), "flat": 7}
    assert {"deep": nested(16), "flat": 7}.items() <= (fix.attributes or {}).items()


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=60, deadline=None)
@given(sent=fixes())
def test_a_track_of_the_gateway_comes_back_with_all_that_it_has(
    name: str, tmp_path_factory: pytest.TempPathFactory, sent: list[Fix]
) -> None:
    # The gateway's tracks have numbers of 32 bits and no other members.
    known = ("altitude", "accuracy", "speed", "course")
    points = unpacked(
        b"".join(
            pack_point(fix.time, fix.lat, fix.lon, *(getattr(fix, each) for each in known))
            for fix in sent
        )
    )
    path = tmp_path_factory.mktemp("export") / f"track.{name}"
    path.write_bytes(encode_track(name, sent[0].device, points))
    for was, fix in zip(sent, replayed(path), strict=True):
        assert (fix.device, fix.time, fix.lat, fix.lon) == (was.device, was.time, was.lat, was.lon)
        for member in known:
            expected = getattr(was, member)
            close = None if expected is None else pytest.approx(expected, rel=1e-6, abs=1e-3)
            assert getattr(fix, member) == close, member
        assert fix.attributes is None


def test_kml_has_no_altitude_where_none_was_measured(tmp_path: Path) -> None:
    sent = [
        Fix(id="a" * 24, device="ada/x", user="ada", lat=1, lon=2, time=time, received=5)
        for time in (RECEIVED, RECEIVED + 1)
    ]
    sent[1].altitude = 0.0
    text = exported_history("kml", sent).decode()
    assert "<gx:coord>2.0000000 1.0000000</gx:coord>" in text
    assert "<gx:coord>2.0000000 1.0000000 0</gx:coord>" in text
    assert "altitudeMode" not in text


@pytest.mark.parametrize("name", FORMATS)
def test_a_device_of_another_user_keeps_the_users_name_in_its_own(
    name: str, tmp_path: Path
) -> None:
    points = unpacked(pack_point(RECEIVED, 1, 2, None, None, None, None))
    path = tmp_path / f"track.{name}"
    path.write_bytes(encode_track(name, "bob/phone", points))
    (fix,) = read_files([path], device=None, limit=None, skipped=Counter(), user=USER)
    assert fix.device == "bob_phone"
    (fix,) = read_files([path], device=None, limit=None, skipped=Counter(), user="bob")
    assert fix.device == "phone"


@pytest.mark.parametrize("wire_format", ["positions", "overland", "owntracks"])
def test_attributes_go_along_in_each_apps_format(wire_format: str) -> None:
    own: dict[str, Any] = {"conn": "w", "steps": 7, "regions": ["Home"], "lat": 99, "_id": "x"}
    recorded = RecordedFix(
        time=RECEIVED - 60_000, lat=47.1, lon=9.5, trigger="p", attributes=own, altitude=1.0
    )
    sent = wire.outgoing(recorded, USER, "phone", wire_format)
    context = Context(USER, "phone", RECEIVED)
    parse, body = {
        "positions": (positions.parse, wire.positions([sent])),
        "overland": (overland.parse, wire.overland([sent])),
        "owntracks": (owntracks.parse, wire.owntracks(sent)),
    }[wire_format]
    (fix,) = parse(body, context).fixes
    assert (fix.id, fix.lat, fix.altitude) == (sent.id, 47.1, 1.0)
    kept = {name: (fix.attributes or {}).get(name) for name in ("conn", "steps", "regions")}
    assert kept == {"conn": "w", "steps": 7, "regions": ["Home"]}
    assert fix.trigger == (None if wire_format == "overland" else "p")
