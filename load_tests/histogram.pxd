from libc.stdint cimport int64_t, uint32_t

cdef enum:
    BUCKETS = 4096


cdef class Histogram:
    cdef uint32_t _counts[BUCKETS]

    cdef void count(self, int64_t nanoseconds) noexcept nogil
