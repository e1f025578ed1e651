"""What a device did, as the gateway's diary tells it: stays, trips, gaps, and totals of periods.

Times are ms since 1970 UTC.
"""

from __future__ import annotations

import msgspec


class Stay(msgspec.Struct, tag="stay", tag_field="kind"):
    """The device was at a place."""

    start: int
    end: int
    lat: float
    lon: float
    fixes: int
    silent_s: int  # in silences of more than 15 minutes


class Trip(msgspec.Struct, tag="trip", tag_field="kind"):
    """The device moved from one place to another."""

    start: int
    end: int
    ended: bool  # False: it goes on with the last point
    distance_m: float
    moving_s: float
    fastest: float  # m/s
    coordinates: list[list[float]] = []  # longitude and latitude
    times: list[int] = []  # of each of the coordinates, ms


class Gap(msgspec.Struct, tag="gap", tag_field="kind"):
    """Nothing is known, and afterwards the device was elsewhere."""

    start: int
    end: int
    distance_m: float  # in a straight line
    coordinates: list[list[float]]  # before and after


Item = Stay | Trip | Gap


class Total(msgspec.Struct):
    """What a device did in a day, a week, a month or a year."""

    date: str  # the first day, YYYY-MM-DD
    days: int = 0  # with fixes
    fixes: int = 0
    trips: int = 0
    distance_m: float = 0.0
    moving_s: float = 0.0
    fastest: float = 0.0  # m/s
    unseen_m: float = 0.0  # straight lines over gaps
    visited: list[list[float]] = []  # latitude and longitude
