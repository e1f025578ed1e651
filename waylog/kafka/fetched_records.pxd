"""Records as a broker sends them; see fetched_records.pyx."""

from libc.stdint cimport int32_t, int64_t


cdef class FetchedRecord:
    cdef str _topic
    cdef bytes _key
    cdef bytes _value
    cdef int32_t _partition
    cdef int64_t _offset
    cdef int64_t _timestamp
    cdef int _timestamp_kind


cdef class AbortedTransactions:
    cdef list _listed
    cdef set _open

    cdef bint leaves_out(self, int64_t producer_id, int64_t base_offset, int attributes,
                         const unsigned char* records, Py_ssize_t size) except -1
