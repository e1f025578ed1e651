"""A track as GeoJSON (RFC 7946), GPX 1.1, KML 2.2 and CSV (RFC 4180)."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

import msgspec

from gateway.track_store import TrackPoint


def geojson(device: str, points: Sequence[TrackPoint]) -> bytes:
    """One LineString with its times in `coordTimes`, as other tools write and read them.

    A single point is a Point: a line has two (RFC 7946, section 3.1.4).
    """
    coordinates = [
        [point.lon, point.lat] if point.altitude is None else [point.lon, point.lat, point.altitude]
        for point in points
    ]
    geometry: dict[str, object] | None = None
    if len(coordinates) == 1:
        geometry = {"type": "Point", "coordinates": coordinates[0]}
    elif coordinates:
        geometry = {"type": "LineString", "coordinates": coordinates}
    feature = {
        "type": "Feature",
        "geometry": geometry,
        "properties": {
            "device": device,
            "coordTimes": [_iso(point.time) for point in points],
            "times": [point.time for point in points],
            "speeds": [point.speed for point in points],
            "accuracies": [point.accuracy for point in points],
        },
    }
    return msgspec.json.encode(
        {"type": "FeatureCollection", "features": [feature] if points else []}
    )


def gpx(device: str, points: Sequence[TrackPoint]) -> bytes:
    """One track with one segment; speed and course in Garmin's TrackPointExtension v2."""
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<gpx version="1.1" creator="Waylog" xmlns="http://www.topografix.com/GPX/1/1" '
        'xmlns:gpxtpx="http://www.garmin.com/xmlschemas/TrackPointExtension/v2">',
        f"<trk><name>{escape(device)}</name><trkseg>",
    ]
    for point in points:
        elevation = "" if point.altitude is None else f"<ele>{point.altitude:g}</ele>"
        measured = "".join(
            f"<gpxtpx:{name}>{value:g}</gpxtpx:{name}>"
            for name, value in (("speed", point.speed), ("course", point.course))
            if value is not None
        )
        extensions = (
            "<extensions><gpxtpx:TrackPointExtension>"
            f"{measured}</gpxtpx:TrackPointExtension></extensions>"
            if measured
            else ""
        )
        lines.append(
            f'<trkpt lat="{point.lat:.7f}" lon="{point.lon:.7f}">'
            f"{elevation}<time>{_iso(point.time)}</time>{extensions}</trkpt>"
        )
    lines.append("</trkseg></trk></gpx>\n")
    return "\n".join(lines).encode()


def kml(device: str, points: Sequence[TrackPoint]) -> bytes:
    """One gx:Track: times first, then as many positions."""
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<kml xmlns="http://www.opengis.net/kml/2.2" '
        'xmlns:gx="http://www.google.com/kml/ext/2.2"><Document>',
        f"<name>{escape(device)}</name><Placemark><name>{escape(device)}</name><gx:Track>",
        *(f"<when>{_iso(point.time)}</when>" for point in points),
        *(
            f"<gx:coord>{point.lon:.7f} {point.lat:.7f} {point.altitude or 0:g}</gx:coord>"
            for point in points
        ),
        "</gx:Track></Placemark></Document></kml>\n",
    ]
    return "\n".join(lines).encode()


def comma_separated(device: str, points: Sequence[TrackPoint]) -> bytes:
    """A header and a line a point; what is not known is empty."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["device", "time", *TrackPoint._fields[1:]])
    # A spreadsheet takes what begins with these for a formula.
    name = f"'{device}" if device[:1] in ("=", "+", "-", "@") else device
    for point in points:
        values = ["" if value is None else value for value in point[1:]]
        writer.writerow([name, _iso(point.time), *values])
    return text.getvalue().encode()


class TrackFormat(NamedTuple):
    """A format of `GET /v1/devices/{device}/track`."""

    encode: Callable[[str, Sequence[TrackPoint]], bytes]
    content_type: str
    suffix: str


FORMATS: Final = {
    "geojson": TrackFormat(geojson, "application/geo+json", "geojson"),
    "gpx": TrackFormat(gpx, "application/gpx+xml", "gpx"),
    "kml": TrackFormat(kml, "application/vnd.google-earth.kml+xml", "kml"),
    "csv": TrackFormat(comma_separated, "text/csv", "csv"),
}


def _iso(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
