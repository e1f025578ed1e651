"""The formats of `GET /v1/devices/{device}/track`."""

from __future__ import annotations

from typing import Final, NamedTuple


class TrackFormat(NamedTuple):
    """The headers of a format's response; `gateway.tracks.track_encoders` encodes the body."""

    content_type: str
    suffix: str


FORMATS: Final = {
    "geojson": TrackFormat("application/geo+json", "geojson"),
    "gpx": TrackFormat("application/gpx+xml", "gpx"),
    "kml": TrackFormat("application/vnd.google-earth.kml+xml", "kml"),
    "csv": TrackFormat("text/csv", "csv"),
}
