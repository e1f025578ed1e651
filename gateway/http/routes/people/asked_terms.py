"""How precisely, and until when, somebody is to be shown devices: as requests say it."""

from __future__ import annotations

from gateway.http.requests.responses import Refused
from gateway.shares.share import Precision, require_metres

Time = str | int | float


def metres_of(precision: Precision, metres: int | None) -> int | None:
    """Return the metres of a precision. Raises Refused."""
    try:
        require_metres(precision, metres)
    except ValueError as error:
        raise Refused(400, str(error)) from error
    return metres
