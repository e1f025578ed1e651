"""Distribution of new addresses and arrivals to devices and viewers."""

from __future__ import annotations

import logging
from typing import Protocol

logger = logging.getLogger(__name__)


class AddressChannel(Protocol):
    """A channel to devices, such as MQTT."""

    def address_changed(self, device: str, value: bytes) -> None:
        """Take the JSON of an address newer than the last one of its device. Must not block."""

    def arrived(self, device: str, transition: bytes) -> None:
        """Take OwnTracks' transition of a device that has come to a place. Must not block."""

    def noticed(self, device: str, notice: bytes) -> None:
        """Take the JSON of a notice for the owner of a device. Must not block."""


class Pusher:
    """Notifies all channels; an exception in one does not affect the others."""

    def __init__(self) -> None:
        self._channels: list[AddressChannel] = []

    def register(self, channel: AddressChannel) -> None:
        """Add a channel."""
        self._channels.append(channel)

    def unregister(self, channel: AddressChannel) -> None:
        """Remove a channel, if it is registered."""
        if channel in self._channels:
            self._channels.remove(channel)

    def address_changed(self, device: str, value: bytes) -> None:
        """Pass on a new address; the callback of AddressView.on_address."""
        for channel in self._channels:
            try:
                channel.address_changed(device, value)
            except Exception:
                logger.exception("%s failed to take an address", type(channel).__name__)

    def arrived(self, device: str, transition: bytes) -> None:
        """Pass on an arrival; the callback of Notices.tell."""
        for channel in self._channels:
            try:
                channel.arrived(device, transition)
            except Exception:
                logger.exception("%s failed to take an arrival", type(channel).__name__)

    def noticed(self, device: str, notice: bytes) -> None:
        """Pass on a notice of an event."""
        for channel in self._channels:
            try:
                channel.noticed(device, notice)
            except Exception:
                logger.exception("%s failed to take a notice", type(channel).__name__)
