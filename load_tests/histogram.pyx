# cython: boundscheck=False, wraparound=False, cdivision=True
"""A log-linear histogram of durations, as HdrHistogram is one."""

from libc.stdint cimport int64_t, uint64_t


cdef inline int bucket_of(uint64_t value) noexcept nogil:
    """Return the bucket of a value.

    There are 128 steps per doubling, hence an error below 0.8 %.
    """
    cdef int shift = 0
    if value >= <uint64_t>1 << 36:
        value = (<uint64_t>1 << 36) - 1
    while value >> shift >= 256:
        shift += 1
    return 128 * shift + <int>(value >> shift)


def bucket_value(int bucket):
    """Return the middle of a bucket, for reports."""
    if bucket < 256:
        return bucket
    cdef int shift = bucket // 128 - 1
    return ((<uint64_t>bucket - 128 * shift) << shift) + (<uint64_t>1 << shift) // 2


cdef class Histogram:
    """Durations, counted by their size."""

    cdef void count(self, int64_t nanoseconds) noexcept nogil:
        """Count a duration; one below 0 is taken for 0."""
        self._counts[bucket_of(max(0, nanoseconds) // 1000)] += 1

    def take(self):
        """Return (microseconds, count) pairs since the last call."""
        cdef int bucket
        taken = []
        for bucket in range(BUCKETS):
            if self._counts[bucket]:
                taken.append((bucket_value(bucket), self._counts[bucket]))
                self._counts[bucket] = 0
        return taken
