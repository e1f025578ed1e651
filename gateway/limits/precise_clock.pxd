"""A clock for the parts of one turn of the event loop."""

from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec


cdef inline double clock_s() noexcept nogil:
    """Return a time in seconds. The clock of the event loop may count whole milliseconds."""
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <double> now.tv_sec + <double> now.tv_nsec * 1e-9
