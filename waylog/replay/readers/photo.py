"""Reads where and when a photo was taken, as its EXIF says (JPEG, HEIC, TIFF)."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from waylog.replay.readers.recorded import (
    RecordedFix,
    Skipped,
    count_no_place,
    on_earth,
    others_of,
)
from waylog.replay.readers.source import Source, UnreadableTrack

#: The device of photos: they are of a camera, whatever the names of their files.
DEVICE: Final = "photos"
#: A larger file is no photo; it is held in memory, since parts of it are looked for.
_BYTES_MAX: Final = 256 * 1024 * 1024
_MAGIC: Final = (b"\xff\xd8\xff", b"II*\0", b"MM\0*")
_BRANDS: Final = (b"heic", b"heix", b"mif1", b"msf1", b"avif", b"hevc")
_EXIF_TIME: Final = "%Y:%m:%d %H:%M:%S"
_TIMES: Final = (
    ("EXIF DateTimeOriginal", "EXIF OffsetTimeOriginal"),
    ("EXIF DateTimeDigitized", "EXIF OffsetTimeDigitized"),
    ("Image DateTime", "EXIF OffsetTime"),
)


def is_photo(head: bytes) -> bool:
    """Tell whether a file that begins like this is a photo."""
    return head.startswith(_MAGIC) or (head[4:8] == b"ftyp" and head[8:12] in _BRANDS)


def read(source: Source, skipped: Skipped) -> Iterator[RecordedFix]:
    """Yield the photo's fix, if it has a place and a time in a known zone."""
    import exifread
    from exifread.core.exceptions import ExifError

    with source.open() as stream:
        content = stream.read(_BYTES_MAX + 1)
    if len(content) > _BYTES_MAX:
        raise UnreadableTrack(f"{source}: a photo of more than {_BYTES_MAX} bytes")
    try:
        tags = exifread.process_file(io.BytesIO(content), details=False)
        place = _place(tags)
        time = _time(tags)
    except (ExifError, ValueError, LookupError, TypeError, ArithmeticError,
            AttributeError, AssertionError, struct.error) as error:  # fmt: skip
        # The library lets damage show itself as errors of Python.
        raise UnreadableTrack(f"{source}: its EXIF is damaged: {error}") from error
    if place is None or not on_earth(*place[:2]):
        count_no_place(skipped, *(place[:2] if place else (None, None)))
        return
    if time is None:
        skipped["no time, or none in a known zone"] += 1
        return
    lat, lon, altitude = place
    camera = " ".join(
        text for name in ("Image Make", "Image Model") if (text := str(tags.get(name, "")).strip())
    )
    yield RecordedFix(
        time=time,
        lat=lat,
        lon=lon,
        device=DEVICE,
        altitude=altitude,
        attributes=others_of({"photo": source.file_name, "camera": camera}, ()),
    )


def _place(tags: dict[str, Any]) -> tuple[float, float, float | None] | None:
    lat = _degrees(tags, "GPS GPSLatitude", "S")
    lon = _degrees(tags, "GPS GPSLongitude", "W")
    if lat is None or lon is None:
        return None
    altitude = None
    if "GPS GPSAltitude" in tags:
        altitude = _decimal(tags["GPS GPSAltitude"].values[0])
        reference = tags.get("GPS GPSAltitudeRef")
        if altitude is not None and reference is not None and reference.values[0] == 1:
            altitude = -altitude
    return lat, lon, altitude


def _degrees(tags: dict[str, Any], name: str, negative: str) -> float | None:
    if name not in tags or f"{name}Ref" not in tags:
        return None
    parts = [_decimal(each) for each in tags[name].values]
    if len(parts) != 3 or None in parts:
        return None
    degrees, minutes, seconds = (part or 0.0 for part in parts)
    value = round(degrees + minutes / 60 + seconds / 3600, 7)
    return -value if str(tags[f"{name}Ref"].values)[:1].upper() == negative else value


def _decimal(ratio: Any) -> float | None:
    """Return a rational number; None for 0/0, which cameras write for what they do not know."""
    try:
        return float(ratio)
    except ZeroDivisionError:
        return None


def _time(tags: dict[str, Any]) -> int | None:
    """Return the time (ms) of the satellites, else that of the camera if its zone is known."""
    if "GPS GPSDate" in tags and "GPS GPSTimeStamp" in tags:
        parts = [_decimal(each) for each in tags["GPS GPSTimeStamp"].values]
        if len(parts) == 3 and None not in parts:
            hours, minutes, seconds = (part or 0.0 for part in parts)
            day = datetime.strptime(str(tags["GPS GPSDate"].values).strip("\0 "), "%Y:%m:%d")
            moment = day.replace(tzinfo=UTC) + timedelta(
                hours=hours, minutes=minutes, seconds=seconds
            )
            return round(moment.timestamp() * 1000)
    for name, offset in _TIMES:
        if name in tags and offset in tags:
            text = f"{str(tags[name].values)[:19]} {tags[offset].values}".strip("\0 ")
            moment = datetime.strptime(text, f"{_EXIF_TIME} %z")
            return round(moment.timestamp() * 1000)
    return None
