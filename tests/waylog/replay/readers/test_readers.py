"""Samples of each format from real apps, and small files with the formats' special cases."""

from __future__ import annotations

import gzip
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waylog.replay.readers.detection import READERS, detect, reader_of
from waylog.replay.readers.recorded import RecordedFix, Skipped
from waylog.replay.readers.source import Source, UnreadableTrack

SAMPLES = Path(__file__).parents[4] / "../shared/data/tracks"


def read(path: Path) -> tuple[list[RecordedFix], Skipped]:
    skipped: Skipped = Counter()
    source = Source(path)
    return list(reader_of(source)(source, skipped)), skipped


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "track"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("name", "detected", "fixes", "devices"),
    [
        ("formats/garmin.gpx", "gpx", 1, 1),
        ("formats/gpslogger_20250531.gpx.gz", "gpx", 2567, 1),
        ("formats/gpslogger_20250601.gpx.gz", "gpx", 2463, 1),
        ("formats/gpx_multiple_segments.gpx", "gpx", 43, 1),
        ("formats/google_records.json", "google-records", 95, 1),
        ("formats/google_semantic_history.json", "google-semantic", 6, 1),
        ("formats/google_timeline_android.json", "google-android", 107, 1),
        ("formats/google_timeline_ios.json", "google-ios", 100, 1),
        ("formats/overland.json", "overland", 1, 1),
        ("formats/owntracks_2024-03.rec", "owntracks", 9, 1),
        ("formats/posmo.csv", "csv", 1327, 1),
        ("ais_evergiven.csv.gz", "csv", 22_287, 256),
    ],
)
def test_files_of_real_apps_are_read_whole(
    name: str, detected: str, fixes: int, devices: int
) -> None:
    path = SAMPLES / name
    if not path.exists():
        pytest.skip(f"the sample {name} is not there")
    assert detect(Source(path).head()) == detected
    found, _ = read(path)
    assert len(found) == fixes
    assert len({fix.device for fix in found}) == devices


def test_gpx_keeps_zone_extensions_and_leaves_out_points_without_time(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """<?xml version="1.0"?><!-- a comment --><gpx xmlns="http://www.topografix.com/GPX/1/1"
        xmlns:x="urn:x"><wpt lat="1" lon="2"><time>2025-01-01T00:00:00Z</time></wpt><trk><trkseg>
        <trkpt lat="47.1" lon="9.5"><ele>455.5</ele><time>2025-06-01T10:00:00.5+02:00</time>
        <extensions><x:more><x:speed>2.5</x:speed><x:course>-1</x:course></x:more></extensions>
        </trkpt><trkpt lat="47.2" lon="9.5"/><trkpt lat="97" lon="9.5">
        <time>2025-06-01T10:00:00Z</time></trkpt></trkseg></trk></gpx>""",
    )
    fixes, skipped = read(path)
    assert fixes == [
        RecordedFix(time=1735689600000, lat=1.0, lon=2.0),
        RecordedFix(time=1748764800500, lat=47.1, lon=9.5, altitude=455.5, speed=2.5),
    ]
    assert skipped == {"no time": 1, "latitude 97 is out of range": 1}


GPX = """<?xml version="1.0" encoding="{encoding}"?><gpx xmlns="http://www.topografix.com/GPX/1/1">
<wpt lat="1" lon="2"><time>2025-06-01T10:00:00Z</time><name>Café ☕</name><sym>Flag</sym></wpt>
<wpt lat="5" lon="6"><name>without a time</name></wpt>
<rte><name>Way</name><rtept lat="3" lon="4"><time>2025-06-01T10:00:05Z</time></rtept></rte>
<trk><trkseg><trkpt lat="7" lon="8"><time>2025-06-01T10:00:10Z</time><sat>9</sat><extensions>
<hr>71</hr><name2>0049</name2></extensions></trkpt></trkseg></trk></gpx>"""


def test_gpx_has_waypoints_and_routes_with_times_and_what_describes_them(tmp_path: Path) -> None:
    fixes, skipped = read(written(tmp_path, GPX.format(encoding="UTF-8")))
    assert [(fix.lat, fix.lon, fix.time, fix.attributes) for fix in fixes] == [
        (1, 2, 1748772000000, {"name": "Café ☕", "sym": "Flag"}),
        (3, 4, 1748772005000, None),
        (7, 8, 1748772010000, {"sat": 9, "hr": 71, "name2": "0049"}),
    ]
    assert skipped == {"no time": 1}


CSV_TEXT = "time;lat;lon;Ort\n2025-06-01 10:00:00;47,1;9,5;Café ☕\n"
JSON_TEXT = (
    '{"type":"FeatureCollection","features":[{"type":"Feature","geometry":{"type":"Point",'
    '"coordinates":[9.5,47.1]},"properties":{"time":1748772000,"Ort":"Café ☕"}}]}'
)
RECORD_TEXT = '{"_type":"location","lat":47.1,"lon":9.5,"tst":1748772000,"Ort":"Café ☕"}\n'


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("text", [GPX, CSV_TEXT, JSON_TEXT, RECORD_TEXT])
def test_text_may_be_in_any_unicode_encoding(
    tmp_path: Path, text: str, encoding: str, zipped: bool
) -> None:
    declared = text.format(encoding=encoding[:6].upper()) if text == GPX else text
    content = declared.encode(encoding)
    fixes, _ = read(written(tmp_path, gzip.compress(content) if zipped else content))
    described = [fix.attributes for fix in fixes]
    name = "name" if text == GPX else "Ort"
    assert described[0] is not None
    assert described[0][name] == "Café ☕"
    assert len(fixes) == (3 if text == GPX else 1)


def test_what_a_file_says_beside_the_fix_becomes_its_attributes(tmp_path: Path) -> None:
    collection = """{"type":"FeatureCollection","features":[
        {"type":"Feature","geometry":{"type":"LineString","coordinates":[[9.6,47.2],[9.7,47.3]]},
         "properties":{"coordTimes":["2025-06-01T10:00:05Z","2025-06-01T10:00:06Z"],
          "speeds":[1.5,null],"heart":[71,72],"name":"Walk"}}]}"""
    fixes, _ = read(written(tmp_path, collection))
    assert [(fix.speed, fix.attributes) for fix in fixes] == [
        (1.5, {"heart": 71, "name": "Walk"}),
        (None, {"heart": 72}),
    ]
    fixes, _ = read(written(tmp_path, "time,lat,lon,steps,note\n1748772000,47,9,12,'=A1\n"))
    assert fixes[0].attributes == {"steps": 12, "note": "=A1"}


def test_gpx_does_not_resolve_entities(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("2025-06-01T10:00:00Z")
    path = written(
        tmp_path,
        f"""<?xml version="1.0"?><!DOCTYPE gpx [<!ENTITY e SYSTEM "{secret.as_uri()}">]><gpx>
        <trk><trkseg><trkpt lat="1" lon="2"><time>&e;</time></trkpt></trkseg></trk></gpx>""",
    )
    fixes, skipped = read(path)
    assert not fixes
    assert skipped["no time"] == 1


def test_a_damaged_gpx_gives_what_stands_before_the_damage(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        '<gpx><trk><trkseg><trkpt lat="1" lon="2"><time>2025-06-01T10:00:00Z</time></trkpt><trk',
    )
    reader = READERS["gpx"](Source(path), Counter())
    assert next(reader).lat == 1.0
    with pytest.raises(UnreadableTrack, match="track: "):
        next(reader)


def test_kmz_with_tracks_and_placemarks_is_read(tmp_path: Path) -> None:
    path = tmp_path / "walk.kmz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images/a.png", b"x" * 9999)
        archive.writestr(
            "doc.kml",
            """<?xml version="1.0"?><kml xmlns="http://www.opengis.net/kml/2.2"
            xmlns:gx="http://www.google.com/kml/ext/2.2"><Document><Placemark><gx:Track>
            <when>2025-06-01T10:00:00Z</when><when>2025-06-01T10:00:05Z</when>
            <gx:coord>9.5 47.1 400</gx:coord><gx:coord>9.6 47.2</gx:coord></gx:Track></Placemark>
            <Placemark><TimeStamp><when>2025-06-01T11:00:00Z</when></TimeStamp>
            <Point><coordinates>9.7,47.3,0</coordinates></Point></Placemark>
            <Placemark><LineString><coordinates>1,2 3,4</coordinates></LineString></Placemark>
            </Document></kml>""",
        )
    fixes, skipped = read(path)
    assert [(fix.time, fix.lat, fix.lon, fix.altitude) for fix in fixes] == [
        (1748772000000, 47.1, 9.5, 400.0),
        (1748772005000, 47.2, 9.6, None),
        (1748775600000, 47.3, 9.7, 0.0),
    ]
    assert skipped["no time"] == 2


def test_geojson_has_points_lines_and_their_times(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """{"type":"FeatureCollection","features":[
        {"type":"Feature","geometry":{"type":"Point","coordinates":[9.5,47.1,400]},
         "properties":{"timestamp":1748772000,"speed":-1,"device_id":7}},
        {"type":"Feature","geometry":{"type":"LineString","coordinates":[[9.6,47.2],[9.7,47.3]]},
         "properties":{"coordTimes":["2025-06-01T10:00:05Z"]}},
        {"type":"Feature","geometry":{"type":"MultiLineString","coordinates":[[[9.6,47.2]]]},
         "properties":{"coordTimes":[[1748772000123]]}},
        {"type":"Feature","geometry":null,"properties":null}]}""",
    )
    fixes, skipped = read(path)
    assert fixes == [
        RecordedFix(time=1748772000000, lat=47.1, lon=9.5, device="7", altitude=400.0),
        RecordedFix(time=1748772005000, lat=47.2, lon=9.6),
        RecordedFix(time=1748772000123, lat=47.2, lon=9.6),
    ]
    assert skipped == {"no time": 1, "not a point or line": 1}


def test_geojson_may_have_a_feature_a_line(tmp_path: Path) -> None:
    line = (
        '{"type":"Feature","geometry":{"type":"Point","coordinates":[9.5,47.1]},'
        '"properties":{"time":"2025-06-01T10:00:00Z"}}\n'
    )
    fixes, skipped = read(written(tmp_path, line + "broken\n\n" + line))
    assert len(fixes) == 2
    assert skipped == {"not JSON": 1}


def test_csv_with_semicolons_decimal_commas_and_a_mark_is_read(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "\ufeffTime;Latitude;Longitude;Speed_kmh;Alt;Batt\n"
        "01.06.2025 10:00:00;47,1;9,5;36;-3,5;80\n"
        '"2025-06-01 10:00:05";47.2;9.6;-1;;\n'
        "later;47.2;9.6;;;\n1;2\n",
    )
    fixes, skipped = read(path)
    assert fixes == [
        RecordedFix(time=1748772000000, lat=47.1, lon=9.5, speed=10.0, altitude=-3.5, battery=80.0),
        RecordedFix(time=1748772005000, lat=47.2, lon=9.6),
    ]
    assert skipped == {"no time": 1, "row too short": 1}


def test_a_column_id_names_devices_only_if_it_repeats(tmp_path: Path) -> None:
    header = "id,time,lat,lon\n"
    rows = "".join(f"{number},{1748772000 + number},47,9\n" for number in range(5))
    fixes, _ = read(written(tmp_path, header + rows))
    assert {fix.device for fix in fixes} == {None}
    ships = "".join(f"{number % 2},{1748772000 + number},47,9\n" for number in range(5))
    fixes, _ = read(written(tmp_path, header + ships))
    assert {fix.device for fix in fixes} == {"0", "1"}


def test_geolife_has_a_device_a_user_and_feet(tmp_path: Path) -> None:
    text = (
        "uid,lat,lon,alt_ft,ts\n000,39.984702,116.318417,492,2008-10-23T02:53:04Z\n"
        "001,39.9,116.3,-777,2008-10-23T02:53:04Z\n"
    )
    fixes, _ = read(written(tmp_path, gzip.compress(text.encode())))
    assert [(fix.device, fix.altitude) for fix in fixes] == [("000", 149.96), ("001", None)]


def test_old_google_records_may_have_wrapped_integers(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        '{"locations":[{"latitudeE7":4294967296,"longitudeE7":3558773549,'
        '"timestampMs":"1366007486860","accuracy":12}]}',
    )
    fixes, _ = read(path)
    assert [(fix.lat, fix.lon, fix.time, fix.accuracy) for fix in fixes] == [
        (0.0, -73.6193747, 1366007486860, 12.0)
    ]


def test_owntracks_records_have_speed_in_kmh_and_skip_what_is_not_a_fix(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        '2025-06-01T10:00:00Z\t*                 \t{"_type":"location","lat":47.1,"lon":9.5,'
        '"tst":1748772000,"vel":36,"batt":50,"bs":2,"topic":"owntracks/mika/pixel 8"}\n'
        '2025-06-01T10:00:00Z\tlwt\t{"_type":"lwt","tst":1}\n',
    )
    fixes, skipped = read(path)
    assert fixes == [
        RecordedFix(
            time=1748772000000,
            lat=47.1,
            lon=9.5,
            device="pixel 8",
            speed=10.0,
            battery=50.0,
            charging=True,
        )
    ]
    assert skipped == {"not a fix": 1}


def test_what_is_no_track_is_refused_by_name(tmp_path: Path) -> None:
    for content in (b"\x89PNG\r\n", b"{}", b"[1,2]", b"a,b,c\n1,2,3\n", b"<html></html>"):
        with pytest.raises(UnreadableTrack, match="not a format known here"):
            read(written(tmp_path, content))


@pytest.mark.parametrize("content", ["", " \r\n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_an_empty_file_is_called_empty(tmp_path: Path, content: str | bytes) -> None:
    with pytest.raises(UnreadableTrack, match="track is empty"):
        read(written(tmp_path, content))


def test_places_that_are_off_the_earth_are_counted_by_their_values_within_a_bound(
    tmp_path: Path,
) -> None:
    rows = "".join(f"{lat},7,1748772000\n" for lat in range(91, 191)) + "1,200,1748772000\n"
    _, skipped = read(written(tmp_path, f"lat,lon,time\n{rows}x,7,1748772000\n"))
    assert skipped["latitude 91 is out of range"] == 1
    assert skipped["longitude is out of range"] == 1
    assert skipped["no coordinates"] == 1
    assert len(skipped) < 25
    assert skipped.total() == 102


def test_a_bearing_of_gpx_is_the_course_in_any_namespace(tmp_path: Path) -> None:
    point = '<trkpt lat="1" lon="2"><time>2025-01-01T00:00:00Z</time><extensions>{}</extensions>'
    said = ("<bearing>90</bearing>", "<course>90</course>", '<x:bearing xmlns:x="u">90</x:bearing>')
    points = "".join(point.format(each) + "</trkpt>" for each in said)
    both = point.format("<course>80</course><bearing>west</bearing>") + "</trkpt>"
    fixes, _ = read(written(tmp_path, f"<gpx><trk><trkseg>{points}{both}</trkseg></trk></gpx>"))
    assert [fix.course for fix in fixes] == [90, 90, 90, 80]
    assert [fix.attributes for fix in fixes] == [None, None, None, {"bearing": "west"}]


def test_a_speed_of_gpx_that_is_no_number_is_kept_as_it_came(tmp_path: Path) -> None:
    point = '<trkpt lat="1" lon="2"><time>2025-01-01T00:00:00Z</time><speed>fast</speed></trkpt>'
    fixes, _ = read(written(tmp_path, f"<gpx><trk><trkseg>{point}</trkseg></trk></gpx>"))
    assert [(fix.speed, fix.attributes) for fix in fixes] == [(None, {"speed": "fast"})]


def test_records_of_google_keep_what_they_say_beside_the_fix(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """{"locations":[{"latitudeE7":501000000,"longitudeE7":71000000,"accuracy":12,
        "timestamp":"2025-06-01T10:00:00Z","source":"WIFI","deviceTag":-7,"batteryCharging":"?",
        "platformType":"ANDROID","activity":[{"activity":[{"type":"STILL","confidence":62}]}]}]}""",
    )
    ((fix,), _) = read(path)
    assert (fix.device, fix.accuracy) == ("-7", 12)
    assert fix.attributes == {
        **{"source": "WIFI", "deviceTag": -7, "batteryCharging": "?", "platformType": "ANDROID"},
        "activity": [{"activity": [{"type": "STILL", "confidence": 62}]}],
    }


_TIMES = '"startTime":"2025-06-01T10:00:00Z","endTime":"2025-06-01T11:00:00Z"'


@pytest.mark.parametrize(
    ("begin", "place", "end"),
    [
        ('{"semanticSegments":[', '{"latLng":"50.1°, 7.1°"}', "]}"),
        ("[", '"geo:50.1,7.1"', "]"),
    ],
    ids=["android", "ios"],
)
def test_segments_of_google_keep_what_they_say_beside_their_fixes(
    tmp_path: Path, begin: str, place: str, end: str
) -> None:
    path = written(
        tmp_path,
        f"""{begin}{{{_TIMES},"visit":{{"hierarchyLevel":0,"probability":0.9,"topCandidate":
        {{"placeId":"p1","semanticType":"HOME","probability":0.7,"placeLocation":{place}}}}}}},
        {{{_TIMES},"activity":{{"start":{place},"end":{place},"distanceMeters":80,
        "topCandidate":{{"type":"WALKING","probability":0.4}}}}}}{end}""",
    )
    fixes, _ = read(path)
    visit = {
        **{"hierarchyLevel": 0, "probability": 0.9, "placeId": "p1", "semanticType": "HOME"},
        "topCandidate_probability": 0.7,
    }
    activity = {"distanceMeters": 80, "type": "WALKING", "probability": 0.4}
    assert [fix.attributes for fix in fixes] == [visit, visit, activity, activity]


def test_raw_positions_of_google_keep_their_source(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """{"rawSignals":[{"position":{"LatLng":"50.1°, 7.1°","accuracyMeters":9,"source":"GPS",
        "timestamp":"2025-06-01T10:00:00Z"}}]}""",
    )
    ((fix,), _) = read(path)
    assert (fix.accuracy, fix.attributes) == (9, {"source": "GPS"})


def test_semantic_history_of_google_keeps_places_and_activities(tmp_path: Path) -> None:
    duration = (
        '"duration":{"startTimestamp":"2025-06-01T10:00:00Z","endTimestamp":"2025-06-01T11:00:00Z"}'
    )
    path = written(
        tmp_path,
        f"""{{"timelineObjects":[{{"placeVisit":{{{duration},"placeConfidence":"HIGH_CONFIDENCE",
        "location":{{"latitudeE7":501000000,"longitudeE7":71000000,"placeId":"p1","name":"Home",
        "semanticType":"TYPE_HOME"}}}}}},{{"activitySegment":{{{duration},"distance":80,
        "activityType":"WALKING","startLocation":{{"latitudeE7":501000000,"longitudeE7":71000000,
        "sourceInfo":{{"deviceTag":5}}}},"endLocation":{{"latitudeE7":502000000,
        "longitudeE7":71000000}},"simplifiedRawPath":{{"points":[{{"latE7":501500000,
        "lngE7":71000000,"accuracyMeters":4,"timestamp":"2025-06-01T10:30:00Z"}}]}},
        "waypointPath":{{"waypoints":[{{"latE7":501500000,"lngE7":71000000}}]}}}}}}]}}""",
    )
    fixes, _ = read(path)
    visit = {
        **{"placeId": "p1", "name": "Home", "semanticType": "TYPE_HOME"},
        "placeConfidence": "HIGH_CONFIDENCE",
    }
    activity = {"distance": 80, "activityType": "WALKING"}
    way = {"waypointPath": {"waypoints": [{"latE7": 501500000, "lngE7": 71000000}]}}
    assert [fix.attributes for fix in fixes] == [
        *(visit, visit),
        activity | {"sourceInfo": {"deviceTag": 5}} | way,
        {"accuracyMeters": 4, "activityType": "WALKING"},
        activity,
    ]


def test_what_is_too_large_for_an_attribute_is_named_and_costs_no_other(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        '{"locations":[{"latitudeE7":0,"longitudeE7":0,"timestampMs":"1366007486860",'
        f'"wifi":"{"x" * 20_000}","source":"GPS"}}]}}',
    )
    ((fix,), _) = read(path)
    assert fix.attributes == {"source": "GPS", "omitted": ["wifi"]}


@pytest.mark.parametrize(
    "text",
    [
        "lat,lon,time,speed,Acc,alt\n1,2,1748772000,fast,NaN,high\n",
        '{"type":"FeatureCollection","features":[{"type":"Feature","geometry":{"type":"Point",'
        '"coordinates":[2,1]},"properties":{"time":1748772000,"speed":"fast","acc":"NaN",'
        '"alt":"high"}}]}',
    ],
    ids=["csv", "geojson"],
)
def test_what_is_no_number_where_one_is_expected_is_kept_as_it_came(
    tmp_path: Path, text: str
) -> None:
    ((fix,), _) = read(written(tmp_path, text))
    assert fix.attributes == {"speed": "fast", "alt": "high"}


def test_numbers_that_are_no_numbers_are_kept_of_owntracks_messages(tmp_path: Path) -> None:
    message = '{"_type":"location","lat":1,"lon":2,"tst":1748772000,"vel":"fast","acc":-1,"bs":[2]}'
    ((fix,), _) = read(written(tmp_path, f"2025-06-01T10:00:00Z\t*\t{message}\n"))
    assert fix.attributes == {"vel": "fast", "bs": [2]}


def test_a_second_name_of_the_same_number_is_kept(tmp_path: Path) -> None:
    feature = (
        '{"type":"Feature","geometry":{"type":"Point","coordinates":[2,1]},"properties":'
        '{"time":1748772000,"speed":3,"velocity":4,"battery_state":"odd","charging":"maybe"}}\n'
    )
    ((fix,), _) = read(written(tmp_path, feature))
    assert fix.speed == 3
    assert fix.attributes == {"velocity": 4, "battery_state": "odd", "charging": "maybe"}


@settings(max_examples=200)
@given(name=st.sampled_from(sorted(READERS)), data=st.data())
def test_no_content_makes_a_reader_fail_otherwise(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    fragments = [
        *(b"<gpx><trk><trkseg>", b'<trkpt lat="1" lon="2">', b"<time>1</time></trkpt>", b"</gpx>"),
        *(b"<kml>", b"<Placemark>", b"<Track>", b"<when>", b"<coord>1 2</coord>", b"</Track>"),
        *(b'{"features":[', b'{"locations":[', b'{"geometry":', b'{"type":"Point"', b"null", b"]"),
        *(b'"coordinates":[1,2]', b"{", b"}", b",", b":", b"[", b"1e999", b'"x"', b"\n", b"\xff"),
        *(b"lat,lon,time\n", b"1;2;3\n", b'"', b'"_type":"location"', b'"semanticSegments":['),
        *(b'{"visit":', b'{"topCandidate":', b'"placeLocation":"geo:1,2"', b'"startTime":"2025"'),
    ]
    content = b"".join(data.draw(st.lists(st.sampled_from(fragments) | st.binary(max_size=8))))
    path = tmp_path_factory.mktemp("fuzz") / "track"
    path.write_bytes(content)
    try:
        for fix in READERS[name](Source(path), Counter()):
            assert -90 <= fix.lat <= 90
    except UnreadableTrack as error:
        assert str(path) in str(error)
