"""The generator's record of which fixes were sent and which of them were acknowledged.

The id of a fix tells its origin: `<run>-<number of the device>-<sequence number in the schedule>`.
It is longer than 16 characters, so that the gateway keeps it as the fix's id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

FIX_ID: Final = re.compile(r"([0-9A-Za-z]{6,16})-(\d{8})-(\d{8})")


def fix_id(run: str, device: int, sequence: int) -> str:
    """Return the id of a device's fix."""
    return f"{run}-{device:08d}-{sequence:08d}"


def device_name(device: int) -> str:
    """Return the name of a device, without its user."""
    return f"d{device:08d}"


class DeviceAccount(msgspec.Struct, array_like=True):
    """The account of one device: fixes 0 to `sent` - 1 were sent.

    Bit n of `acknowledged` tells whether fix n was acknowledged. The lowest bit of a byte comes
    first.
    """

    device: int
    sent: int
    acknowledged: bytes

    def is_acknowledged(self, sequence: int) -> bool:
        """Return whether the platform has acknowledged the fix."""
        return bool(self.acknowledged[sequence // 8] >> (sequence % 8) & 1)

    @property
    def newest_acknowledged(self) -> int | None:
        """The sequence number of the newest acknowledged fix, or None."""
        return next((n for n in reversed(range(self.sent)) if self.is_acknowledged(n)), None)


class Account(msgspec.Struct):
    """The accounts of all devices of one run."""

    run: str
    user: str
    devices: list[DeviceAccount]

    def write(self, path: Path) -> None:
        """Write the account to a file for `read_accounts`."""
        path.write_bytes(msgspec.msgpack.encode(self))


def read_accounts(paths: Iterable[Path]) -> Account:
    """Read the accounts of several processes of one run, and join them."""
    accounts = [msgspec.msgpack.decode(path.read_bytes(), type=Account) for path in paths]
    if not accounts:
        raise ValueError("no account was written")
    first = accounts[0]
    if any((each.run, each.user) != (first.run, first.user) for each in accounts):
        raise ValueError("the accounts are of different runs")
    return Account(first.run, first.user, [device for each in accounts for device in each.devices])


class PhoneAccount:
    """The account of one device that is driven from Python, fix by fix."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.sent = 0
        self._acknowledged = bytearray()

    def send(self) -> int:
        """Count a fix that is sent for the first time; return its sequence number."""
        if self.sent % 8 == 0:
            self._acknowledged.append(0)
        self.sent += 1
        return self.sent - 1

    def acknowledge(self, sequence: int) -> None:
        """Record that the platform has the fix."""
        self._acknowledged[sequence // 8] |= 1 << sequence % 8

    def close(self) -> DeviceAccount:
        """Return the account in its current state."""
        return DeviceAccount(self.device, self.sent, bytes(self._acknowledged))
