"""Splitting of a TCP byte stream into Kafka request frames, with as little copying as possible."""

from __future__ import annotations

import struct
from typing import Final

from broker_core.protocol.errors import RemoteProtocolError

#: Size of a frame's length field, in bytes.
LENGTH_BYTES: Final = 4
_LENGTH: Final = struct.Struct(">i")

#: Smallest own buffer of a connection for an incomplete frame, unless the frame is smaller.
_OWN_BYTES_MIN: Final = 64 * 1024
#: A larger one has at most this many times the bytes received, whatever length is announced.
_GROWTH: Final = 4


class FrameTooLarge(RemoteProtocolError):
    """The length field is negative or larger than `socket.request.max.bytes`."""


class FrameReader:
    """Returns the frames of one connection as slices of the buffer that they were received into.

    The caller owns the socket: it receives into `get_buffer()`, reports the number of bytes with
    `received()`, calls `next_frame()` until that returns None, and then `settle()`. All connections
    of an event loop use the buffer `shared`: most requests arrive complete, so that a connection
    that is idle between two requests has no buffer of its own.

    A frame is valid until `settle()`: copy what is needed longer.
    """

    __slots__ = ("_capacity", "_end", "_own", "_shared", "_start", "_view", "frame_bytes_max")

    def __init__(self, shared: memoryview, *, frame_bytes_max: int) -> None:
        self._shared = shared
        #: Largest size of a frame; may change between two frames.
        self.frame_bytes_max = frame_bytes_max
        self._own = False
        self._view = shared
        self._capacity = len(shared)
        # Bytes [start, end) of the view have been received and not been returned as frames.
        self._start = 0
        self._end = 0

    @property
    def buffered(self) -> int:
        """The number of received bytes that have not been returned as frames."""
        return self._end - self._start

    @property
    def reserved(self) -> int:
        """The size in bytes of the connection's own buffer, 0 if it has none."""
        return self._capacity if self._own else 0

    def get_buffer(self) -> memoryview:
        """Return the buffer to receive into; never empty."""
        if self._own:
            if self._end == self._capacity:
                self._move(self._wanted())
            return self._view[self._end : self._capacity]
        return self._shared

    def received(self, count: int) -> None:
        """Report that `count` bytes were received into the last `get_buffer()`."""
        self._end += count

    def next_frame(self) -> memoryview | None:
        """Return the next complete frame without its length, or None if more bytes are needed.

        Raises FrameTooLarge as soon as the length is known, before the rest arrives.
        """
        if self._start == self._end or (size := self._announced()) is None:
            return None
        begin = self._start + LENGTH_BYTES
        end = begin + size
        if end > self._end:
            return None
        self._start = end
        return self._view[begin:end]

    @property
    def has_frame(self) -> bool:
        """Tell whether `next_frame` would return one; raises FrameTooLarge."""
        size = self._announced()
        return size is not None and self._start + LENGTH_BYTES + size <= self._end

    def settle(self) -> None:
        """Release the shared buffer; unread bytes move to a buffer of the connection's own."""
        if self._start == self._end:
            self._own = False
            self._view = self._shared
            self._capacity = len(self._shared)
            self._start = self._end = 0
        elif not self._own or self._start:
            # Whole frames that the owner does not take yet: it receives no more meanwhile.
            self._move(self.buffered if self._has_whole_frame() else self._wanted())

    def _has_whole_frame(self) -> bool:
        size = self._size()
        return size is not None and size + LENGTH_BYTES <= self.buffered

    def _size(self) -> int | None:
        """Return the size of the next frame, None if it is not known or not possible."""
        try:
            return self._announced()
        except FrameTooLarge:
            return None  # `next_frame` raises it when it is asked for that frame

    def _announced(self) -> int | None:
        size: int
        start = self._start
        if self._end - start < LENGTH_BYTES:
            return None
        (size,) = _LENGTH.unpack_from(self._view, start)
        if not 0 <= size <= self.frame_bytes_max:
            raise FrameTooLarge(
                f"a request of {size} bytes; 0 to {self.frame_bytes_max} are allowed"
            )
        return size

    def _wanted(self) -> int:
        """Return the capacity for the buffered bytes and those that should follow."""
        buffered = self._end - self._start
        capacity = max(_OWN_BYTES_MIN, buffered * _GROWTH)
        size = self._size()
        if size is not None and size + LENGTH_BYTES > buffered:
            # Not beyond the end of this frame: the next one begins in the shared buffer.
            capacity = min(capacity, size + LENGTH_BYTES)
        return capacity

    def _move(self, capacity: int) -> None:
        buffered = self._end - self._start
        view = memoryview(bytearray(capacity))
        view[:buffered] = self._view[self._start : self._end]
        self._own = True
        self._view = view
        self._capacity = capacity
        self._start = 0
        self._end = buffered
