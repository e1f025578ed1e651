"""Parses and formats times as track files write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

#: Larger than any present time in seconds, smaller than any time after 1973 in milliseconds.
_MILLISECONDS_FROM: Final = 1e11
_MICROSECONDS_FROM: Final = 1e14
_NANOSECONDS_FROM: Final = 1e17

_DAY_FIRST: Final = re.compile(
    r"(\d{1,2})[./-](\d{1,2})[./-](\d{4})[ T]+(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,]\d+)?)?"
)
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE][+]?\d+)?")

#: The years 1 to 9999, the range of datetime and ISO 8601.
_TIME_MIN_MS: Final = -62_135_596_800_000
_TIME_MAX_MS: Final = 253_402_300_799_999


def parse_time(value: object) -> int:
    """Parse a time; return milliseconds since 1970-01-01 UTC.

    Takes seconds, milliseconds, microseconds or nanoseconds (distinguished by their size), ISO 8601
    with or without an offset, and DD/MM/YYYY HH:MM[:SS] with any of `/`, `.`, `-`. A time without
    an offset is UTC. Raises ValueError.
    """
    if isinstance(value, bool) or value is None:
        raise ValueError(f"not a time: {value!r}")
    if isinstance(value, int | float):
        return _from_number(float(value))
    text = str(value).strip()
    if _NUMBER.fullmatch(text):
        return _from_number(float(text))
    try:
        return _milliseconds(datetime.fromisoformat(text))
    except ValueError:
        pass
    if match := _DAY_FIRST.fullmatch(text):
        day, month, year, hour, minute, second = (int(part or 0) for part in match.groups())
        return _milliseconds(datetime(year, month, day, hour, minute, second, tzinfo=UTC))
    raise ValueError(f"not a time: {text[:40]!r}")


def format_time(time_ms: int) -> str:
    """Format as ISO 8601 in UTC, with milliseconds only if there are any; raises ValueError."""
    if not _TIME_MIN_MS <= time_ms <= _TIME_MAX_MS:
        raise ValueError(f"outside the years 1 to 9999: {time_ms} ms")
    seconds, milliseconds = divmod(time_ms, 1000)
    moment = datetime.fromtimestamp(seconds, UTC)
    fraction = f".{milliseconds:03d}" if milliseconds else ""
    return f"{moment.replace(tzinfo=None).isoformat()}{fraction}Z"


def _from_number(number: float) -> int:
    size = abs(number)
    if size < _MILLISECONDS_FROM:
        milliseconds = number * 1e3
    elif size < _MICROSECONDS_FROM:
        milliseconds = number
    elif size < _NANOSECONDS_FROM:
        milliseconds = number / 1e3
    else:
        milliseconds = number / 1e6
    if not _TIME_MIN_MS <= milliseconds <= _TIME_MAX_MS:
        raise ValueError(f"not a time: {number!r}")
    return round(milliseconds)


def _milliseconds(moment: datetime) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        # Whole milliseconds without the rounding errors of a float timestamp.
        difference = moment - _EPOCH
    except OverflowError as error:
        raise ValueError(f"not a time: {moment}") from error
    return (difference.days * 86_400 + difference.seconds) * 1000 + difference.microseconds // 1000


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
