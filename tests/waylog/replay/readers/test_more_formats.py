"""Formats of watches, receivers and cameras, and the spellings of other programs."""

from __future__ import annotations

import gzip
import io
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import ExifTags, Image, TiffImagePlugin

from tests.waylog.replay.readers.fit_file import fit_file
from tests.waylog.replay.readers.test_readers import read, written
from waylog.replay.readers import fit
from waylog.replay.readers.detection import READERS, detect
from waylog.replay.readers.recorded import RecordedFix
from waylog.replay.readers.source import Source, UnreadableTrack

NOON = datetime(2025, 6, 1, 10, 0, tzinfo=UTC)
NOON_MS = 1748772000000


# ---- FIT ----


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("protocol", [0x00, 0x10, 0x20])
def test_fit_has_places_speeds_and_heart_rates(tmp_path: Path, zipped: bool, protocol: int) -> None:
    content = fit_file(
        (NOON, 47.1, -9.5, 455.4, 71, 2.5),
        (NOON, None, None, 455.4, 72, 0),
        (NOON, -33.9, 151.2, -12.2, 73, 0),
        protocol=protocol,
    )
    fixes, skipped = read(written(tmp_path, gzip.compress(content) if zipped else content))
    assert fixes == [
        RecordedFix(
            time=NOON_MS, lat=47.1, lon=-9.5, altitude=455.4, speed=2.5,
            attributes={"heart_rate": 71},
        ),
        RecordedFix(
            time=NOON_MS, lat=-33.9, lon=151.2, altitude=-12.2, speed=0,
            attributes={"heart_rate": 73},
        ),
    ]  # fmt: skip
    assert skipped == {"no coordinates": 1}


def test_a_cut_fit_gives_what_stands_before_the_cut(tmp_path: Path) -> None:
    content = fit_file(*[(NOON, 47.1, 9.5, 1, 70, 1)] * 10)
    fixes = []
    with pytest.raises(UnreadableTrack, match="damaged"):
        for fix in fit.read(Source(written(tmp_path, content[:-30])), Counter()):
            fixes.append(fix)
    assert len(fixes) == 8


# ---- TCX ----


def test_tcx_has_trackpoints_with_their_sensors(tmp_path: Path) -> None:
    fixes, skipped = read(
        written(
            tmp_path,
            """
            <?xml version="1.0"?><TrainingCenterDatabase
            xmlns="http://www.garmin.com/xmlschemas/TrainingCenterDatabase/v2"
            xmlns:x="http://www.garmin.com/xmlschemas/ActivityExtension/v2"><Activities>
            <Activity Sport="Biking"><Lap><Track>
            <Trackpoint><Time>2025-06-01T10:00:00.000Z</Time><Position>
            <LatitudeDegrees>47.1</LatitudeDegrees><LongitudeDegrees>9.5</LongitudeDegrees>
            </Position><AltitudeMeters>455.5</AltitudeMeters><HeartRateBpm><Value>71</Value>
            </HeartRateBpm><Extensions><x:TPX><x:Speed>2.5</x:Speed><x:Watts>180</x:Watts></x:TPX>
            </Extensions></Trackpoint>
            <Trackpoint><Time>2025-06-01T10:00:01Z</Time></Trackpoint>
            <Trackpoint><Position><LatitudeDegrees>47</LatitudeDegrees>
            <LongitudeDegrees>9</LongitudeDegrees></Position></Trackpoint>
            </Track></Lap></Activity></Activities></TrainingCenterDatabase>""",
        )
    )
    assert fixes == [
        RecordedFix(
            time=NOON_MS, lat=47.1, lon=9.5, altitude=455.5, speed=2.5,
            attributes={"HeartRateBpm": 71, "Watts": 180},
        )
    ]  # fmt: skip
    assert skipped == {"no coordinates": 1, "no time": 1}


# ---- NMEA 0183 ----


def sentence(text: str) -> str:
    """Return a sentence with its checksum: the exclusive or of its characters."""
    checksum = 0
    for character in text:
        checksum ^= ord(character)
    return f"${text}*{checksum:02X}\r\n"


RMC = "GPRMC,100000.00,A,4706.0000,N,00930.0000,W,10.0,45.5,010625,,,A"
GGA = "GPGGA,100000.00,4706.0000,N,00930.0000,W,1,08,0.9,455.4,M,47.0,M,,"


@pytest.mark.parametrize("order", [(RMC, GGA), (GGA, RMC)])
def test_nmea_has_a_fix_for_each_moment(tmp_path: Path, order: tuple[str, str]) -> None:
    log = "".join(sentence(text) for text in order)
    log += sentence("GPGSA,A,3,04,05,,09,12,,,24,,,,,2.5,1.3,2.1")
    log += "2025-06-01 10:00:01 " + sentence(RMC.replace("100000.00", "100001.00"))
    fixes, skipped = read(written(tmp_path, log))
    assert fixes == [
        RecordedFix(
            time=NOON_MS, lat=47.1, lon=-9.5, altitude=455.4, speed=5.144, course=45.5,
            attributes={"satellites": 8, "hdop": 0.9},
        ),
        RecordedFix(time=NOON_MS + 1000, lat=47.1, lon=-9.5, speed=5.144, course=45.5),
    ]  # fmt: skip
    assert not skipped


def test_what_nmea_leaves_out_is_counted(tmp_path: Path) -> None:
    void = RMC.replace(",A,47", ",V,47").replace("100000", "100002")
    log = (
        sentence(RMC)
        + sentence(void)
        + sentence(RMC).replace("4706", "4707")  # its checksum is wrong
        + sentence(GGA.replace("100000", "100003"))
        + sentence("GPRMC,,V,,,,,,,,,,N")
    )
    fixes, skipped = read(written(tmp_path, log))
    assert len(fixes) == 1
    assert skipped == {
        "no coordinates": 1,
        "damaged sentence": 2,
        "no date (a GGA without its RMC)": 1,
    }


# ---- photos ----


def photo(
    *, place: bool = True, satellites: bool = True, zone: str | None = None, kind: str = "JPEG"
) -> bytes:
    """Return a picture of one point with EXIF."""
    exif = Image.Exif()
    exif[ExifTags.Base.Make], exif[ExifTags.Base.Model] = "Example", "One"
    camera = exif.get_ifd(ExifTags.IFD.Exif)
    camera[ExifTags.Base.DateTimeOriginal] = "2025:06:01 12:00:00"
    if zone is not None:
        camera[ExifTags.Base.OffsetTimeOriginal] = zone
    gps = exif.get_ifd(ExifTags.IFD.GPSInfo)
    if place:
        gps[ExifTags.GPS.GPSLatitudeRef], gps[ExifTags.GPS.GPSLatitude] = "S", (33.0, 54.0, 36.0)
        gps[ExifTags.GPS.GPSLongitudeRef], gps[ExifTags.GPS.GPSLongitude] = "E", (151.0, 12.0, 0.0)
        gps[ExifTags.GPS.GPSAltitudeRef] = b"\x01"
        gps[ExifTags.GPS.GPSAltitude] = TiffImagePlugin.IFDRational(25, 2)
    if satellites:
        gps[ExifTags.GPS.GPSDateStamp] = "2025:06:01"
        gps[ExifTags.GPS.GPSTimeStamp] = (10.0, 0.0, 0.0)
    if kind == "TIFF":
        # EXIF is a TIFF file, with a mark before it.
        return exif.tobytes().removeprefix(b"Exif\0\0")
    file = io.BytesIO()
    Image.new("RGB", (1, 1)).save(file, kind, exif=exif)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_a_photo_is_a_fix_where_it_was_taken(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"IMG_1.{kind.lower()}"
    path.write_bytes(photo(kind=kind))
    ((fix,), skipped) = read(path)
    assert fix == RecordedFix(
        time=NOON_MS, lat=-33.91, lon=151.2, altitude=-12.5, device="photos",
        attributes={"photo": path.name, "camera": "Example One"},
    )  # fmt: skip
    assert not skipped


def test_a_camera_that_knows_its_zone_tells_the_time(tmp_path: Path) -> None:
    ((fix,), _) = read(written(tmp_path, photo(satellites=False, zone="+02:00")))
    assert fix.time == NOON_MS


def test_photos_without_a_place_or_a_known_time_are_counted(tmp_path: Path) -> None:
    _, skipped = read(written(tmp_path, photo(place=False)))
    assert skipped == {"no coordinates": 1}
    _, skipped = read(written(tmp_path, photo(satellites=False)))
    assert skipped == {"no time, or none in a known zone": 1}


# ---- spellings ----


@pytest.mark.parametrize(
    ("lat", "lon", "expected"),
    [
        ("52.52N", "13.405E", (52.52, 13.405)),
        ("S 33.91", "W151.2", (-33.91, -151.2)),
        ("52° 31' 12\" N", "13°24'18\"E", (52.52, 13.405)),
        ("52°31.2\u2032N", "013°24.3\u2032w", (52.52, -13.405)),
        ("52,52 n", "13,405 e", (52.52, 13.405)),
    ],
)
def test_degrees_may_have_their_hemisphere(
    tmp_path: Path, lat: str, lon: str, expected: tuple[float, float]
) -> None:
    quoted = ['"{}"'.format(each.replace('"', '""')) for each in (lat, lon)]
    fixes, _ = read(written(tmp_path, f"time;lat;lon\n2025-06-01T10:00:00Z;{';'.join(quoted)}\n"))
    assert (fixes[0].lat, fixes[0].lon) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("timestamp,latitudeE7,longitudeE7", "1748772000,525200000,-134050000"),
        ("timestamp,latitudeE7,longitudeE7", "1748772000,525200000,4160917296"),
        ("date,time,latitude,longitude", "2025-06-01,10:00:00,52.52,-13.405"),
        ("Time,Date,LATITUDE N/S,LONGITUDE E/W", "10:00:00,2025-06-01,52.52N,13.405W"),
    ],
)
def test_columns_may_be_spelled_otherwise(tmp_path: Path, header: str, row: str) -> None:
    fixes, skipped = read(written(tmp_path, f"{header}\n{row}\n"))
    assert [(each.lat, each.lon, each.time) for each in fixes] == [(52.52, -13.405, NOON_MS)]
    assert fixes[0].attributes is None
    assert not skipped


def test_recordings_of_owntracks_may_have_spaces(tmp_path: Path) -> None:
    line = '2025-06-01T10:00:00Z  *                 {"_type":"location","lat":1,"lon":2,"tst":5}\n'
    fixes, _ = read(written(tmp_path, line))
    assert [(each.lat, each.lon, each.time) for each in fixes] == [(1, 2, 5000)]


@pytest.mark.parametrize("before", ["\n", "\r\n  \n", "\ufeff\n", " " * 1_000])
def test_xml_may_begin_with_white_space(tmp_path: Path, before: str) -> None:
    content = (
        f'{before}<?xml version="1.0" encoding="UTF-8"?><gpx><trk><trkseg>'
        '<trkpt lat="1" lon="2"><time>2025-06-01T10:00:00Z</time></trkpt></trkseg></trk></gpx>'
    ).encode()
    fixes, _ = read(written(tmp_path, content))
    assert len(fixes) == 1


def test_times_of_a_kml_track_without_places_are_counted(tmp_path: Path) -> None:
    fixes, skipped = read(
        written(
            tmp_path,
            '<kml xmlns="http://www.opengis.net/kml/2.2" '
            'xmlns:gx="http://www.google.com/kml/ext/2.2"><gx:Track>'
            "<when>2025-06-01T10:00:00Z</when><when>2025-06-01T10:00:01Z</when>"
            "<when>2025-06-01T10:00:02Z</when><gx:coord>2 1 0</gx:coord></gx:Track></kml>",
        )
    )
    assert len(fixes) == 1
    assert +skipped == {"no coordinates": 2}


def test_what_is_no_track_is_none_of_the_new_formats() -> None:
    assert detect(b"\x0e\x10\x00\x00\x00\x00\x00\x00.FAT") is None
    assert detect(b"RIFF\0\0\0\0WEBPVP8X") is None
    assert detect(b"a $GPXYZ,1 in a text") is None


WHOLE = {
    "fit": fit_file((NOON, 47.1, -9.5, 455.4, 71, 2.5), (NOON, None, None, 1, 0, 0)),
    "photo": photo(),
    "nmea": "".join(map(sentence, (RMC, GGA, RMC))).encode(),
    "tcx": b"<Trackpoint><Time>2025-06-01T10:00:00Z</Time><Value>7</Value></Trackpoint>",
}


@settings(max_examples=300)
@given(name=st.sampled_from(sorted(WHOLE)), data=st.data())
def test_no_damage_makes_a_reader_fail_otherwise(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    content = bytearray(WHOLE[name])
    places = st.integers(0, len(content) - 1)
    for place, byte in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=6)):
        content[place] = byte
    begin, end = sorted((data.draw(places), data.draw(places)))
    if data.draw(st.booleans()):
        del content[begin:end]
    path = tmp_path_factory.mktemp("damaged") / "track"
    path.write_bytes(content)
    try:
        for fix in READERS[name](Source(path), Counter()):
            assert -90 <= fix.lat <= 90
            assert -180 <= fix.lon <= 180
    except UnreadableTrack:
        pass
