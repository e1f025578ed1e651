"""Reads CSV with a header, in the dialects that trackers and data sets use.

Columns are found by their names, in any order and case. A GeoLife table (`uid,lat,lon,alt_ft,ts`)
is such a file, in which each `uid` is a device.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from waylog.replay.readers.recorded import (
    RecordedFix,
    Skipped,
    attributes_of,
    charging_of,
    count_no_place,
    id_of,
    on_earth,
    others_of,
    trigger_of,
    typed,
)
from waylog.replay.readers.source import Source, UnreadableTrack
from waylog.replay.readers.times import parse_time

_FOOT: Final = 0.3048  # m
_KNOT: Final = 1852 / 3600  # m/s

#: In each list the better name comes first; a name for another unit has a list of its own.
_ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "lat": ("lat", "latitude", "y", "lat_deg", "position_lat", "latitude_n/s"),
    "lon": ("lon", "lng", "long", "longitude", "x", "lon_deg", "position_long", "longitude_e/w"),
    "lat_e7": ("latitudee7", "late7", "lat_e7", "latitude_e7"),
    "lon_e7": ("longitudee7", "lnge7", "lone7", "lon_e7", "lng_e7", "longitude_e7"),
    "time": (
        *("time", "timestamp", "fixtime", "tst", "ts", "datetime", "date_time", "tracked_at"),
        *("recorded_at", "isotst", "time_utc", "utc", "devicetime", "date", "t"),
    ),
    "device": ("device", "device_id", "deviceid", "tid", "uid", "user_id", "userid", "mmsi"),
    "altitude": ("alt", "altitude", "ele", "elevation"),
    "altitude_ft": ("alt_ft", "altitude_ft"),
    "accuracy": ("acc", "accuracy", "horizontal_accuracy"),
    "vertical_accuracy": ("vac", "vertical_accuracy"),
    "speed": ("speed", "velocity", "speed_ms"),
    "speed_kmh": ("speed_kmh", "speed_kph", "vel", "kmh"),
    "speed_knots": ("speed_knots", "sog"),
    "course": ("course", "bearing", "cog", "heading", "direction"),
    "battery": ("batt", "battery"),
    "charging": ("charging",),
    "trigger": ("trigger",),
}
#: Columns of our own export beyond these. The gateway sets `user`, `received` and `source` itself.
_OF_OWN_EXPORT: Final = frozenset(("id", "device", "user", "received", "attributes"))
_SET_BY_GATEWAY: Final = frozenset(("user", "received", "source"))
_ROW_NUMBER_NAMES: Final = ("id",)
_ROWS_LOOKED_AT: Final = 200
_LINE_CHARACTERS_MAX: Final = 1024 * 1024


class _Columns(NamedTuple):
    lat: int
    lon: int
    #: Whether both are in ten-millionths of a degree.
    is_e7: bool
    time: int
    #: The date, where the time is one of the day.
    date: int | None
    optional: dict[str, int]
    others: dict[str, int]
    names: list[str]


def has_header(head: bytes) -> bool:
    """Return whether the first line names latitude, longitude and time."""
    line = head.split(b"\n", 1)[0].decode("utf-8-sig", "replace")
    try:
        names = next(csv.reader([line], delimiter=_delimiter(line)), [])
    except csv.Error:
        return False
    return _columns(names) is not None


def read(source: Source, skipped: Skipped) -> Iterator[RecordedFix]:
    """Yield a fix for each row, in the order of the file; raises UnreadableTrack."""
    try:
        with (
            source.open() as stream,
            io.TextIOWrapper(stream, "utf-8-sig", "replace", newline="") as text,
        ):
            yield from _read(text, skipped)
    except csv.Error as error:
        raise UnreadableTrack(f"{source}: {error}") from error


def _read(text: io.TextIOWrapper, skipped: Skipped) -> Iterator[RecordedFix]:
    header = text.readline(_LINE_CHARACTERS_MAX)
    delimiter = _delimiter(header)
    names = next(csv.reader([header], delimiter=delimiter), [])
    columns = _columns(names)
    if columns is None:
        raise csv.Error("the header does not name latitude, longitude and time")
    rows = csv.reader(text, delimiter=delimiter)
    first = list(itertools.islice(rows, _ROWS_LOOKED_AT))
    _use_id_as_device(columns, names, first)
    for row in itertools.chain(first, rows):
        fix = _fix(row, columns, skipped)
        if fix is not None:
            yield fix


def _delimiter(header: str) -> str:
    return max(",;\t|", key=header.count)


def _columns(names: list[str]) -> _Columns | None:
    normal = [name.strip().lower().replace(" ", "_") for name in names]
    found = {
        meaning: next(normal.index(alias) for alias in aliases if alias in normal)
        for meaning, aliases in _ALIASES.items()
        if any(alias in normal for alias in aliases)
    }
    if "time" not in found:
        # For example `ais_pos_timestamp`.
        similar = [name for name in normal if name.endswith(("timestamp", "_time", "datetime"))]
        if similar:
            found["time"] = normal.index(similar[0])
    for name in ("lat", "lon"):
        of_e7 = found.pop(f"{name}_e7", None)
        if of_e7 is not None and name not in found:
            found[f"{name}_e7"] = of_e7
    is_e7 = {"lat_e7", "lon_e7"} <= found.keys()
    lat, lon = (found.pop(f"{name}_e7" if is_e7 else name, None) for name in ("lat", "lon"))
    if lat is None or lon is None or "time" not in found:
        return None
    date = normal.index(_DATE) if _DATE in normal and normal.index(_DATE) != found["time"] else None
    if normal.count("attributes") == 1:
        found["attributes"] = normal.index("attributes")
    not_others = {"id"}
    if {*normal} >= _OF_OWN_EXPORT:
        found["id"] = normal.index("id")
        not_others |= _SET_BY_GATEWAY
    read = {lat, lon, date, *found.values()}
    others = {
        name.strip(): index
        for index, name in enumerate(names)
        if index not in read and normal[index] not in not_others and name.strip()
    }
    return _Columns(lat, lon, is_e7, found.pop("time"), date, found, others, names)


def _use_id_as_device(columns: _Columns, names: list[str], rows: list[list[str]]) -> None:
    """Use a column `id` as the device if its values repeat; else it numbers the rows."""
    normal = [name.strip().lower() for name in names]
    column = next((normal.index(name) for name in _ROW_NUMBER_NAMES if name in normal), None)
    if column is None or "device" in columns.optional:
        return
    values = [row[column] for row in rows if len(row) > column]
    if len(set(values)) < len(values):
        columns.optional["device"] = column


def _fix(row: list[str], columns: _Columns, skipped: Skipped) -> RecordedFix | None:
    if not row:
        return None
    try:
        lat, lon, time = row[columns.lat], row[columns.lon], row[columns.time]
    except IndexError:
        skipped["row too short"] += 1
        return None
    lat_deg, lon_deg = _degrees(lat, columns), _degrees(lon, columns)
    if lat_deg is None or lon_deg is None or not on_earth(lat_deg, lon_deg):
        count_no_place(skipped, lat_deg, lon_deg)
        return None
    try:
        fix = RecordedFix(time=_time(time, row, columns), lat=lat_deg, lon=lon_deg)
    except ValueError:
        skipped["no time"] += 1
        return None
    unreadable: dict[str, int] = {}
    for meaning, column in columns.optional.items():
        if column < len(row) and row[column] and not _set(fix, meaning, row[column]):
            unreadable[columns.names[column].strip()] = column
    others = {
        name: typed(_plain(row[column].strip()))
        for name, column in (columns.others | unreadable).items()
        if column < len(row)
    }
    if others and (found := others_of(others, ())):
        fix.attributes = found | (fix.attributes or {})
    return fix


def _time(text: str, row: list[str], columns: _Columns) -> int:
    """Return a time in ms; raises ValueError."""
    if columns.date is not None and columns.date < len(row) and _TIME_OF_DAY.match(text):
        text = f"{row[columns.date].strip()} {text.strip()}"
    return parse_time(text)


def _degrees(text: str, columns: _Columns) -> float | None:
    """Return degrees, also of texts such as `52.52N`, `S 33.9` and `52° 31' 12" N`."""
    if columns.is_e7:
        value = _number(text)
        if value is None:
            return None
        # Some programs write signed 32-bit integers as unsigned ones.
        return (value - 2**32 if value > 1_800_000_000 else value) / 1e7
    match = _HEMISPHERE.fullmatch(text.strip())
    if match is None:
        return _number(text)
    value = 0.0
    for index, part in enumerate(match.group("degrees", "minutes", "seconds")):
        value += ((_number(part) if part else None) or 0.0) / float(60**index)
    letter = (match.group("before") or match.group("after") or "").upper()
    return -value if letter in ("S", "W") else value


def _set(fix: RecordedFix, meaning: str, text: str) -> bool:
    """Set a member of the fix; return False for a text where a number is expected."""
    if meaning in _TEXTS:
        setattr(fix, meaning, _TEXTS[meaning](_plain(text.strip())))
        return True
    value = _number(text)
    if value is None:
        return text.strip().lower() in _UNKNOWN
    if meaning == "altitude":
        fix.altitude = value
    elif meaning == "altitude_ft":
        # GeoLife writes -777 where the altitude is not valid.
        fix.altitude = None if value <= -777 else round(value * _FOOT, 2)
    elif value < 0:
        return True
    elif meaning == "speed_kmh":
        fix.speed = round(value / 3.6, 3)
    elif meaning == "speed_knots":
        fix.speed = round(value * _KNOT, 3)
    else:
        setattr(fix, meaning, value)
    return True


def _plain(text: str) -> str:
    """Return text without the mark that our exports put before what is no formula."""
    return text[1:] if text[:1] == "'" and text[1:2] in _FORMULA_BEGINS else text


_DATE: Final = "date"
_TIME_OF_DAY: Final = re.compile(r"\s*\d{1,2}:\d\d")
#: Degrees with the letter of their hemisphere before or behind them, decimal or in 60ths.
_HEMISPHERE: Final = re.compile(
    r"(?P<before>[NSEW])?\s*(?P<degrees>\d+(?:[.,]\d+)?)\s*[\xb0\xba]?"
    r"(?:\s*(?P<minutes>\d+(?:[.,]\d+)?)\s*['\u2032]"
    r"(?:\s*(?P<seconds>\d+(?:[.,]\d+)?)\s*[\"\u2033])?)?"
    r"\s*(?P<after>(?(before)|[NSEW]))",
    re.IGNORECASE,
)
#: What programs write for numbers that they do not know.
_UNKNOWN: Final = frozenset(("", "nan", "null", "none", "na", "n/a", "-"))
_FORMULA_BEGINS: Final = frozenset("=+-@")
_TEXTS: Final[dict[str, Callable[[str], object]]] = {
    "device": lambda text: text or None,
    "charging": charging_of,
    "trigger": trigger_of,
    "id": id_of,
    "attributes": attributes_of,
}


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        try:
            value = float(text.replace(",", "."))  # decimal comma
        except ValueError:
            return None
    return value if math.isfinite(value) else None
