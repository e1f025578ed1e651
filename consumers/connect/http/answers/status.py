"""What a status means for the records of a request (RFC 9110, sections 10.2.3 and 15)."""

from __future__ import annotations

import enum
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

#: A server may ask for a longer pause than this; nobody would notice that it is over.
_RETRY_AFTER_MAX_S: Final = 600.0
#: What a repetition may cure: too slow, too early, too many.
_LATER: Final = frozenset({408, 425, 429})
#: Nothing that another record would change: credentials, a method, an address that has moved.
_SET_UP: Final = frozenset({401, 405, 407})
_NOT_IMPLEMENTED: Final = frozenset({501, 505})


class Meaning(enum.Enum):
    """What is to be done about the records of a request."""

    DELIVERED = "delivered"
    LATER = "later"  # the request is repeated
    REFUSED = "refused"  # the server will never take it
    SET_UP = "set-up"  # somebody has to change something


def meaning_of(status: int) -> Meaning:
    """Return what a status means."""
    if 200 <= status < 300:
        return Meaning.DELIVERED
    if status in _SET_UP or 300 <= status < 400 or status in _NOT_IMPLEMENTED:
        return Meaning.SET_UP
    if status in _LATER or status >= 500:
        return Meaning.LATER
    return Meaning.REFUSED


def retry_after_s(text: str | None, now: datetime) -> float | None:
    """Return the seconds that a `Retry-After` asks for, at most ten minutes; None for none."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), _RETRY_AFTER_MAX_S)
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return min(max((at - now).total_seconds(), 0.0), _RETRY_AFTER_MAX_S)


def status_text(status: int) -> str:
    """Return a status with its name, such as `404 Not Found`."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
