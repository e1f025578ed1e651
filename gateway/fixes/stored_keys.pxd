from libc.stdint cimport uint64_t


cdef struct Run:
    const uint64_t* keys
    uint64_t count


cdef class StoredKeys:
    cdef Run* _runs
    cdef Py_ssize_t _count
    cdef list _mapped

    cdef bint holds(self, uint64_t key) noexcept
