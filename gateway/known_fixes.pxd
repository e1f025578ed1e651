from libc.stdint cimport int64_t, uint64_t


cdef struct Table:
    uint64_t* slots  # 0 is an empty one
    uint64_t mask    # number of slots, a power of two, less one
    uint64_t filled


cdef class KnownFixes:
    cdef uint64_t _generation_size
    cdef Table _younger
    cdef Table _older

    cdef bint holds(self, int64_t key) noexcept
    cdef void prefetch(self, int64_t key) noexcept
    cpdef add(self, int64_t key)


cdef int64_t key_of(bytes device, const char* fix_id, Py_ssize_t size) except? -1
