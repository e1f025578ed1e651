from libc.stdint cimport int64_t, uint64_t


cdef struct DeviceTime:
    int64_t device  # 0 is an empty slot
    int64_t time


cdef class DeviceTimes:
    cdef DeviceTime* _slots
    cdef uint64_t _mask
    cdef uint64_t _filled
    cdef uint64_t _devices_max
    cdef public bint forgot

    cdef DeviceTime* find(self, int64_t device) noexcept
    cdef bint is_late(self, int64_t device, int64_t time) noexcept
    cdef int note(self, int64_t device, int64_t time, int64_t received) except -1
    cdef int _resize(self, uint64_t room) except -1
