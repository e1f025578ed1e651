"""How long a device usually is silent, by the hour of the day; sans-IO.

For each hour of the last seven days (UTC) there is one character: the longest silence that went on
in the hour, from then to its end. So after a night from 23 to 7 o'clock the hour 23 has eight
hours, the hour 3 has four. Usual is the second longest of the seven days, of the hour and those
beside it: what happened once in a week, an outage or a flat battery, is not usual. Characters stand
for times on a logarithmic scale, four to an octave.
"""

from __future__ import annotations

import math
from typing import Final

HOUR_MS: Final = 3_600_000
DAYS: Final = 7
_HOURS: Final = 24
_STEPS_OF_OCTAVE: Final = 4
_SHORTEST_S: Final = 60.0
_NOTHING: Final = " "
_FIRST: Final = ord("!")
_LEVELS: Final = 90
#: A device that was never heard: all days without a character.
UNKNOWN: Final = _NOTHING * (DAYS * _HOURS)


def level_of(seconds: float) -> str:
    """Return the character of a time."""
    if seconds <= _SHORTEST_S:
        return chr(_FIRST)
    level = math.ceil(_STEPS_OF_OCTAVE * math.log2(seconds / _SHORTEST_S))
    return chr(_FIRST + min(level, _LEVELS))


def seconds_of(level: str) -> float:
    """Return the longest time that a character stands for."""
    return float(_SHORTEST_S * 2 ** ((ord(level) - _FIRST) / _STEPS_OF_OCTAVE))


#: By character, to spare the powers.
_SECONDS: Final = {chr(_FIRST + level): seconds_of(chr(_FIRST + level)) for level in range(91)}


def with_gap(gaps: str, newest_ms: int, begin_ms: int, end_ms: int) -> str:
    """Return the characters with a silence more.

    `newest_ms` is the time up to which the characters are; days since then are new. Of a silence
    longer than a day only the first 24 hours count.
    """
    cells = list(gaps)
    first_new, last_day = newest_ms // (HOUR_MS * _HOURS) + 1, end_ms // (HOUR_MS * _HOURS)
    for day in range(max(first_new, last_day - DAYS + 1), last_day + 1):
        start = day % DAYS * _HOURS
        cells[start : start + _HOURS] = _NOTHING * _HOURS
    first = begin_ms // HOUR_MS
    for hour in range(first, min(end_ms // HOUR_MS, first + _HOURS - 1) + 1):
        if hour // _HOURS <= last_day - DAYS:
            continue
        cell = hour // _HOURS % DAYS * _HOURS + hour % _HOURS
        level = level_of((end_ms - max(begin_ms, hour * HOUR_MS)) / 1000)
        cells[cell] = max(cells[cell], level)
    return "".join(cells)


def known_days(gaps: str) -> int:
    """Return the number of days on which the device was heard."""
    return sum(not gaps[day * _HOURS : (day + 1) * _HOURS].isspace() for day in range(DAYS))


def usual_s(gaps: str, time_ms: int) -> float:
    """Return how long a silence that begins at a time usually lasts at most, in seconds."""
    hour = time_ms // HOUR_MS % _HOURS
    beside = [(hour - 1) % _HOURS, hour, (hour + 1) % _HOURS]
    longest = sorted(max(gaps[day * _HOURS + each] for each in beside) for day in range(DAYS))
    return _SECONDS.get(longest[-2], 0.0)
