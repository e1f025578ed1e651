"""Encoders of tracks: GeoJSON (RFC 7946), GPX 1.1, KML 2.2 and CSV (RFC 4180).

Separate from `gateway.tracks.track_formats`, which a gateway imports at its start.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Final

import msgspec

from gateway.tracks.track_points import MEASURED, Points, degrees, iso_times, measured
from waylog.track_elements import (
    GPX_HEAD,
    KML_HEAD,
    Place,
    geojson_feature,
    gpx_point,
    gpx_track,
    kml_track,
    xml_text,
)


def _geojson(device: str, points: Points) -> bytes:
    """Encode one feature with its times in `coordTimes`, as other tools do."""
    coordinates = _coordinates(points)
    features = []
    if coordinates:
        feature = geojson_feature(device, iso_times(points), coordinates, _more(points))
        feature["properties"]["times"] = points["time"].tolist()
        features = [feature]
    return msgspec.json.encode({"type": "FeatureCollection", "features": features})


def _coordinates(points: Points) -> list[list[float]]:
    known = [degrees(points, "lon"), degrees(points, "lat")]
    altitudes = measured(points, "altitude")
    if altitudes.count(None) == len(altitudes):
        return list(map(list, zip(*known, strict=True)))
    return [
        [lon, lat] if altitude is None else [lon, lat, altitude]
        for lon, lat, altitude in zip(*known, altitudes, strict=True)
    ]


def _more(points: Points) -> dict[str, list[float | None]]:
    """Return what was measured beside the altitude, which is a coordinate."""
    return {name: measured(points, name) for name in MEASURED if name != "altitude"}


def _places(points: Points) -> Iterator[Place]:
    return zip(
        degrees(points, "lat"), degrees(points, "lon"), measured(points, "altitude"), strict=True
    )


def _gpx(device: str, points: Points) -> bytes:
    """Encode one track with one segment."""
    more = _more(points)
    rows = zip(iso_times(points), _places(points), *more.values(), strict=True)
    lines = [
        gpx_point(time, place, dict(zip(more, values, strict=True)))
        for time, place, *values in rows
    ]
    return "\n".join(
        [f"{GPX_HEAD}{gpx_track(device)}<trkseg>", *lines, "</trkseg></trk></gpx>\n"]
    ).encode()


def _kml(device: str, points: Points) -> bytes:
    """Encode one gx:Track."""
    name = xml_text(device)
    track = kml_track(device, iso_times(points), list(_places(points)), _more(points))
    return (
        f"{KML_HEAD}<name>{name}</name><Placemark><name>{name}</name>{track}"
        "</Placemark></Document></kml>\n"
    ).encode()


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


def encode_track(name: str, device: str, points: Points) -> bytes:
    """Return a track in one of the FORMATS. Takes 1 to 7 us per point."""
    return _ENCODERS[name](device, points)
