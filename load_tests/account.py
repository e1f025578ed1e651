"""Which fixes were sent and which of them were acknowledged: the generator's side of the account.

The id of a fix says whose it is: `<run>-<number of the device>-<its place in the schedule>`. It is
longer than 16 characters, so that the gateway keeps it as the fix's id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

FIX_ID: Final = re.compile(r"([0-9A-Za-z]{6,16})-(\d{8})-(\d{8})")


def fix_id(run: str, device: int, sequence: int) -> str:
    """The id of a device's fix."""
    return f"{run}-{device:08d}-{sequence:08d}"


def device_name(device: int) -> str:
    """The name of a device, without its user."""
    return f"d{device:08d}"


class DeviceAccount(msgspec.Struct, array_like=True):
    """One device: fixes 0 to `sent` - 1 went out; bit n of `acknowledged` says that n has arrived.

    The lowest bit of a byte comes first.
    """

    device: int
    sent: int
    acknowledged: bytes

    def is_acknowledged(self, sequence: int) -> bool:
        """Whether the platform has said that it has the fix."""
        return bool(self.acknowledged[sequence // 8] >> (sequence % 8) & 1)

    @property
    def newest_acknowledged(self) -> int | None:
        """The place of the newest acknowledged fix."""
        return next((n for n in reversed(range(self.sent)) if self.is_acknowledged(n)), None)


class Account(msgspec.Struct):
    """All devices of one run."""

    run: str
    user: str
    devices: list[DeviceAccount]

    def write(self, path: Path) -> None:
        """Keep it in a file that `read_accounts` reads."""
        path.write_bytes(msgspec.msgpack.encode(self))


def read_accounts(paths: Iterable[Path]) -> Account:
    """The accounts of several processes of one run as one."""
    accounts = [msgspec.msgpack.decode(path.read_bytes(), type=Account) for path in paths]
    if not accounts:
        raise ValueError("no account was written")
    first = accounts[0]
    if any((each.run, each.user) != (first.run, first.user) for each in accounts):
        raise ValueError("the accounts are of different runs")
    return Account(first.run, first.user, [device for each in accounts for device in each.devices])


class PhoneAccount:
    """The account of a device that is driven from Python, fix by fix."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.sent = 0
        self._acknowledged = bytearray()

    def send(self) -> int:
        """Count a fix that goes out for the first time; returns its place."""
        if self.sent % 8 == 0:
            self._acknowledged.append(0)
        self.sent += 1
        return self.sent - 1

    def acknowledge(self, sequence: int) -> None:
        """Note that the platform has the fix."""
        self._acknowledged[sequence // 8] |= 1 << sequence % 8

    def close(self) -> DeviceAccount:
        """The account as it is now."""
        return DeviceAccount(self.device, self.sent, bytes(self._acknowledged))
