"""What gateways have sent to devices, by device and a few seconds or minutes: topic `push`.

A record is what one process sent in a stretch of time to the devices of a share: little-endian
since and until (ms, 8 bytes each), then for each device and channel 32 bytes: 16 of a hash of the
device's name, the channel (1), 3 of zeros, a count (4), and when it was sent last (ms, 8). Names do
not stand in it, so that nobody has to look for erased devices there. Stretches end with a quarter
of an hour at the latest, as the days of all time zones do.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from waylog.audit.days import Day

#: By the numbers that stand in records: names are only added.
CHANNELS: Final = ("mqtt", "card", "http", "websocket", "sse")
SHARES: Final = 16
#: A record of a day is written so long after its end at the latest.
LATE_MS: Final = 60_000
_HEAD: Final = struct.Struct("<qq")
_ENTRY: Final = struct.Struct("<16sB3xIq")
_COUNT_MAX: Final = (1 << 32) - 1


class ChannelPushes(msgspec.Struct, frozen=True):
    """What was sent to a device by a channel; times are ms since 1970 UTC."""

    channel: str  # mqtt, card, http, websocket, sse
    count: int
    last: int


def hash_of(device: str) -> bytes:
    """Return what stands for a device in the records."""
    return blake2b(device.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def key_of(hashed: bytes) -> bytes:
    """Return the key of the records that have a device: that of its share."""
    return b"%d" % (hashed[0] % SHARES)


def push_records(
    since: int, until: int, pushes: Iterable[tuple[int, Mapping[str, Sequence[int]]]]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values; `pushes` are channels' numbers, and by device count and last time."""
    shares: dict[bytes, list[bytes]] = {}
    for channel, devices in pushes:
        for device, (count, last) in devices.items():
            hashed = hash_of(device)
            entry = _ENTRY.pack(hashed, channel, min(count, _COUNT_MAX), last)
            shares.setdefault(key_of(hashed), []).append(entry)
    for key, entries in shares.items():
        yield key, b"".join([_HEAD.pack(since, until), *entries])


class PushSums:
    """Adds up what records tell of one device and day."""

    def __init__(self, device: str, day: Day) -> None:
        self._hash: Final = hash_of(device)
        self._day: Final = day
        self._sums: Final[dict[int, list[int]]] = {}

    def take(self, value: bytes | None) -> None:
        """Take a record of anybody's; what is none of ours is passed over."""
        if value is None or len(value) < _HEAD.size:
            return
        since, until = _HEAD.unpack_from(value)
        if since < self._day.from_ms or until > self._day.to_ms:
            return
        at = value.find(self._hash, _HEAD.size)
        while at >= 0:
            if (at - _HEAD.size) % _ENTRY.size == 0 and at + _ENTRY.size <= len(value):
                _, channel, count, last = _ENTRY.unpack_from(value, at)
                self.add(channel, count, last)
            at = value.find(self._hash, at + 1)

    def add(self, channel: int, count: int, last: int) -> None:
        """Add what a channel sent."""
        found = self._sums.setdefault(channel, [0, 0])
        found[0] += count
        found[1] = max(found[1], last)

    def sums(self) -> list[ChannelPushes]:
        """Return the sums of the channels that sent something."""
        return [
            ChannelPushes(CHANNELS[channel], *found)
            for channel, found in sorted(self._sums.items())
            if channel < len(CHANNELS)
        ]
