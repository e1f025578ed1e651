"""What servers call devices, where that is not their name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from consumers.connect.configuration.exceptions import ConfigException


class DeviceNames:
    """Names by device. It never changes."""

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
