# cython: boundscheck=False, wraparound=False
"""Splitting of a TCP byte stream into Kafka request frames, with as little copying as possible."""

from libc.stdint cimport int32_t

from waylog.kafka.protocol.record_format cimport get32

from broker_core.protocol.errors import RemoteProtocolError

cdef enum:
    LENGTH_SIZE = 4  # of a frame's length field, in bytes
    # Smallest own buffer of a connection for an incomplete frame, unless the frame is smaller.
    OWN_BYTES_MIN = 64 * 1024
    # A larger one has at most this many times the bytes received, whatever length is announced.
    GROWTH = 4
    # Stands for the size of a frame whose length has not arrived.
    UNKNOWN = -1


class FrameTooLarge(RemoteProtocolError):
    """The length field is negative or larger than `socket.request.max.bytes`."""


cdef class FrameReader:
    """Returns the frames of one connection as slices of the buffer that they were received into.

    The caller owns the socket: it receives into `get_buffer()`, reports the number of bytes with
    `received()`, calls `next_frame()` until that returns None, and then `settle()`. All connections
    of an event loop use the buffer `shared`: most requests arrive complete, so that a connection
    that is idle between two requests has no buffer of its own.

    A frame is valid until `settle()`: copy what is needed longer.
    """

    cdef public int32_t frame_bytes_max  # largest size of a frame; may change between two frames
    cdef object _shared
    cdef object _view
    cdef const unsigned char[::1] _bytes  # those of the view
    cdef bint _own
    cdef Py_ssize_t _capacity
    # Bytes [start, end) of the view have been received and not been returned as frames.
    cdef Py_ssize_t _start
    cdef Py_ssize_t _end

    def __init__(self, shared not None, *, int32_t frame_bytes_max):
        self.frame_bytes_max = frame_bytes_max
        self._shared = shared
        self._use(shared)

    cdef int _use(self, object view) except -1:
        self._view = view
        self._bytes = view
        self._capacity = self._bytes.shape[0]
        self._own = view is not self._shared
        return 0

    @property
    def buffered(self):
        """The number of received bytes that have not been returned as frames."""
        return self._end - self._start

    @property
    def reserved(self):
        """The size in bytes of the connection's own buffer, 0 if it has none."""
        return self._capacity if self._own else 0

    def get_buffer(self):
        """Return the buffer to receive into; never empty."""
        if not self._own:
            return self._shared
        if self._end == self._capacity:
            self._move(self._wanted())
        return self._view[self._end : self._capacity]

    def received(self, Py_ssize_t count):
        """Report that `count` bytes were received into the last `get_buffer()`.

        Raises ValueError for more than that buffer has.
        """
        if not 0 <= count <= self._capacity - self._end:
            raise ValueError(f"{count} bytes do not fit into the buffer")
        self._end += count

    def next_frame(self):
        """Return the next complete frame without its length, or None if more bytes are needed.

        Raises FrameTooLarge as soon as the length is known, before the rest arrives.
        """
        cdef Py_ssize_t begin, end
        cdef int32_t size = self._announced()
        if size == UNKNOWN:
            return None
        begin = self._start + LENGTH_SIZE
        end = begin + size
        if end > self._end:
            return None
        self._start = end
        return self._view[begin:end]

    @property
    def has_frame(self):
        """Tell whether `next_frame` would return one; raises FrameTooLarge."""
        cdef int32_t size = self._announced()
        return size != UNKNOWN and self._start + LENGTH_SIZE + size <= self._end

    def settle(self):
        """Release the shared buffer; unread bytes move to a buffer of the connection's own."""
        cdef Py_ssize_t buffered = self._end - self._start
        cdef int32_t size
        if not buffered:
            self._start = self._end = 0
            if self._own:
                self._use(self._shared)
        elif not self._own or self._start:
            size = self._size()
            # Whole frames that the owner does not take yet: it receives no more meanwhile.
            has_whole_frame = size != UNKNOWN and <Py_ssize_t> size + LENGTH_SIZE <= buffered
            self._move(buffered if has_whole_frame else self._wanted())

    cdef int32_t _size(self) noexcept:
        """Return the size of the next frame, UNKNOWN if it is not known or not possible."""
        cdef int32_t size
        if self._end - self._start < LENGTH_SIZE:
            return UNKNOWN
        size = <int32_t> get32(&self._bytes[self._start])
        # An impossible one is reported by `next_frame`, when it is asked for that frame.
        return size if 0 <= size <= self.frame_bytes_max else UNKNOWN

    cdef int32_t _announced(self) except -2:
        """As `_size`, but raises FrameTooLarge for an impossible one."""
        cdef int32_t size = self._size()
        if size == UNKNOWN and self._end - self._start >= LENGTH_SIZE:
            size = <int32_t> get32(&self._bytes[self._start])
            raise FrameTooLarge(
                f"a request of {size} bytes; 0 to {self.frame_bytes_max} are allowed"
            )
        return size

    cdef Py_ssize_t _wanted(self) noexcept:
        """Return the capacity for the buffered bytes and those that should follow."""
        cdef Py_ssize_t buffered = self._end - self._start
        cdef Py_ssize_t capacity = max(<Py_ssize_t> OWN_BYTES_MIN, buffered * GROWTH)
        cdef int32_t size = self._size()
        if size != UNKNOWN and <Py_ssize_t> size + LENGTH_SIZE > buffered:
            # Not beyond the end of this frame: the next one begins in the shared buffer.
            capacity = min(capacity, <Py_ssize_t> size + LENGTH_SIZE)
        return capacity

    cdef int _move(self, Py_ssize_t capacity) except -1:
        cdef Py_ssize_t buffered = self._end - self._start
        view = memoryview(bytearray(capacity))
        view[:buffered] = self._view[self._start : self._end]
        self._use(view)
        self._start = 0
        self._end = buffered
        return 0
