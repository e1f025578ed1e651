"""librdkafka's producer through its C interface; see librdkafka.pyx."""


cdef class Delivery:
    """A cheap delivery callback: `delivered` is called when the log has answered a record."""

    cdef int delivered(self, int code) except -1
