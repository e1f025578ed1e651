"""Reads logs of NMEA 0183, as GPS receivers and loggers write them.

A fix is a sentence RMC, which alone has the date; a GGA of the same time adds the altitude, the
satellites and the dilution of precision.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, time
from typing import Any, Final

from waylog.replay.readers.json import lines
from waylog.replay.readers.recorded import RecordedFix, Skipped, count_no_place, on_earth
from waylog.replay.readers.source import Source
from waylog.replay.readers.times import parse_time

_KNOT: Final = 1852 / 3600  # m/s
_SENTENCE: Final = re.compile(rb"\$[A-Z]{2}[A-Z]{3},[^\r\n$]*")
_LOOKED_AT: Final = re.compile(rb"\$[A-Z]{2}(RMC|GGA|GLL|GNS|GSA|GSV|VTG|ZDA),")


def is_nmea(head: bytes) -> bool:
    """Tell whether a file that begins like this is such a log."""
    return _LOOKED_AT.search(head) is not None and b"\0" not in head


def read(source: Source, skipped: Skipped) -> Iterator[RecordedFix]:
    """Yield the fixes, in the order of the file."""
    # Of one moment there may be several sentences, in any order.
    moment: time | None = None
    of_moment: dict[str, Any] = {}
    for line in lines(source):
        for sentence in _SENTENCE.findall(line):
            parsed = _parsed(sentence, skipped)
            if parsed is None:
                continue
            if parsed.time != moment or parsed.msgID in of_moment:
                yield from _fix(of_moment, skipped)
                of_moment = {}
            moment = parsed.time
            of_moment[parsed.msgID] = parsed
    yield from _fix(of_moment, skipped)


def _parsed(sentence: bytes, skipped: Skipped) -> Any:
    """Return a sentence RMC or GGA; None for others, and damaged ones, which are counted."""
    from pynmeagps import NMEAReader
    from pynmeagps.exceptions import NMEAMessageError, NMEAParseError, NMEAStreamError
    from pynmeagps.exceptions import NMEATypeError as WrongType

    if sentence[3:6] not in (b"RMC", b"GGA"):
        return None
    try:
        parsed = NMEAReader.parse(sentence.rstrip() + b"\r\n")
        # The library leaves the text where it is not a time.
        if not isinstance(parsed.time, time):
            raise ValueError("no time")
    except (NMEAMessageError, NMEAParseError, NMEAStreamError, WrongType, ValueError, LookupError,
            AttributeError, TypeError):  # fmt: skip
        skipped["damaged sentence"] += 1
        return None
    return parsed


def _fix(sentences: dict[str, Any], skipped: Skipped) -> Iterator[RecordedFix]:
    recommended, position = sentences.get("RMC"), sentences.get("GGA")
    if recommended is None:
        if position is not None:
            skipped["no date (a GGA without its RMC)"] += 1
        return
    lat, lon = _number(recommended.lat), _number(recommended.lon)
    if recommended.status != "A" or lat is None or lon is None or not on_earth(lat, lon):
        # V: the receiver warns that this is none.
        is_void = recommended.status != "A"
        count_no_place(skipped, None if is_void else lat, None if is_void else lon)
        return
    if not isinstance(recommended.date, date):
        skipped["no time"] += 1
        return
    speed, course = _number(recommended.spd), _number(recommended.cog)
    fix = RecordedFix(
        time=parse_time(datetime.combine(recommended.date, recommended.time).isoformat()),
        lat=round(lat, 7),
        lon=round(lon, 7),
        speed=None if speed is None else round(speed * _KNOT, 3),
        course=course,
    )
    if position is not None:
        fix.altitude = _number(position.alt)
        described = {"satellites": position.numSV, "hdop": position.HDOP}
        known = {name: value for name, value in described.items() if _number(value) is not None}
        fix.attributes = known or None
    yield fix


def _number(value: object) -> float | None:
    """Return a number; the library has an empty text for what a sentence does not say."""
    return float(value) if isinstance(value, int | float) else None
