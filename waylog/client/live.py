"""The messages of the live stream (`/v1/ws`), without any I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from waylog.bounding_box import BoundingBox
from waylog.client.answers import Device
from waylog.client.errors import ApiError
from waylog.malformed import MALFORMED
from waylog.messages import Address, Fix

#: Characters of a message that is quoted in an error.
_QUOTED: Final = 200


class Skipped(msgspec.Struct, frozen=True):
    """The reader was too slow: it gets the newest state of devices in place of `count` events."""

    count: int


Event = Fix | Address | Skipped


class Subscription(msgspec.Struct, frozen=True, tag="subscribe", tag_field="type"):
    """What a stream is narrowed to: the message that says so."""

    devices: list[str] | None
    bbox: tuple[float, float, float, float] | None  # west, south, east, north
    friends: bool

    def events_of(self, device: Device, user: str | None) -> Iterator[Fix | Address]:
        """Yield what is known of a device if it is wanted; `user` is who asks."""
        if not self.friends and user is not None and device.user != user:
            return
        box = None if self.bbox is None else BoundingBox(*self.bbox)
        for event in (device.fix, device.address):
            if event is not None and (box is None or box.contains(event.lat, event.lon)):
                yield event


class _Head(msgspec.Struct):
    type: str = ""
    cursor: str | None = None
    count: int = 0


_head: Final = msgspec.json.Decoder(_Head)
_fix: Final = msgspec.json.Decoder(Fix)
_address: Final = msgspec.json.Decoder(Address)


class EventReader:
    """Reads messages, and knows where to go on after a disconnection."""

    def __init__(self) -> None:
        self.cursor: str | None = None
        #: Whether what comes is narrowed already.
        self.is_subscribed = False

    def read(self, message: str | bytes) -> Event | None:
        """Return the event of a message, None for one that is none; raises ApiError."""
        try:
            head = _head.decode(message)
            event: Event | None = None
            if head.type == "fix":
                event = _fix.decode(message)
            elif head.type == "address":
                event = _address.decode(message)
            elif head.type == "skipped":
                event = Skipped(head.count)
            elif head.type == "subscribed":
                self.is_subscribed = True
        except MALFORMED as error:
            shown = message[:_QUOTED]
            raise ApiError(200, f"no message of a live stream: {shown!r}: {error}") from error
        if head.cursor is not None:
            self.cursor = head.cursor
        return event
