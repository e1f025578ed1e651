"""Cutting a TCP byte stream into Kafka request frames without copying what need not be copied."""

from __future__ import annotations

from typing import Final

from broker_core.protocol.primitives import RemoteProtocolError

#: The length field of a frame.
LENGTH_BYTES: Final = 4

#: A frame that is not complete yet gets a buffer of its own, at first of at most this size.
_OWN_BYTES_MIN: Final = 64 * 1024
#: ... which then grows by this factor with the bytes that really came, never by what is announced.
_GROWTH: Final = 4


class FrameTooLarge(RemoteProtocolError):
    """The length field is negative or larger than `socket.request.max.bytes`."""


class FrameReader:
    """Hands out the frames of one connection as slices of the buffer they were received into.

    The caller owns the socket: it receives into `get_buffer()`, says how much with `received()`,
    drains `next_frame()` until that returns None and then calls `settle()`. `shared` is one buffer
    for all connections of an event loop: most requests arrive whole, so that a connection that is
    idle between two requests has no buffer at all.

    A frame is valid until `settle()`: whoever keeps its bytes copies them.
    """

    __slots__ = ("_capacity", "_end", "_own", "_shared", "_start", "_view", "frame_bytes_max")

    def __init__(self, shared: memoryview, *, frame_bytes_max: int) -> None:
        self._shared = shared
        #: The longest frame that is accepted; may change between two frames.
        self.frame_bytes_max = frame_bytes_max
        self._own = False
        self._view = shared
        self._capacity = len(shared)
        # Bytes [start, end) of the view have been received and not been handed out.
        self._start = 0
        self._end = 0

    @property
    def buffered(self) -> int:
        """Bytes received that are not part of a frame handed out so far."""
        return self._end - self._start

    @property
    def reserved(self) -> int:
        """Size of the buffer that this connection has for itself."""
        return self._capacity if self._own else 0

    def get_buffer(self) -> memoryview:
        """Where to receive next; never empty."""
        if self._own:
            if self._end == self._capacity:
                self._move(self._wanted())
            return self._view[self._end : self._capacity]
        return self._shared

    def received(self, count: int) -> None:
        """`count` bytes have been written to the start of the last `get_buffer()`."""
        self._end += count

    def next_frame(self) -> memoryview | None:
        """The next complete frame, without its length; None when more bytes are needed.

        Raises FrameTooLarge as soon as the length is known, before its body arrives.
        """
        size = self._announced()
        if size is None:
            return None
        begin = self._start + LENGTH_BYTES
        end = begin + size
        if end > self._end:
            return None
        self._start = end
        return self._view[begin:end]

    def settle(self) -> None:
        """Give the shared buffer back: what is left of it moves to a buffer of our own."""
        if self._start == self._end:
            self._own = False
            self._view = self._shared
            self._capacity = len(self._shared)
            self._start = self._end = 0
        elif not self._own or self._start:
            self._move(self._wanted())

    def _announced(self) -> int | None:
        start = self._start
        if self._end - start < LENGTH_BYTES:
            return None
        size = int.from_bytes(self._view[start : start + LENGTH_BYTES], "big", signed=True)
        if not 0 <= size <= self.frame_bytes_max:
            raise FrameTooLarge(
                f"a request of {size} bytes; 0 to {self.frame_bytes_max} are allowed"
            )
        return size

    def _wanted(self) -> int:
        """Capacity for what is buffered and what should follow."""
        buffered = self._end - self._start
        capacity = max(_OWN_BYTES_MIN, buffered * _GROWTH)
        size = self._announced()
        if size is not None and size + LENGTH_BYTES > buffered:
            # Up to the end of this frame and not further: the next one starts in the shared buffer.
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
