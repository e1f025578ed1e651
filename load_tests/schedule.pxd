# cython: boundscheck=False, wraparound=False, cdivision=True
"""When each fix is due: device i of n sends its k-th fix at (i + k n) / rate."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

ctypedef struct Schedule:
    int devices
    double gap_ns  # between two fixes of the fleet
    int64_t start_ns  # of the monotonic clock
    int64_t start_wall_ms


cdef inline int64_t moment(const Schedule* schedule, uint64_t event) noexcept nogil:
    """Return when the fleet's fix of this number is due (ns)."""
    return schedule.start_ns + <int64_t>(event * schedule.gap_ns)


cdef inline int64_t moment_of(
    const Schedule* schedule, uint32_t index, uint32_t sequence
) noexcept nogil:
    """Return when a device's fix is due (ns)."""
    return moment(schedule, index + <uint64_t>sequence * schedule.devices)


cdef inline int64_t time_ms_of(
    const Schedule* schedule, uint32_t index, uint32_t sequence
) noexcept nogil:
    """Return the time that a device's fix has (ms since 1970)."""
    cdef int64_t since_ns = moment_of(schedule, index, sequence) - schedule.start_ns
    return schedule.start_wall_ms + since_ns // 1_000_000


cdef inline int64_t sequence_about(
    const Schedule* schedule, uint32_t index, int64_t time_ms
) noexcept nogil:
    """Return the number of a device's fix of this time.

    Rounding the time to milliseconds may have moved it by one.
    """
    return <int64_t>(
        ((time_ms - schedule.start_wall_ms) * 1e6 / schedule.gap_ns - index) / schedule.devices
        + 0.5
    )
