"""The kernel of street-level reverse geocoding: finds the nearest object by Nominatim's rules."""

from libc.stdint cimport int32_t, int64_t

from geoservice.index.street_geometry cimport Answer, Nearest, Query


cdef class StreetIndex:
    cdef object _sections
    cdef const int32_t* objects
    cdef const int32_t* boxes
    cdef const int32_t* shapes
    cdef const int32_t* vertices
    cdef const unsigned char* cells
    cdef int64_t cell_mask
    cdef const int32_t* entries
    cdef const int32_t* house_ends
    cdef const int32_t* houses
    cdef const int32_t* inside_ends
    cdef const int32_t* inside
    cdef const int32_t* interpolations
    cdef int32_t interpolation_count
    cdef const int32_t* areas
    cdef const int32_t* bands
    cdef const int32_t* edges
    cdef const unsigned char* area_cells
    cdef int64_t area_cell_mask
    cdef const int32_t* area_entries
    cdef const int32_t* kinds
    cdef const int32_t* tails
    cdef const char* tail_texts
    cdef const int32_t* string_ends
    cdef const char* strings
    cdef readonly int32_t object_count
    cdef readonly int32_t tail_count

    cdef const unsigned char* _pointer(self, str name, Py_ssize_t width) except? NULL
    cdef int64_t _mask(self, str name) except -1
    cdef void find(self, const Query* query, Answer* answer) noexcept nogil
    cdef void find_nearest(
        self, const Query* query, int32_t layers, double limit, int32_t parent, Nearest* best
    ) noexcept nogil
    cdef void search_cells(
        self, const Query* query, double x, int32_t layers, int32_t parent, Nearest* best
    ) noexcept nogil
    cdef void try_shape(
        self, const Query* query, double x, int32_t shape, Nearest* best
    ) noexcept nogil
    cdef void refine_street(self, const Query* query, Nearest* best) noexcept nogil
    cdef void refine_outline(self, const Query* query, Nearest* best) noexcept nogil
    cdef bint find_interpolation(
        self, const Query* query, int32_t street, double limit, Answer* answer
    ) noexcept nogil
    cdef void find_area(self, const Query* query, Answer* answer) noexcept nogil
    cdef double find_settlement(
        self, const Query* query, int32_t area, int32_t rank, Answer* answer
    ) noexcept nogil
    cdef double find_feature(self, const Query* query, Answer* answer) noexcept nogil
    cdef bint area_contains(self, int32_t area, double x, double y) noexcept nogil
