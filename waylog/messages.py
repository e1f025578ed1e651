"""The messages of the platform's topics, as JSON.

Members are only ever added, and readers ignore members they do not know, so that programs of
different ages can share a log. Pure Python on top of msgspec: Spark's executors load this module.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

#: Bytes of the names and values of all attributes of one fix.
ATTRIBUTE_BYTES_MAX = 16 * 1024
#: Levels of objects and arrays in the value of an attribute.
ATTRIBUTE_NESTING_MAX = 16
TRIGGER_CHARACTERS_MAX = 64
#: Clocks may be this far ahead; a later fix counts as of its arrival.
CLOCK_AHEAD_MS = 5 * 60 * 1000
#: Of the reason in a refused message that was shortened.
_REASON_CHARACTERS_MAX = 100
#: The source of events that topologies write (consumers.streams.events).
STREAMS = "streams"
#: The owner of a geofence that is of no user, but of all.
EVERYBODY = "*"
_YEAR_2000_MS = 946_684_800_000
_ID_HASH_BYTES = 6
_ID_TIME_MASK = (1 << 48) - 1


class Fix(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """The position of a device at one moment: a record of topic `location`.

    Units are SI and degrees WGS84; times are milliseconds since 1970-01-01 UTC. A value that the
    device did not know is None, never a sentinel such as -1.
    """

    id: str  # idempotency key, see fix_id
    device: str  # "user/device"; the record's key
    user: str
    lat: float  # degrees, -90..90
    lon: float  # degrees, -180..180
    time: int  # when the device was there, ms
    received: int  # when the gateway accepted it, ms
    accuracy: float | None = None  # m, radius of 68 % confidence
    altitude: float | None = None  # m above WGS84 or sea level, as the device says
    vertical_accuracy: float | None = None  # m
    speed: float | None = None  # m/s
    course: float | None = None  # degrees clockwise from true north
    battery: float | None = None  # percent, 0..100
    charging: bool | None = None
    trigger: str | None = None  # why the app reported, in the app's own words
    source: str | None = None  # name of the device format, e.g. "owntracks"
    attributes: dict[str, Any] | None = None  # data of the format beyond these members


class Address(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The address of the newest resolved fix of a device: a record of topic `address`."""

    device: str  # the record's key
    fix_id: str
    time: int  # the fix's time, ms
    lat: float
    lon: float
    display_name: str
    address: dict[str, str]  # Nominatim's keys: house_number, road, city, country_code, ...
    distance: float | None = None  # m from the fix to the named feature
    resolved: int = 0  # when it was looked up, ms
    index_version: str = ""  # version of the geocoding index that answered


class Rejected(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A message that was refused, kept whole: a record of topic `error`."""

    reason: str
    source: str  # name of the device format or of the program that refused it
    time: int  # ms
    raw: bytes  # base64 in JSON
    device: str | None = None
    user: str | None = None
    headers: dict[str, str] | None = None  # without credentials


class Event(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An event of a device that is not a fix: a record of topic `event`."""

    id: str
    device: str  # the record's key
    user: str
    type: str  # transition, waypoint, status, lwt, visit, ...
    time: int  # ms
    received: int  # ms
    source: str | None = None
    attributes: dict[str, Any] | None = None


_encoder = msgspec.json.Encoder()
_fix_decoder = msgspec.json.Decoder(Fix)
_address_decoder = msgspec.json.Decoder(Address)
_rejected_decoder = msgspec.json.Decoder(Rejected)
_event_decoder = msgspec.json.Decoder(Event)


def encode(message: Fix | Address | Rejected | Event) -> bytes:
    """Encode a message as compact JSON."""
    return _encoder.encode(message)


def decode_fix(value: bytes) -> Fix:
    """Decode a fix; raises msgspec.DecodeError (ValidationError for wrong types)."""
    return _fix_decoder.decode(value)


def decode_address(value: bytes) -> Address:
    """Decode an address; raises msgspec.DecodeError."""
    return _address_decoder.decode(value)


def decode_rejected(value: bytes) -> Rejected:
    """Decode a rejected message; raises msgspec.DecodeError."""
    return _rejected_decoder.decode(value)


def shortened(rejected: Rejected) -> Rejected:
    """Return a refused message as little more than where it is, for a topic without room for it."""
    reason = (
        f"{rejected.reason[:_REASON_CHARACTERS_MAX]} (raw: none of {len(rejected.raw)} bytes, the "
        "topic takes no record so large)"
    )
    return msgspec.structs.replace(rejected, reason=reason, raw=b"", device=None)


def decode_event(value: bytes) -> Event:
    """Decode an event; raises msgspec.DecodeError."""
    return _event_decoder.decode(value)


def live_time(time: int, arrived: int) -> int:
    """Return the time that decides which fix of a device is the newest.

    It is the fix's own time, or that of its arrival if its own is absurd: before 2000, or so far
    ahead that the fix would stay the newest although others come. All times are ms.
    """
    # A difference is a smaller number than a time, and cheaper to compare.
    return arrived if time - arrived > CLOCK_AHEAD_MS or time < _YEAR_2000_MS else time


def address_time(time: int, resolved: int) -> int:
    """Return `live_time` of an address; it was resolved (0: unknown) soon after its fix arrived."""
    return live_time(time, resolved) if resolved else time


def fix_id(
    device: str,
    time: int,
    lat: float,
    lon: float,
    trigger: str | None = None,
    message_id: str | None = None,
) -> str:
    """Return the idempotency key of a fix: 24 hexadecimal digits.

    Apps repeat a fix when an answer was lost, sometimes with other members changed, so only members
    that stay the same over repeats go in. These are the app's own message id with device and time,
    if the app has one (such an id alone may be as short as four random bytes), else device, time,
    place and trigger. The same place at another time is another fix.

    The first twelve digits are the time: successive ids of one device share most of them, which
    storage can leave out. The other twelve are a hash of the members named above.
    """
    if message_id is not None:
        identity = f"{device}\0{time}\0{message_id}"
    else:
        identity = f"{device}\0{time}\0{lat!r}\0{lon!r}\0{trigger or ''}"
    digest = hashlib.blake2b(identity.encode(), digest_size=_ID_HASH_BYTES).hexdigest()
    return f"{time & _ID_TIME_MASK:012x}{digest}"
