"""Reads the position that a record is about: a fix, or an address, of Waylog's own JSON.

The record's value may be an object, a struct, or the JSON itself as text or bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.records import SinkRecord
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


_decoder: Final = msgspec.json.Decoder(Position)


def position_of(record: SinkRecord) -> Position:
    """Return the position; raises DataException."""
    value: Any = record.value
    try:
        if isinstance(value, (str, bytes)):
            return _decoder.decode(value)
        if isinstance(value, Struct):
            value = {
                field.name: each
                for field, each in zip(value.schema.fields, value.values, strict=True)
            }
        return msgspec.convert(value, Position)
    except MALFORMED as error:
        raise DataException(f"the record is no position: {error}") from error


def iso_time(time_ms: int) -> str:
    """Return a time as ISO 8601 in UTC, with milliseconds; raises DataException."""
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise DataException(f"{time_ms} ms is no time in the years 1 to 9999") from error
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def known(**members: Any) -> dict[str, Any]:
    """Return the members that are not None."""
    return {name: value for name, value in members.items() if value is not None}


def rounded(value: float | None) -> int | None:
    """Return the nearest whole number."""
    return None if value is None else round(value)


class DeviceNames:
    """What servers call devices, where that is not their name."""

    def __init__(self, pairs: Sequence[str]) -> None:
        """`pairs` are texts like `anna/phone=54017733`; raises ConfigException."""
        names: dict[str, str] = {}
        for pair in pairs:
            device, equals, other = pair.partition("=")
            if not (device.strip() and equals and other.strip()):
                raise ConfigException(f"device.names: {pair!r} is not USER/DEVICE=NAME")
            names[device.strip()] = other.strip()
        self._names: Final[Mapping[str, str]] = names

    def get(self, device: str, default: str) -> str:
        """Return the other name of a device."""
        return self._names.get(device, default)
