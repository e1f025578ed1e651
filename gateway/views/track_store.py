"""The recent track of every device, in a bounded amount of memory."""

from __future__ import annotations

import builtins
import math
import struct
from collections import deque
from collections.abc import Iterator
from typing import Final

from gateway.formats.values import FLOAT_MAX
from gateway.limits.user_weights import UserWeights

_POINT = struct.Struct("<qii4f")  # time, lat and lon in 1e-7 degrees, altitude ... course
CHUNK_BYTES: Final = 64 * _POINT.size
_CHUNKS_A_PIECE: Final = 32
#: Chunks in which `firsts` looks: a day of a fix each five seconds, which takes 5 ms.
_CHUNKS_SEEN_MAX: Final = 20_000 // 64
#: Bytes that a chunk's objects take besides its points.
_CHUNK_OVERHEAD: Final = 256
_NAN: Final = math.nan
#: Dropped chunks are removed from the list of all chunks when there are more than this, and more
#: than half of the list.
_DROPPED_MAX: Final = 1_000

DEFAULT_BYTES_MAX: Final = 64 * 1024 * 1024

_Begun = tuple[str, bytearray]


def pack_point(
    time: int,
    lat: float,
    lon: float,
    altitude: float | None,
    accuracy: float | None,
    speed: float | None,
    course: float | None,
) -> bytes:
    """Return a point in 32 bytes. Raises struct.error, OverflowError for an invalid position."""
    measured = (
        each if each is not None and abs(each) <= FLOAT_MAX else _NAN
        for each in (altitude, accuracy, speed, course)
    )
    return _POINT.pack(time, round(lat * 1e7), round(lon * 1e7), *measured)


class TrackStore:
    """Points packed into chunks of one device each.

    At the limit the user with the most chunks loses the oldest of them. If nobody has many, the
    chunk begun longest ago is dropped, whoever owns it. So a fleet shares the memory fairly,
    because the chunks of each device age at the rate at which it sends.
    """

    def __init__(self, bytes_max: int = DEFAULT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        #: Chunks of each device, oldest first. Code that appends in place has to call `grew`.
        self.chunks: dict[str, list[bytearray]] = {}
        # All chunks in the order in which they were begun; dropped ones are empty.
        self._begun: deque[_Begun] = deque()
        self._dropped = 0
        self._of_user: dict[str, list[_Begun]] = {}
        self._shares = UserWeights()

    @property
    def bytes(self) -> int:
        """Return the bytes of packed points and of the objects that hold them."""
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
        """Add a point. Raises struct.error, OverflowError for an invalid position."""
        self.append_packed(device, pack_point(time, lat, lon, altitude, accuracy, speed, course))

    def append_packed(self, device: str, packed: builtins.bytes) -> None:
        """Add a point packed by `pack_point`."""
        chunks = self.chunks.get(device)
        if chunks is None:
            chunks = self.chunks[device] = []
        if chunks and len(chunks[-1]) < CHUNK_BYTES:
            chunks[-1] += packed
            self.grew(_POINT.size)
            return
        begun = (device, bytearray(packed))
        chunks.append(begun[1])
        self._begun.append(begun)
        user = device.partition("/")[0]
        self._of_user.setdefault(user, []).append(begun)
        self._shares.change(user, 1)
        self.grew(_POINT.size + _CHUNK_OVERHEAD)

    def grew(self, size: int) -> None:
        """Count bytes added to chunks, and drop chunks beyond the limit."""
        self._bytes += size
        while self._bytes > self._bytes_max and self.chunks:
            self._drop_one()

    def pieces(self, device: str) -> Iterator[builtins.bytes]:
        """Yield all packed points of a device, unordered, possibly duplicated.

        A piece has at most 64 KiB, so that others may work between two pieces: a single device may
        have filled the whole memory. Points that are dropped meanwhile are left out.
        """
        chunks = list(self.chunks.get(device, ()))
        for begin in range(0, len(chunks), _CHUNKS_A_PIECE):
            if piece := b"".join(chunks[begin : begin + _CHUNKS_A_PIECE]):
                yield piece

    def firsts(
        self, device: str, from_ms: int, to_ms: int, step_ms: int
    ) -> list[tuple[int, float, float]]:
        """Return time (ms), lat and lon of the first point of each step of time, in their order.

        Looks at a device's newest points, back to those before `from_ms`, and 20,000 at most.
        """
        found: dict[int, tuple[int, int, int]] = {}
        for chunk in reversed(self.chunks.get(device, [])[-_CHUNKS_SEEN_MAX:]):
            is_before = bool(chunk)
            for time, lat, lon, *_ in _POINT.iter_unpack(chunk):
                if time < from_ms:
                    continue
                is_before = False
                step = time // step_ms
                if time <= to_ms and (step not in found or (time, lat, lon) < found[step]):
                    found[step] = time, lat, lon
            if is_before:
                break
        return [(time, lat / 1e7, lon / 1e7) for time, lat, lon in sorted(found.values())]

    def forget(self, device: str) -> None:
        """Drop all points of a device."""
        chunks = self.chunks.pop(device, None)
        if chunks is None:
            return
        for chunk in chunks:
            self._empty(device, chunk)
        user = device.partition("/")[0]
        left = [begun for begun in self._of_user[user] if begun[1]]
        if left:
            self._of_user[user] = left
        else:
            del self._of_user[user]

    def _drop_one(self) -> None:
        user = self._shares.heaviest()
        if user is None:
            while not self._begun[0][1]:
                self._begun.popleft()
                self._dropped -= 1
            user = self._begun[0][0].partition("/")[0]
        # A user's oldest chunk is also the oldest of its device.
        own = self._of_user[user]
        device, chunk = own.pop(0)
        if not own:
            del self._of_user[user]
        chunks = self.chunks[device]
        chunks.pop(0)
        if not chunks:
            del self.chunks[device]
        self._empty(device, chunk)

    def _empty(self, device: str, chunk: bytearray) -> None:
        self._bytes -= len(chunk) + _CHUNK_OVERHEAD
        chunk.clear()
        self._shares.change(device.partition("/")[0], -1)
        self._dropped += 1
        if self._dropped > max(_DROPPED_MAX, len(self._begun) // 2):
            self._begun = deque(begun for begun in self._begun if begun[1])
            self._dropped = 0
