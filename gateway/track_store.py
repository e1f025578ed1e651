"""The recent way of every device, in a bounded amount of memory."""

from __future__ import annotations

import builtins
import math
import struct
from collections import deque
from typing import Final

_POINT = struct.Struct("<qii4f")  # time, lat and lon in 1e-7 degrees, altitude ... course
_TIME = struct.Struct("<q")
CHUNK_BYTES: Final = 64 * _POINT.size
_NAN: Final = math.nan

DEFAULT_BYTES_MAX: Final = 48 * 1024 * 1024


def pack_point(
    time: int,
    lat: float,
    lon: float,
    altitude: float | None,
    accuracy: float | None,
    speed: float | None,
    course: float | None,
) -> bytes:
    """32 bytes. Raises struct.error, OverflowError for values that are no position."""
    return _POINT.pack(
        time,
        round(lat * 1e7),
        round(lon * 1e7),
        _NAN if altitude is None else altitude,
        _NAN if accuracy is None else accuracy,
        _NAN if speed is None else speed,
        _NAN if course is None else course,
    )


class TrackStore:
    """Points packed into chunks; the chunk begun longest ago goes first, whoever's it is.

    32 bytes a point: a day of one phone is small, and a fleet shares the bound fairly, since each
    device's chunks age at the speed at which it sends.
    """

    def __init__(self, bytes_max: int = DEFAULT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        #: Chunks of each device, oldest first: what is appended in place is told to `grew`.
        self.chunks: dict[str, deque[bytearray]] = {}
        # Chunks of all devices by the time they were begun: each device's oldest is its leftmost.
        self._begun: deque[str] = deque()

    @property
    def bytes(self) -> int:
        """Packed points, without the overhead of the containers."""
        return self._bytes

    def append(
        self,
        device: str,
        time: int,
        lat: float,
        lon: float,
        altitude: float | None = None,
        accuracy: float | None = None,
        speed: float | None = None,
        course: float | None = None,
    ) -> None:
        """Add a point. Raises struct.error, OverflowError for values that are no position."""
        self.append_packed(device, pack_point(time, lat, lon, altitude, accuracy, speed, course))

    def append_packed(self, device: str, packed: builtins.bytes) -> None:
        """Add a point as `pack_point` makes it."""
        chunks = self.chunks.get(device)
        if chunks is None:
            chunks = self.chunks[device] = deque()
        if not chunks or len(chunks[-1]) >= CHUNK_BYTES:
            chunks.append(bytearray())
            self._begun.append(device)
        chunks[-1] += packed
        self.grew(_POINT.size)

    def grew(self, size: int) -> None:
        """Count bytes that are in chunks now, and stay within the bound."""
        self._bytes += size
        while self._bytes > self._bytes_max:
            self._drop_oldest_chunk()

    def packed(self, device: str, from_ms: int, to_ms: int) -> builtins.bytes:
        """Packed points with from_ms <= time <= to_ms, in no order, some perhaps twice."""
        found = bytearray()
        for chunk in self.chunks.get(device, ()):
            for begin in range(0, len(chunk), _POINT.size):
                (time,) = _TIME.unpack_from(chunk, begin)
                if from_ms <= time <= to_ms:
                    found += chunk[begin : begin + _POINT.size]
        return bytes(found)

    def forget(self, device: str) -> None:
        """Drop all points of a device."""
        for chunk in self.chunks.pop(device, ()):
            self._bytes -= len(chunk)
        self._begun = deque(each for each in self._begun if each != device)

    def _drop_oldest_chunk(self) -> None:
        device = self._begun.popleft()
        chunks = self.chunks[device]
        self._bytes -= len(chunks.popleft())
        if not chunks:
            del self.chunks[device]
