"""Encoders of tracks: GeoJSON (RFC 7946), GPX 1.1, KML 2.2 and CSV (RFC 4180).

Separate from `gateway.tracks.track_formats`, which a gateway imports at its start.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Final
from xml.sax.saxutils import escape

import msgspec

from gateway.friends.home_blur import Circle
from gateway.tracks.track_points import (
    MEASURED,
    Points,
    as_told,
    degrees,
    iso_times,
    measured,
    merged,
)


def _geojson(device: str, points: Points) -> bytes:
    """Encode one LineString with its times in `coordTimes`, as other tools do.

    A single point is encoded as a Point: a line has at least two (RFC 7946, section 3.1.4).
    """
    coordinates = _coordinates(points)
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
            "coordTimes": iso_times(points),
            "times": points["time"].tolist(),
            "speeds": measured(points, "speed"),
            "accuracies": measured(points, "accuracy"),
        },
    }
    return msgspec.json.encode(
        {"type": "FeatureCollection", "features": [feature] if coordinates else []}
    )


def _coordinates(points: Points) -> list[list[float]]:
    known = [degrees(points, "lon"), degrees(points, "lat")]
    altitudes = measured(points, "altitude")
    if altitudes.count(None) == len(altitudes):
        return list(map(list, zip(*known, strict=True)))
    return [
        [lon, lat] if altitude is None else [lon, lat, altitude]
        for lon, lat, altitude in zip(*known, altitudes, strict=True)
    ]


def _gpx(device: str, points: Points) -> bytes:
    """Encode one track with one segment; speed and course in Garmin's TrackPointExtension v2."""
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<gpx version="1.1" creator="Waylog" xmlns="http://www.topografix.com/GPX/1/1" '
        'xmlns:gpxtpx="http://www.garmin.com/xmlschemas/TrackPointExtension/v2">',
        f"<trk><name>{escape(device)}</name><trkseg>",
    ]
    names = ("altitude", "speed", "course")
    columns = [iso_times(points), degrees(points, "lat"), degrees(points, "lon")]
    rows = zip(*columns, *(measured(points, name) for name in names), strict=True)
    for time, lat, lon, altitude, speed, course in rows:
        elevation = "" if altitude is None else f"<ele>{altitude:g}</ele>"
        more = "".join(
            f"<gpxtpx:{name}>{value:g}</gpxtpx:{name}>"
            for name, value in (("speed", speed), ("course", course))
            if value is not None
        )
        extensions = (
            "<extensions><gpxtpx:TrackPointExtension>"
            f"{more}</gpxtpx:TrackPointExtension></extensions>"
            if more
            else ""
        )
        lines.append(
            f'<trkpt lat="{lat:.7f}" lon="{lon:.7f}">'
            f"{elevation}<time>{time}</time>{extensions}</trkpt>"
        )
    lines.append("</trkseg></trk></gpx>\n")
    return "\n".join(lines).encode()


def _kml(device: str, points: Points) -> bytes:
    """Encode one gx:Track: all times first, then all positions."""
    positions = degrees(points, "lon"), degrees(points, "lat"), measured(points, "altitude")
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<kml xmlns="http://www.opengis.net/kml/2.2" '
        'xmlns:gx="http://www.google.com/kml/ext/2.2"><Document>',
        f"<name>{escape(device)}</name><Placemark><name>{escape(device)}</name><gx:Track>",
        *(f"<when>{time}</when>" for time in iso_times(points)),
        *(
            f"<gx:coord>{lon:.7f} {lat:.7f} {altitude or 0:g}</gx:coord>"
            for lon, lat, altitude in zip(*positions, strict=True)
        ),
        "</gx:Track></Placemark></Document></kml>\n",
    ]
    return "\n".join(lines).encode()


def _comma_separated(device: str, points: Points) -> bytes:
    """Encode a header and a line per point; unknown values are empty."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["device", "time", "lat", "lon", *MEASURED])
    # A spreadsheet takes text that begins with these characters for a formula.
    name = f"'{device}" if device[:1] in ("=", "+", "-", "@") else device
    known = iso_times(points), degrees(points, "lat"), degrees(points, "lon")
    more = (measured(points, each) for each in MEASURED)
    writer.writerows(zip(repeat(name, len(points)), *known, *more, strict=True))
    return text.getvalue().encode()


_ENCODERS: Final[dict[str, Callable[[str, Points], bytes]]] = {
    "geojson": _geojson,
    "gpx": _gpx,
    "kml": _kml,
    "csv": _comma_separated,
}


def encode_track(
    name: str, device: str, tracks: Sequence[Points], circles: Sequence[Circle] | None = None
) -> bytes:
    """Return a track in one of the FORMATS, merged from several.

    `circles` hides homes from users other than the owner. Takes about 1 us per point.
    """
    points = merged(*tracks)
    if circles is not None:
        points = as_told(points, circles)
    return _ENCODERS[name](device, points)
