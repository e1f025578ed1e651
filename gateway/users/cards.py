"""The position and the card of a device as OwnTracks messages.

https://owntracks.org/booklet/tech/json/. The same messages are sent over MQTT and in HTTP
responses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from waylog.messages import Address, Fix

_KMH_PER_MS: Final = 3.6
_NOT_CHARGING, _CHARGING = 1, 2  # OwnTracks' `bs`

_STREETS: Final = ("road", "pedestrian", "footway", "path", "suburb")
_PLACES: Final = ("city", "town", "village", "hamlet", "municipality", "county", "state")


def street_of(address: Address) -> str:
    """Return the street and town; a card is sent again when they change, not for a house number."""
    parts = address.address
    street = next((parts[key] for key in _STREETS if parts.get(key)), "")
    place = next((parts[key] for key in _PLACES if parts.get(key)), "")
    return f"{street}, {place}" if street or place else address.display_name


def card(
    address: Address,
    fix: Fix | None,
    own: Mapping[str, Any] | None = None,
    tid: str | None = None,
) -> dict[str, Any]:
    """Return a card with the address as a part of its name.

    Name, picture and tid of `own`, the card made by the device's owner, are kept: a card without
    `face` makes the app remove the picture that it shows.
    """
    own = own or {}
    device = address.device.rpartition("/")[2]
    name = own.get("name")
    members: dict[str, Any] = {
        "_type": "card",
        "tid": tid or own.get("tid") or tid_of(device, fix),
        "name": f"{name if isinstance(name, str) and name else device} - {address.display_name}",
    }
    if own.get("face"):
        members["face"] = own["face"]
    return members


def tid_of(device: str, fix: Fix | None) -> str:
    """Return the two characters shown for a device: its own, else the last ones of its name."""
    tid = (fix.attributes or {}).get("tid") if fix is not None else None
    return tid if isinstance(tid, str) and tid else device[-2:]


def location(fix: Fix) -> dict[str, Any]:
    """Return a fix of any app as OwnTracks' location."""
    members: dict[str, Any] = {
        "_type": "location",
        "tid": tid_of(fix.device.rpartition("/")[2], fix),
        "lat": fix.lat,
        "lon": fix.lon,
        "tst": fix.time // 1000,
        "t": fix.trigger if fix.source == "owntracks" else None,
        "bs": None if fix.charging is None else (_CHARGING if fix.charging else _NOT_CHARGING),
    }
    for name, value in (
        ("acc", fix.accuracy),
        ("alt", fix.altitude),
        ("vac", fix.vertical_accuracy),
        ("vel", None if fix.speed is None else fix.speed * _KMH_PER_MS),
        ("cog", fix.course),
        ("batt", fix.battery),
    ):
        members[name] = None if value is None else round(value)
    return {name: value for name, value in members.items() if value is not None}
