from gateway.fixes.known_fixes cimport FixKey


cdef struct Written:
    FixKey key
    size_t start           # offset of the record in the memory of all records
    size_t size
    size_t identity_size
    bint named             # whether its id is the client's own


cdef class PlainRecords:
    cdef char* _bytes
    cdef size_t _size
    cdef size_t _capacity
    cdef Written* _written
    cdef Py_ssize_t _count
    cdef Py_ssize_t _places
    cdef list _devices

    cdef int add(
        self, bytes device, const char* record, size_t size, size_t identity_size, const FixKey* key,
        bint named,
    ) except -1
    cdef bytes joined_ids(self, bint own)
