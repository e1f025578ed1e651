"""The kernel of street-level reverse geocoding: which object is nearest, by Nominatim's rules."""

from libc.stdint cimport int32_t, int64_t

# What of a point of the earth the search uses. Everything is in 1e-7 degrees; distances are in
# those of latitude.
cdef struct Query:
    double x
    double y
    double scale  # what a degree of longitude is worth
    double cosine  # the same on the ground
    int32_t layers  # bits of street_format.LAYER_*
    int32_t rank_max

cdef struct Answer:
    int32_t object  # -1: none
    int32_t tail
    int32_t number  # interpolated house number, or -1
    double distance  # metres on the ground
    double lon  # the nearest point of a street, the middle of anything else
    double lat

cdef struct Nearest:
    int32_t shape
    double square
    double x  # the nearest point
    double y
    double extent  # of two outlines around a point the smaller counts


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
