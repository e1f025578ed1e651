"""Reads the position that a record is about: a fix, or an address, of Waylog's own JSON.

The record's value may be an object, a struct, or the JSON itself as text or bytes, which costs
least.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec

from consumers.connect.data.exceptions import DataException
from consumers.connect.data.records import ConnectRecord
from consumers.connect.data.structs import Struct
from waylog.malformed import MALFORMED


class Position(msgspec.Struct, kw_only=True, gc=False):
    """Where a device was; units are those of `waylog.messages.Fix`."""

    device: str  # user/device
    lat: Annotated[float, msgspec.Meta(ge=-90, le=90)]  # degrees WGS84
    lon: Annotated[float, msgspec.Meta(ge=-180, le=180)]
    time: int  # ms since 1970-01-01 UTC
    accuracy: float | None = None  # m
    altitude: float | None = None  # m
    vertical_accuracy: float | None = None  # m
    speed: float | None = None  # m/s
    course: float | None = None  # degrees
    battery: float | None = None  # percent
    charging: bool | None = None
    trigger: str | None = None

    @property
    def user(self) -> str:
        """The part of the device's name before the slash."""
        return self.device.partition("/")[0]

    @property
    def name(self) -> str:
        """The part of the device's name behind the slash, all of it if there is none."""
        return self.device.partition("/")[2] or self.device


class WholePosition(Position, kw_only=True, gc=False):
    """A position with what identifies it, and everything else that is known of it."""

    id: str | None = None
    attributes: dict[str, Any] | None = None


Read = TypeVar("Read", bound=Position)


def position_reader(class_: type[Read]) -> Callable[[ConnectRecord], Read]:
    """Return what reads the position of a record; it raises DataException if there is none."""
    decode = msgspec.json.Decoder(class_).decode

    def read(record: ConnectRecord) -> Read:
        value: Any = record.value
        try:
            if isinstance(value, (str, bytes)):
                return decode(value)
            if isinstance(value, Struct):
                names = (field.name for field in value.schema.fields)
                value = dict(zip(names, value.values, strict=True))
            return msgspec.convert(value, class_)
        except MALFORMED as error:
            raise DataException(f"the record is no position: {error}") from error

    return read


def iso_time(time_ms: int) -> str:
    """Return a time as ISO 8601 in UTC, with milliseconds; raises DataException."""
    return moment_of(time_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment_of(time_ms: int) -> datetime:
    """Return a time, in ms since 1970-01-01 UTC, as one in UTC; raises DataException."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise DataException(f"{time_ms} ms is no time in the years 1 to 9999") from error
