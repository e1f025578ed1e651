"""Selects the reader of a file by the file's content."""

from __future__ import annotations

import re
from typing import Final

from waylog.replay.readers import (
    csv,
    fit,
    geojson,
    google,
    gpx,
    kml,
    nmea,
    owntracks,
    photo,
    tcx,
)
from waylog.replay.readers.recorded import Reader
from waylog.replay.readers.source import Source, UnreadableTrack

READERS: Final[dict[str, Reader]] = {
    "gpx": gpx.read,
    "kml": kml.read,
    "geojson": geojson.read_collection,
    "geojson-lines": geojson.read_lines,
    "overland": geojson.read_overland,
    "google-records": google.read_records,
    "google-semantic": google.read_semantic_history,
    "google-android": google.read_android,
    "google-ios": google.read_ios,
    "owntracks": owntracks.read,
    "csv": csv.read,
    "tcx": tcx.read,
    "fit": fit.read,
    "nmea": nmea.read,
    "photo": photo.read,
}
_ROOTS: Final = {"gpx": "gpx", "kml": "kml", "TrainingCenterDatabase": "tcx"}

_ROOT_ELEMENT: Final = re.compile(rb"<(?:[A-Za-z_][\w.-]*:)?([A-Za-z_]\w*)[\s/>]")
_RECORDER_LINE: Final = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]+Z[ \t]+\S")

# The first match decides, so specific signs come before general ones.
_JSON_SIGNS: Final = (
    ("google-semantic", re.compile(rb'^\{\s*"timelineObjects"')),
    ("google-android", re.compile(rb'"(semanticSegments|rawSignals|userLocationProfile)"\s*:')),
    ("google-records", re.compile(rb'"(latitudeE7|timestampMs)"\s*:')),
    ("owntracks", re.compile(rb'"_type"\s*:')),
    ("overland", re.compile(rb'^\{\s*("[a-z_]+"\s*:\s*"[^"]*"\s*,\s*)*"locations"\s*:')),
    (
        "google-ios",
        re.compile(rb'^\[\s*\{\s*"(startTime|endTime|visit|activity|timelinePath)"\s*:'),
    ),
    ("geojson", re.compile(rb'"FeatureCollection"')),
    ("geojson-lines", re.compile(rb'"type"\s*:\s*"Feature"')),
)


def detect(head: bytes) -> str | None:
    """Return the name of the format whose files begin like this; a key of READERS, or None."""
    if fit.is_fit(head):
        return "fit"
    if photo.is_photo(head):
        return "photo"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"<"):
        root = _ROOT_ELEMENT.search(re.sub(rb"<[!?].*?>", b"", text, flags=re.DOTALL))
        name = root.group(1).decode() if root else ""
        return _ROOTS.get(name)
    if text.startswith((b"{", b"[")):
        return next((name for name, sign in _JSON_SIGNS if sign.search(text)), None)
    if _RECORDER_LINE.match(text):
        return "owntracks"
    if csv.has_header(text):
        return "csv"
    return "nmea" if nmea.is_nmea(text) else None


class UnknownFormat(UnreadableTrack):
    """A file is not of a format that is known here."""


def reader_of(source: Source) -> Reader:
    """Return the reader for a file; raises UnknownFormat, also for an empty one."""
    head = source.head()
    if not head.removeprefix(b"\xef\xbb\xbf").strip(b"\0 \t\r\n"):
        raise UnknownFormat(f"{source} is empty")
    name = detect(head)
    if name is None:
        raise UnknownFormat(
            f"{source}: not a format known here: GPX, KML/KMZ, GeoJSON, CSV with a header that "
            "names latitude, longitude and time, Google Timeline, OwnTracks .rec, Overland, TCX, "
            "FIT, NMEA 0183, or a photo"
        )
    return READERS[name]
