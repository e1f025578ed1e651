"""What the client sends and gets, beside fixes and addresses (waylog.messages).

Units are SI and degrees WGS84, times are ms since 1970 UTC. Members that a newer gateway adds are
ignored.
"""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

from waylog.audit.receipts import Receipt
from waylog.messages import Address, Fix


def _new_id() -> str:
    return uuid.uuid4().hex


class Position(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A position to send."""

    lat: float
    lon: float
    #: The name of a device of the user, or `user/name`; None: the one of the token, or `default`.
    device: str | None = None
    time: int | None = None  # ms; None: when the gateway gets it
    accuracy: float | None = None  # m
    altitude: float | None = None  # m
    vertical_accuracy: float | None = None  # m
    speed: float | None = None  # m/s
    course: float | None = None  # degrees clockwise from true north
    battery: float | None = None  # percent
    charging: bool | None = None
    trigger: str | None = None
    attributes: dict[str, Any] | None = None
    #: Positions with one id are one fix, however often they are sent.
    id: str = msgspec.field(default_factory=_new_id)


class Refusal(msgspec.Struct, frozen=True):
    """A position that can never be accepted; the gateway keeps it in topic `error`."""

    index: int  # in what was sent
    reason: str


class Sent(msgspec.Struct, frozen=True):
    """What became of positions that were sent."""

    ids: list[str]  # of the fixes in the log
    rejected: list[Refusal] = []


class Device(msgspec.Struct, kw_only=True):
    """What is known now of a device; there is a fix, an address, or both."""

    device: str
    user: str
    name: str
    lat: float
    lon: float
    time: int
    fix: Fix | None = None
    address: Address | None = None


class TrackPoint(msgspec.Struct, frozen=True):
    """A point of a track."""

    time: int
    lat: float
    lon: float
    altitude: float | None = None
    accuracy: float | None = None
    speed: float | None = None
    course: float | None = None


class PlaceRole(msgspec.Struct, kw_only=True):
    """What a place was from `since` to `until` (ms), or still is (None)."""

    label: str  # home, work
    since: int
    until: int | None = None
    confidence: float | None = None  # 0..1


class FavouritePlace(msgspec.Struct, kw_only=True):
    """A place where a device has been often, or for long."""

    place_id: str
    lat: float
    lon: float
    visits: int
    dwell_s: int
    label: str | None = None  # home, work
    name: str | None = None
    address: str | None = None
    rank: int | None = None
    days: int | None = None
    radius_m: float | None = None
    first: int | None = None
    last: int | None = None
    confidence: float | None = None  # of the label, 0..1
    profile: list[int] | None = None  # minutes in each hour of the local week, from Monday 0:00
    named_by: str | None = None  # "user": the name was chosen
    roles: list[PlaceRole] | None = None  # in the order of time


class Visit(msgspec.Struct, kw_only=True):
    """A stay that the history job has found."""

    arrival: int
    departure: int
    place_id: str | None = None  # None: a place that is not a favourite
    lat: float | None = None
    lon: float | None = None
    dwell_s: int | None = None
    silent_s: int | None = None
    fixes: int | None = None
    # What lies between these two, of each, is silence.
    arrival_earliest: int | None = None
    arrival_latest: int | None = None
    departure_earliest: int | None = None
    departure_latest: int | None = None


class Journey(msgspec.Struct, kw_only=True):
    """A trip between two visits, as the history job has found it."""

    start: int
    end: int
    origin: str | None = None  # place_id
    destination: str | None = None
    distance_m: float | None = None  # in a straight line


class DeviceToken(msgspec.Struct, kw_only=True):
    """A device that has tokens of its own."""

    device: str
    tokens: int
    newest: int  # when the newest token was made


class Setup(msgspec.Struct, kw_only=True):
    """What sets up an app; all of it holds the token."""

    app: str
    link: str | None = None
    qr_code: str | None = None  # SVG
    address: str | None = None
    file_name: str | None = None
    file: str | None = None

    def __repr__(self) -> str:
        """Return a text without the token."""
        return f"Setup({self.app!r})"


class NewDeviceToken(msgspec.Struct, kw_only=True):
    """A token that was just made; nothing tells it again."""

    device: str
    token: str
    setup: Setup

    def __repr__(self) -> str:
        """Return a text without the token."""
        return f"NewDeviceToken({self.device!r}, {self.setup!r})"


class DeviceReceipt(Receipt, frozen=True, kw_only=True):
    """Where the fixes of a day are, and what is known of addresses on their way to the owner."""

    pushed: dict[str, Any]
