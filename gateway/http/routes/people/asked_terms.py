"""How precisely, and until when, somebody is to be shown devices: as requests say it."""

from __future__ import annotations

from gateway.formats.values import time_ms
from gateway.http.requests.past import LATEST_MS
from gateway.http.requests.responses import Refused
from gateway.shares.share import Precision, require_metres

Time = str | int | float


def time_of(name: str, value: Time) -> int:
    """Return a time in ms, within 64 bits whatever is asked for. Raises Refused."""
    time = time_ms(value)
    if time is None:
        raise Refused(400, f"{name} must be milliseconds, seconds or ISO 8601")
    return max(-LATEST_MS, min(time, LATEST_MS))


def metres_of(precision: Precision, metres: int | None) -> int | None:
    """Return the metres of a precision. Raises Refused."""
    try:
        require_metres(precision, metres)
    except ValueError as error:
        raise Refused(400, str(error)) from error
    return metres
