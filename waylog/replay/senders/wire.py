"""Encodes fixes as the apps send them.

Each format loses something (OwnTracks has whole seconds and km/h). So `outgoing` computes what the
platform will make of a fix: its time and, from that, its id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from waylog.messages import Fix, fix_id
from waylog.replay.readers.recorded import RecordedFix
from waylog.replay.readers.times import format_time

_KMH: Final = 3.6
_KNOT: Final = 1852 / 3600  # m/s

#: Characters that are not allowed in a device's name, which is a level of MQTT topics.
_FORBIDDEN: Final = re.compile(r"[\x00-\x20/+#\x7f-\x9f\ud800-\udfff]")
_NAME_CHARACTERS_MAX: Final = 128

#: 1970-02-19 in milliseconds; the platform takes a smaller number for seconds.
_SECONDS_BELOW: Final = 2**32
#: An OwnTracks time below this is taken for seconds since 2001, as Overland writes them, unless
#: `created_at` is given too.
_OVERLAND_SECONDS_BELOW: Final = 10**9


#: Parameters of the OsmAnd protocol that mean something else than an attribute of this name.
_OF_OSMAND: Final = (
    *("id", "deviceid", "device", "d", "lat", "lon", "location", "timestamp", "speed", "bearing"),
    *("heading", "altitude", "accuracy", "batt", "charge", "event", "alarm", "speed_unit"),
    *("token", "api_key", "access_token", "password", "notificationToken"),
)
_QUERY_BYTES_MAX: Final = 4096


class Outgoing(NamedTuple):
    """A fix to send, with the time and id that the platform will give it."""

    device: str  # user/device
    name: str  # the device alone
    user: str
    time: int  # ms, as the platform will have it
    id: str
    recorded: RecordedFix


def device_name(text: str) -> str:
    """Return the name as the platform will spell it."""
    return _FORBIDDEN.sub("_", text.strip())[:_NAME_CHARACTERS_MAX] or "device"


def outgoing(recorded: RecordedFix, user: str, name: str, wire_format: str) -> Outgoing:
    """Compute the time and id that the platform will give a fix in this format."""
    time = recorded.time
    if wire_format == "owntracks":
        time = time // 1000 * 1000
    device = f"{user}/{name}"
    # Overland's JSON has no trigger, and only our own format has room for an id.
    trigger = None if wire_format == "overland" else recorded.trigger
    own = recorded.id if wire_format == "positions" else None
    return Outgoing(
        *(device, name, user, time),
        own or fix_id(device, time, recorded.lat, recorded.lon, trigger),
        recorded,
    )


def owntracks(fix: Outgoing) -> bytes:
    """Encode as `_type: location`, without `_id`, so that the id is that of `outgoing`."""
    recorded = fix.recorded
    seconds = fix.time // 1000
    others = _others(recorded, ("_id", "t", "topic", "vel", "bs"))
    return msgspec.json.encode(
        others
        | _known(
            _type="location",
            # A recording's own stays: friends are told apart by it.
            tid=None if "tid" in others else fix.name[-2:],
            lat=recorded.lat,
            lon=recorded.lon,
            tst=seconds,
            created_at=seconds if seconds < _OVERLAND_SECONDS_BELOW else None,
            acc=_rounded(recorded.accuracy),
            alt=_rounded(recorded.altitude),
            vac=_rounded(recorded.vertical_accuracy),
            vel=_rounded(None if recorded.speed is None else recorded.speed * _KMH),
            cog=_rounded(recorded.course),
            batt=_rounded(recorded.battery),
            bs=None if recorded.charging is None else 1 + recorded.charging,
            t=recorded.trigger,
        )
    )


def overland(fixes: Sequence[Outgoing]) -> bytes:
    """Encode a batch of features, all of one device."""
    return msgspec.json.encode({"locations": [_feature(fix) for fix in fixes]})


def positions(fixes: Sequence[Outgoing]) -> bytes:
    """Encode an array in the platform's own format."""
    return msgspec.json.encode([_position(fix) for fix in fixes])


def position(fix: Outgoing) -> bytes:
    """Encode one object in the platform's own format."""
    return msgspec.json.encode(_position(fix))


def osmand_query(fix: Outgoing) -> str:
    """Encode a query of Traccar's OsmAnd protocol: speed in knots, time in s or as ISO 8601."""
    recorded = fix.recorded
    seconds, milliseconds = divmod(fix.time, 1000)
    others = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in _others(recorded, _OF_OSMAND).items()
        if not isinstance(value, dict | list)
    }
    query = urlencode(
        _known(
            id=fix.name,
            lat=repr(recorded.lat),
            lon=repr(recorded.lon),
            timestamp=format_time(fix.time) if milliseconds else seconds,
            altitude=recorded.altitude,
            speed=None if recorded.speed is None else round(recorded.speed / _KNOT, 3),
            bearing=recorded.course,
            accuracy=recorded.accuracy,
            batt=recorded.battery,
            charge=None if recorded.charging is None else str(recorded.charging).lower(),
            event=recorded.trigger,
        )
    )
    more = urlencode(others)
    # A server takes URLs of some kilobytes only.
    return f"{query}&{more}" if more and len(query) + len(more) <= _QUERY_BYTES_MAX else query


def message(fix: Outgoing, received: int) -> Fix:
    """Return the record of topic `location` for a fix that does not pass through a gateway."""
    recorded = fix.recorded
    return Fix(
        id=fix.id,
        device=fix.device,
        user=fix.user,
        lat=recorded.lat,
        lon=recorded.lon,
        time=fix.time,
        received=received,
        accuracy=recorded.accuracy,
        altitude=recorded.altitude,
        vertical_accuracy=recorded.vertical_accuracy,
        speed=recorded.speed,
        course=recorded.course,
        battery=recorded.battery,
        charging=recorded.charging,
        trigger=recorded.trigger,
        source="replay",
        attributes=recorded.attributes,
    )


#: The function that encodes the body of an MQTT message, by format.
MQTT_BODIES: Final[dict[str, Callable[[Outgoing], bytes]]] = {
    "owntracks": owntracks,
    "positions": position,
}


def mqtt_topic(fix: Outgoing, wire_format: str) -> str:
    """Return the topic to which a device publishes in this format."""
    if wire_format == "owntracks":
        return f"owntracks/{fix.device}"
    return f"devices/{fix.device}/position"


def _position(fix: Outgoing) -> dict[str, Any]:
    recorded = fix.recorded
    return _known(
        id=recorded.id,
        device=fix.name,
        lat=recorded.lat,
        lon=recorded.lon,
        time=fix.time if fix.time >= _SECONDS_BELOW else format_time(fix.time),
        accuracy=recorded.accuracy,
        altitude=recorded.altitude,
        vertical_accuracy=recorded.vertical_accuracy,
        speed=recorded.speed,
        course=recorded.course,
        battery=recorded.battery,
        charging=recorded.charging,
        trigger=recorded.trigger,
        attributes=recorded.attributes,
    )


def _feature(fix: Outgoing) -> dict[str, Any]:
    recorded = fix.recorded
    state = None if recorded.charging is None else ("unplugged", "charging")[recorded.charging]
    return {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [recorded.lon, recorded.lat]},
        "properties": _others(recorded, ("action", "type", "device_id"))
        | _known(
            timestamp=format_time(fix.time),
            device_id=fix.name,
            horizontal_accuracy=recorded.accuracy,
            altitude=recorded.altitude,
            vertical_accuracy=recorded.vertical_accuracy,
            speed=recorded.speed,
            course=recorded.course,
            battery_level=None if recorded.battery is None else recorded.battery / 100,
            battery_state=state,
        ),
    }


def _others(recorded: RecordedFix, reserved: tuple[str, ...]) -> dict[str, Any]:
    """Return the attributes that a format can carry as members beside its own."""
    attributes = recorded.attributes or {}
    return {name: value for name, value in attributes.items() if name not in reserved}


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)


def _known(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
