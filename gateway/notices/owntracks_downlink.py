"""Arrivals and favourite places in the form that OwnTracks apps receive.

https://owntracks.org/booklet/tech/json/: `transition`, and `cmd` with action `setWaypoints`.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Final

from gateway.notices.arrivals import RADIUS_M, Arrival

#: Regions sent to a phone; iOS watches at most 20 for all apps together.
WAYPOINTS_MAX: Final = 10
# Android identifies a region by its `tst`: a time between 2017 and 2020, derived from the place's
# id.
#: A member of messages that are not for friends; apps ignore it.
PRIVATE: Final = "private"
_FIRST_TST: Final = 1_500_000_000
_TST_SPAN: Final = 100_000_000


def name_of(place: dict[str, Any]) -> str:
    """Return the name of a place for display."""
    label = place.get("label")
    text = place.get("name") or (label.capitalize() if label else None) or place.get("address")
    return str(text or "a favourite place")


def tst_of(place: dict[str, Any]) -> int:
    """Return the creation time that identifies a place."""
    return _FIRST_TST + zlib.crc32(str(place.get("place_id")).encode()) % _TST_SPAN


def transition(arrival: Arrival, tid: str) -> dict[str, Any]:
    """Return an arrival as a transition, which both apps show as a notification."""
    return {
        "_type": "transition",
        "event": "enter",
        "desc": name_of(arrival.place),
        "tid": tid,
        "tst": arrival.time // 1000,
        "wtst": tst_of(arrival.place),
        "lat": arrival.lat,
        "lon": arrival.lon,
        "acc": round(RADIUS_M),
        "t": "c",
    }


def own_transition(
    event: str, region: str, tid: str, time: int, lat: float, lon: float
) -> dict[str, Any]:
    """Return a way into a user's region or out of it, which none of the user's friends get.

    `event` is `enter` or `leave`, `time` in ms.
    """
    return {
        "_type": "transition",
        "event": event,
        "desc": region,
        "tid": tid,
        "tst": time // 1000,
        "wtst": _FIRST_TST + zlib.crc32(region.encode()) % _TST_SPAN,
        "lat": lat,
        "lon": lon,
        "acc": 0,
        "t": "c",
        PRIVATE: True,
    }


def set_waypoints(places: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the command that makes favourite places regions of the app; None without places."""
    if not places:
        return None
    return {
        "_type": "cmd",
        "action": "setWaypoints",
        "waypoints": {
            "_type": "waypoints",
            "waypoints": [
                {
                    "_type": "waypoint",
                    "desc": name_of(place),
                    "lat": place["lat"],
                    "lon": place["lon"],
                    "rad": round(RADIUS_M),
                    "tst": tst_of(place),
                }
                for place in places[:WAYPOINTS_MAX]
            ],
        },
    }
