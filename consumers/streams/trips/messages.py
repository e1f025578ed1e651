"""What topology `trips` writes: topics `trip` and `trip-day`, as JSON.

The newest record of a key is the truth; those before it were what was known then.
"""

from __future__ import annotations

import msgspec


class Trip(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A trip: a record of topic `trip`, whose key is `device LF start`."""

    device: str
    user: str
    start: int  # time of the last fix at the origin, ms since 1970
    end: int  # when the device came to the destination, ms; so far, if not `ended`
    ended: bool
    origin_lat: float  # degrees
    origin_lon: float
    lat: float  # of the destination, or of the place it has come to, degrees
    lon: float
    distance_m: float
    moving_s: float
    fastest: float  # m/s


class TripDay(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The totals of a device and day: a record of topic `trip-day`, key `device LF date`."""

    device: str
    user: str
    date: str  # YYYY-MM-DD, in the time zone
    time_zone: str  # IANA's name
    trips: int  # that began on the day
    distance_m: float  # of all trips, what was on that day
    moving_s: float
    fastest: float  # m/s
    unseen_m: float  # straight lines over silences that ended on the day; in no trip


_encode = msgspec.json.Encoder().encode


def encode_trip(message: Trip | TripDay) -> bytes:
    """Encode a message as compact JSON."""
    return _encode(message)
