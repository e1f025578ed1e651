"""PhoneTrack's paths, OpenGTS' sentences and uLogger's forms."""

from __future__ import annotations

import functools
import json
import operator
from urllib.parse import parse_qsl

import pytest

from gateway.formats import BATCH_ITEMS_MAX, Context, opengts, phonetrack, ulogger

RECEIVED = 1_761_994_812_000
TIME_S = 1_761_994_805


def query(text: str, device: str | None = "bike") -> Context:
    values = dict(parse_qsl(text, keep_blank_values=True))
    return Context("mika", device, RECEIVED, query=values)


# --- PhoneTrack ---------------------------------------------------------------------------------


def test_one_point_comes_as_parameters_with_speed_in_metres_a_second() -> None:
    text = (
        f"lat=50.73&lon=7.09&alt=61&timestamp={TIME_S}&acc=14&bat=72&sat=9&useragent=me"
        "&speed=6.4&bearing=141"
    )
    for context, body in ((query(text), b""), (query(""), text.encode())):
        (fix,) = phonetrack.parse(body, context).fixes
        assert (fix.device, fix.lat, fix.lon, fix.time) == (
            *("mika/bike", 50.73, 7.09),
            TIME_S * 1000,
        )
        assert (fix.accuracy, fix.altitude, fix.speed, fix.course) == (14, 61, 6.4, 141)
        assert fix.battery == 72
        assert fix.attributes == {"sat": "9", "useragent": "me"}


@pytest.mark.parametrize("name", ["time", "datetime"])
def test_times_have_three_names_and_two_forms(name: str) -> None:
    given = {"time": str(TIME_S), "datetime": "2025-11-01T11:00:05+00:00"}[name]
    (fix,) = phonetrack.parse(
        f"lat=1&lon=2&{name}={given.replace('+', '%2B')}".encode(), query("")
    ).fixes
    assert fix.time == TIME_S * 1000


def test_what_an_app_does_not_know_it_leaves_as_a_placeholder() -> None:
    (fix,) = phonetrack.parse(b"", query("lat=1&lon=2&acc=%25ACC&bat=&speed=-1")).fixes
    assert (fix.accuracy, fix.battery, fix.speed, fix.time) == (None, None, None, RECEIVED)


def test_many_points_are_rows_and_milliseconds_are_recognised() -> None:
    points = [
        [50.73, 7.09, TIME_S, 61, 14, 72, 9, "me", 6.4, 141],
        [50.74, 7.1, TIME_S * 1000 + 1],
        [95, 0, TIME_S],
        "no row",
    ]
    body = json.dumps({"points": points}).encode()
    parsed = phonetrack.parse(body, query(""))
    assert [fix.time for fix in parsed.fixes] == [TIME_S * 1000, TIME_S * 1000 + 1]
    assert parsed.fixes[0].speed == 6.4
    assert parsed.rejected_at == [2, 3]
    as_form = phonetrack.parse(f"points={json.dumps(points)}".encode(), query(""))
    assert [fix.id for fix in as_form.fixes] == [fix.id for fix in parsed.fixes]
    many = phonetrack.parse(json.dumps({"points": [1] * (BATCH_ITEMS_MAX + 1)}).encode(), query(""))
    assert many.refused is not None


@pytest.mark.parametrize("body", [b'{"points":7}', b"points=[", b"lat=1", b"{", b"[]"])
def test_what_is_no_point_is_rejected(body: bytes) -> None:
    parsed = phonetrack.parse(body, query(""))
    assert not parsed.fixes
    assert len(parsed.rejected) == 1


# --- OpenGTS ------------------------------------------------------------------------------------

BARE = "$GPRMC,110005.00,A,5044.0046,N,00705.8866,W,12.4,141.0,011125,,"


def summed(sentence: str) -> str:
    """Return a sentence with its checksum: all characters after the $, combined by XOR."""
    return f"{sentence}*{functools.reduce(operator.xor, sentence[1:].encode()):02X}"


SENTENCE = summed(BARE)


def test_a_gprmc_sentence_is_degrees_minutes_knots_and_utc() -> None:
    (fix,) = opengts.parse(b"", query(f"dev=x&acct=a&gprmc={SENTENCE}&alt=61&batt=72", None)).fixes
    assert (fix.device, fix.time) == ("mika/x", TIME_S * 1000)
    assert fix.lat == pytest.approx(50.7334100, abs=1e-7)
    assert fix.lon == pytest.approx(-7.0981100, abs=1e-7)
    assert fix.speed == pytest.approx(12.4 * 1852 / 3600, abs=1e-4)
    assert (fix.course, fix.altitude, fix.battery) == (141, 61, 72)


def test_without_satellites_it_is_no_fix() -> None:
    parsed = opengts.parse(b"", query(f"gprmc={summed(BARE.replace(',A,', ',V,'))}"))
    assert not parsed.fixes
    assert [event.type for event in parsed.events] == ["status"]


@pytest.mark.parametrize(
    "sentence",
    ["", "$GPGGA,1", BARE.replace("5044", "x"), BARE.replace("011125", "991325"),
     BARE.replace("110005.00", "")],
)  # fmt: skip
def test_other_sentences_are_rejected(sentence: str) -> None:
    parsed = opengts.parse(b"", query(f"id=x&gprmc={sentence}"))
    assert not parsed.fixes
    assert len(parsed.rejected) == 1


@pytest.mark.parametrize("checksum", ["*00", "*0", "*ZZ", "*000"])
def test_a_sentence_with_a_wrong_checksum_is_refused_and_one_without_any_is_not(
    checksum: str,
) -> None:
    parsed = opengts.parse(b"", query(f"id=x&gprmc={BARE}{checksum}"))
    assert not parsed.fixes
    (rejected,) = parsed.rejected
    assert rejected.reason.startswith(f"gprmc has the checksum {checksum}")
    assert SENTENCE[-3:] in rejected.reason
    assert len(opengts.parse(b"", query(f"id=x&gprmc={BARE}")).fixes) == 1
    small = SENTENCE[:-2] + SENTENCE[-2:].lower()
    assert len(opengts.parse(b"", query(f"id=x&gprmc={small}")).fixes) == 1


# --- uLogger ------------------------------------------------------------------------------------


def test_a_position_of_ulogger_belongs_to_a_track() -> None:
    form = (
        f"action=addpos&trackid=7&lat=50.73&lon=7.09&time={TIME_S}&altitude=61&speed=6.4"
        "&bearing=141&accuracy=14&provider=gps&comment=hello"
    )
    (fix,) = ulogger.parse(form.encode(), query("", None)).fixes
    assert (fix.device, fix.time, fix.speed) == ("mika/ulogger", TIME_S * 1000, 6.4)
    assert fix.attributes == {"trackid": "7", "provider": "gps", "comment": "hello"}


def test_a_position_with_a_picture_comes_in_parts() -> None:
    body = b"".join(
        b'--edge\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n' % part
        for part in (
            (b"action", b"", b"addpos"),
            (b"lat", b"", b"50.73"),
            (b"lon", b"", b"7.09"),
            (b"time", b"", str(TIME_S).encode()),
            (b"image", b'; filename="x.jpg"\r\nContent-Type: image/jpeg', b"\xff\xd8\xff"),
        )
    )
    context = Context(
        *("mika", None, RECEIVED), headers={"Content-Type": "multipart/form-data; boundary=edge"}
    )
    (fix,) = ulogger.parse(body + b"--edge--\r\n", context).fixes
    assert (fix.lat, fix.attributes) == (50.73, None)
    assert len(ulogger.parse(b"no parts", context).rejected) == 1


def test_a_track_is_an_event_and_signing_in_is_nothing() -> None:
    (event,) = ulogger.parse(b"action=addtrack&track=Home", query("", None)).events
    assert event.attributes == {"track": "Home", "trackid": RECEIVED // 1000}
    parsed = ulogger.parse(b"action=auth&user=a&pass=b", query("", None))
    assert (parsed.fixes, parsed.events, parsed.rejected) == ([], [], [])
    for bad in (b"action=dance", b"action=addpos&lat=1&lon=2", b"action=addpos&time=1&lat=x"):
        assert len(ulogger.parse(bad, query("", None)).rejected) == 1
