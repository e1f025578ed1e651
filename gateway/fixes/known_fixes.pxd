from libc.stdint cimport int64_t, uint64_t

from gateway.fixes.device_times cimport DeviceTimes
from gateway.fixes.stored_keys cimport StoredKeys


cdef struct FixKey:
    int64_t key     # hash of device and id
    int64_t device  # hash of the device alone
    int64_t time    # the fix's own, ms since 1970


cdef struct Table:
    uint64_t* slots  # 0: empty
    uint64_t mask    # number of slots (a power of two) minus one
    uint64_t filled


cdef class KnownFixes:
    cdef uint64_t _generation_size
    cdef Table _younger
    cdef Table _older
    cdef readonly DeviceTimes times
    cdef readonly StoredKeys stored
    cdef uint64_t* _unsaved
    cdef Py_ssize_t _unsaved_count
    cdef Py_ssize_t _unsaved_room
    cdef readonly Py_ssize_t unsaved_lost

    cdef bint holds(self, int64_t key) noexcept
    cdef bint is_stored(self, const FixKey* fix) noexcept
    cdef void prefetch(self, int64_t key) noexcept
    cpdef add(self, int64_t key)
    cpdef add_old(self, int64_t key)
    cdef int _save(self, uint64_t key) except -1


cdef int64_t key_of(bytes device, const char* fix_id, Py_ssize_t size) except? -1


cdef int64_t key_of_device(bytes device) noexcept
