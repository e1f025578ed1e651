"""The question that an export answers, as the process that makes it is told it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

#: Bytes of the length before each piece of points; a piece without points is the last.
LENGTH_BYTES: Final = 4


class ExportFormat(NamedTuple):
    """The headers of a format's answer; waylog.history.track_writers writes the body."""

    content_type: str
    suffix: str


FORMATS: Final = {
    "geojson": ExportFormat("application/geo+json", "geojson"),
    "gpx": ExportFormat("application/gpx+xml", "gpx"),
    "kml": ExportFormat("application/vnd.google-earth.kml+xml", "kml"),
    "csv": ExportFormat("text/csv", "csv"),
    "parquet": ExportFormat("application/vnd.apache.parquet", "parquet"),
}


_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]")


def plain_name(text: str) -> str:
    """Return a text as a part of a file's name that every system takes."""
    return _NOT_IN_NAMES.sub("_", text)


class ExportQuestion(msgspec.Struct, omit_defaults=True):
    """One line of JSON; the points from memory of each of `devices` follow it."""

    user: str
    devices: list[str]  # user/device
    format: str
    from_ms: int
    to_ms: int
    #: A zip archive, also with the user's other devices, visits, trips, and what follows.
    is_everything: bool = False
    #: Files by name, and places by device: JSON.
    documents: dict[str, msgspec.Raw] = {}
    places: dict[str, msgspec.Raw] = {}
