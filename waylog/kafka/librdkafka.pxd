"""librdkafka's producer by its C interface; see librdkafka.pyx."""


cdef class Delivery:
    """Told when the log has answered a record: a callback without the cost of one."""

    cdef int delivered(self, int code) except -1
