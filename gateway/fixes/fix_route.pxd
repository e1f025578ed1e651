from libc.stdint cimport int64_t

from gateway.fixes.fix_record cimport FixFields
from gateway.fixes.known_fixes cimport FixKey

cpdef enum:
    FORM_OTHER = 0
    FORM_POSITION = 1
    FORM_OWNTRACKS = 2


cdef class FixRoute:
    cdef bytes _device
    cdef int64_t _device_key
    cdef Py_ssize_t _user_size
    cdef int form

    cdef bytes record(self, bytes payload, int64_t received, FixKey* key)
    cdef Py_ssize_t write(
        self, FixFields* fields, int64_t received, FixKey* key, char* out
    ) except -1


cdef int64_t wall_clock_ms() noexcept
