"""The kernel of street-level reverse geocoding: finds the nearest object by Nominatim's rules."""

from libc.stdint cimport int32_t, int64_t

from geoservice.index.street_geometry cimport Answer, Nearest, Query
from geoservice.index.street_sections cimport Sections


cdef class StreetIndex:
    cdef object _memory             # memoryviews by the names of the sections
    cdef Sections sections
    cdef readonly int32_t object_count
    cdef readonly int32_t tail_count

    cdef const unsigned char* _pointer(self, str name, Py_ssize_t width) except? NULL
    cdef int64_t _mask(self, str name) except -1
    cdef void find(self, const Query* query, Answer* answer) noexcept nogil
    cdef void refine_street(self, const Query* query, Nearest* best) noexcept nogil
    cdef void refine_outline(self, const Query* query, Nearest* best) noexcept nogil
    cdef bint find_interpolation(
        self, const Query* query, int32_t street, double limit, Answer* answer
    ) noexcept nogil
