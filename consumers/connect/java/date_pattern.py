"""Times by the patterns of `java.text.SimpleDateFormat`, in UTC and English.

TimestampConverter and TimestampRouter take such patterns. Reading is lenient as it is there: text
after the pattern is ignored, and a month 13 is January of the next year.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_DAYS: Final = (*("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),)
_LETTERS: Final = frozenset("GyYMLwWDdFEuaHkKhmsSzZX")
#: Of which a time cannot be read; SimpleDateFormat reads weeks of a locale.
_NOT_READ: Final = frozenset("YwWFu")
_NUMERIC: Final = frozenset("yYwWDdFuHkKhmsS")
_ZONE_NAMES: Final = ("UTC", "GMT", "UT", "Z")
_OFFSET: Final = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2}):?(\d{2})?")
_DIGITS: Final = re.compile(r"-?[0-9]+")
#: Years of two digits are in the hundred years from here; SimpleDateFormat takes 80 years ago.
_CENTURY: Final = 1950
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class DatePatternError(ValueError):
    """The pattern is not valid, or the text is not of the pattern."""


class DatePattern:
    """A pattern, ready to write and read times."""

    __slots__ = ("_fields", "pattern")

    def __init__(self, pattern: str) -> None:
        """Raises DatePatternError for a pattern that is not valid."""
        self.pattern: Final = pattern
        self._fields: Final = _fields_of(pattern)

    def format(self, time: datetime) -> str:
        """Return the text of an aware time."""
        utc = time.astimezone(UTC)
        return "".join(
            text if not letter else _write(letter, count, utc)
            for letter, count, text in self._fields
        )

    def parse(self, text: str) -> datetime:
        """Return the time that a text names; raises DatePatternError if it does not match."""
        parts: dict[str, int] = {}
        position = 0
        for number, (letter, count, literal) in enumerate(self._fields):
            if not letter:
                if not text.startswith(literal, position):
                    raise DatePatternError(f"{literal!r} is missing at {position}")
                position += len(literal)
                continue
            while position < len(text) and text[position] in " \t":
                position += 1
            abutting = _is_number(letter, count) and _is_number(
                *self._fields[number + 1][:2] if number + 1 < len(self._fields) else ("", 0)
            )
            position = _read(letter, count, text, position, abutting, parts)
        try:
            return _time_of(parts)
        except (OverflowError, ValueError) as error:
            raise DatePatternError("the time is out of range") from error


def _fields_of(pattern: str) -> list[tuple[str, int, str]]:
    """Return letter and count, or no letter and a literal text."""
    fields: list[tuple[str, int, str]] = []
    literal = ""
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == "'":
            if pattern.startswith("''", position):
                literal += "'"
                position += 2
                continue
            end = position + 1
            while True:
                end = pattern.find("'", end)
                if end < 0:
                    raise DatePatternError("Unterminated quote")
                if not pattern.startswith("''", end):
                    break
                end += 2
            literal += pattern[position + 1 : end].replace("''", "'")
            position = end + 1
        elif "a" <= character <= "z" or "A" <= character <= "Z":
            if character not in _LETTERS:
                raise DatePatternError(f"Illegal pattern character '{character}'")
            end = position
            while end < len(pattern) and pattern[end] == character:
                end += 1
            if character == "X" and end - position > 3:
                raise DatePatternError(f"invalid ISO 8601 format: length={end - position}")
            if literal:
                fields.append(("", 0, literal))
                literal = ""
            fields.append((character, end - position, ""))
            position = end
        else:
            literal += character
            position += 1
    if literal:
        fields.append(("", 0, literal))
    return fields


def _is_number(letter: str, count: int) -> bool:
    return letter in _NUMERIC or (letter in ("M", "L") and count < 3)


def _write(letter: str, count: int, time: datetime) -> str:
    match letter:
        case "G":
            return "AD"
        case "y":
            return f"{time.year % 100:02}" if count == 2 else f"{time.year:0{count}}"
        case "Y":
            year = _week_of_year(time)[0]
            return f"{year % 100:02}" if count == 2 else f"{year:0{count}}"
        case "M" | "L":
            if count >= 3:
                name = _MONTHS[time.month - 1]
                return name if count >= 4 else name[:3]
            return f"{time.month:0{count}}"
        case "E":
            name = _DAYS[time.weekday()]
            return name if count >= 4 else name[:3]
        case "a":
            return "AM" if time.hour < 12 else "PM"
        case "z":
            return "Coordinated Universal Time" if count >= 4 else "UTC"
        case "Z":
            return "+0000"
        case "X":
            return "Z"
        case _:
            return f"{_number(letter, time):0{count}}"


def _number(letter: str, time: datetime) -> int:
    first_weekday = time.replace(day=1).isoweekday() % 7
    numbers: dict[str, Callable[[], int]] = {
        "w": lambda: _week_of_year(time)[1],
        "W": lambda: (time.day + first_weekday - 1) // 7 + 1,
        "D": lambda: time.timetuple().tm_yday,
        "d": lambda: time.day,
        "F": lambda: (time.day - 1) // 7 + 1,
        "u": time.isoweekday,
        "H": lambda: time.hour,
        "k": lambda: time.hour or 24,
        "K": lambda: time.hour % 12,
        "h": lambda: time.hour % 12 or 12,
        "m": lambda: time.minute,
        "s": lambda: time.second,
        "S": lambda: time.microsecond // 1000,
    }
    return numbers[letter]()


def _week_of_year(time: datetime) -> tuple[int, int]:
    """Return year and week of en_US: weeks begin on Sunday, the first has 1 January."""
    to_saturday = 6 - time.isoweekday() % 7
    if time.month == 12 and time.day + to_saturday > 31:
        return time.year + 1, 1
    first = time.replace(month=1, day=1).isoweekday() % 7
    return time.year, (time.timetuple().tm_yday + first - 1) // 7 + 1


def _read(
    letter: str, count: int, text: str, position: int, abutting: bool, parts: dict[str, int]
) -> int:
    """Read one field into `parts` and return where it ends."""
    match letter:
        case "M" | "L" if count >= 3:
            for number, name in enumerate(_MONTHS):
                for each in (name, name[:3]):
                    if text[position : position + len(each)].lower() == each.lower():
                        parts["M"] = number + 1
                        return position + len(each)
            raise DatePatternError(f"no month at {position}")
        case "E":
            for name in _DAYS:
                for each in (name, name[:3]):
                    if text[position : position + len(each)].lower() == each.lower():
                        return position + len(each)
            raise DatePatternError(f"no day of the week at {position}")
        case "G":
            if text[position : position + 2].upper() != "AD":
                raise DatePatternError(f"no era at {position}")
            return position + 2
        case "a":
            half = text[position : position + 2].upper()
            if half not in ("AM", "PM"):
                raise DatePatternError(f"neither AM nor PM at {position}")
            parts["a"] = int(half == "PM")
            return position + 2
        case "z" | "Z" | "X":
            return _read_zone(text, position, parts)
        case _ if letter in _NOT_READ:
            raise DatePatternError(f"times cannot be read by '{letter}'")
        case _:
            return _read_number(letter, count, text, position, abutting, parts)


def _read_number(
    letter: str, count: int, text: str, position: int, abutting: bool, parts: dict[str, int]
) -> int:
    found = _DIGITS.match(text, position, position + count if abutting else len(text))
    if found is None or len(found[0]) > 18:
        raise DatePatternError(f"no number at {position}")
    value = int(found[0])
    if letter == "y" and count <= 2 and len(found[0]) == 2 and value >= 0:
        value += _CENTURY // 100 * 100
        if value < _CENTURY:
            value += 100
    parts["M" if letter == "L" else letter] = value
    return found.end()


def _read_zone(text: str, position: int, parts: dict[str, int]) -> int:
    offset = _OFFSET.match(text, position)
    if offset is not None:
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        parts["zone"] = -minutes if offset[1] == "-" else minutes
        return offset.end()
    for name in _ZONE_NAMES:
        if text.startswith(name, position):
            return position + len(name)
    raise DatePatternError(f"no time zone at {position}")


def _time_of(parts: dict[str, int]) -> datetime:
    month = parts.get("M", 1) - 1
    start = datetime(parts.get("y", 1970) + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    days = parts.get("d", 1) - 1
    if "D" in parts and "M" not in parts:
        days = parts["D"] - 1
    if "H" in parts:
        hours = parts["H"]
    elif "k" in parts:
        hours = 0 if parts["k"] == 24 else parts["k"]
    else:
        twelfth = parts["h"] % 12 if parts.get("h") == 12 else parts.get("h", parts.get("K", 0))
        hours = twelfth + 12 * parts.get("a", 0)
    return start + timedelta(
        days=days,
        hours=hours,
        minutes=parts.get("m", 0) - parts.get("zone", 0),
        seconds=parts.get("s", 0),
        milliseconds=parts.get("S", 0),
    )


def time_at(ms: int) -> datetime:
    """Return the time of milliseconds since 1970-01-01 UTC; OverflowError beyond year 9999."""
    return _EPOCH + timedelta(milliseconds=ms)
