"""Tracks as files for other programs."""

from __future__ import annotations

import csv
import io
import json
from xml.etree import ElementTree

from gateway.tracks.track_encoders import encode_track
from gateway.tracks.track_points import Points, merged, unpacked
from gateway.views.track_store import pack_point

POINTS = unpacked(
    pack_point(1761994805120, 47.141, 9.5209, 455.5, 5, 1.5, 90)
    + pack_point(1761994806000, 47.142, 9.5210, None, None, None, None)
)
DEVICE = "ada/<phone> & co"


def encoded(name: str, points: Points = POINTS, device: str = DEVICE) -> bytes:
    return encode_track(name, device, points)


def test_geojson_has_longitude_first_and_times() -> None:
    (feature,) = json.loads(encoded("geojson"))["features"]
    assert feature["geometry"] == {
        "type": "LineString",
        "coordinates": [[9.5209, 47.141, 455.5], [9.521, 47.142]],
    }
    assert feature["properties"]["coordTimes"] == [
        *("2025-11-01T11:00:05.120Z", "2025-11-01T11:00:06.000Z")
    ]
    (single,) = json.loads(encoded("geojson", POINTS[:1]))["features"]
    assert single["geometry"]["type"] == "Point"
    assert json.loads(encoded("geojson", POINTS[:0]))["features"] == []


def test_gpx_is_read_by_gpxpy() -> None:
    import gpxpy

    track = gpxpy.parse(encoded("gpx").decode()).tracks[0]
    assert track.name == DEVICE
    first, second = track.segments[0].points
    assert (first.latitude, first.longitude, first.elevation) == (47.141, 9.5209, 455.5)
    assert first.time is not None
    assert first.time.isoformat() == "2025-11-01T11:00:05.120000+00:00"
    assert second.elevation is None


def test_kml_has_as_many_times_as_positions() -> None:
    root = ElementTree.fromstring(encoded("kml"))
    times = root.findall(".//{http://www.opengis.net/kml/2.2}when")
    places = root.findall(".//{http://www.google.com/kml/ext/2.2}coord")
    assert len(times) == len(places) == 2
    assert places[0].text == "9.5209000 47.1410000 455.5"


def test_csv_has_a_header_and_no_formulas() -> None:
    rows = list(csv.DictReader(io.StringIO(encoded("csv", device="=cmd/x").decode())))
    assert rows[0]["lat"] == "47.141"
    assert rows[1]["speed"] == ""
    assert rows[0]["device"] == "'=cmd/x"


def test_of_a_point_that_is_in_two_tracks_the_last_one_counts() -> None:
    later = unpacked(pack_point(1761994805120, 47.141, 9.5209, 400, 5, 1.5, 90))
    rows = csv.DictReader(io.StringIO(encode_track("csv", DEVICE, merged(POINTS, later)).decode()))
    assert [row["altitude"] for row in rows] == ["400.0", ""]
