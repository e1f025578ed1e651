# The lookup kernel over a memory-mapped index. See index.pyx for the structures.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t


cdef struct Found:
    int32_t town      # number of the town; -1 without a country or where the country has no towns
    int32_t country   # number of the country, -1 at sea
    float distance    # metres to the town; NaN without one


cdef class WorldIndex:
    cdef object _buffers             # keeps the mapped memory alive
    cdef const int32_t* cells
    cdef const int32_t* leaves
    cdef const int32_t* pieces
    cdef const int32_t* vertices
    cdef const int32_t* countries
    cdef const int32_t* tree
    cdef const uint8_t* axes
    cdef const int32_t* towns
    cdef const int32_t* stray_ends
    cdef const int32_t* stray_tree
    cdef const uint8_t* stray_axes
    cdef const int32_t* strays
    cdef readonly int32_t cell_count
    cdef readonly int32_t leaf_count
    cdef readonly int32_t piece_count
    cdef readonly int32_t vertex_count
    cdef readonly int32_t country_count
    cdef readonly int32_t town_count
    cdef readonly int32_t stray_count

    cdef void find(self, double lat, double lon, Found* found) noexcept nogil
    cdef int32_t country_at(self, uint32_t u, uint32_t v) noexcept nogil
    cdef int32_t country_near(self, double lat, int64_t u, int64_t v) noexcept nogil
    cdef void search_near(
        self, int64_t u, int64_t v, int64_t du, int64_t dv, double scale,
        double* best, int32_t* country,
    ) noexcept nogil
    cdef double piece_distance(
        self, int32_t piece, int64_t u, int64_t v, double scale
    ) noexcept nogil
    cdef void claim_stray(
        self, int32_t place, const double* point, double farthest, double* square, Found* found
    ) noexcept nogil
    cdef int32_t country_of(self, int32_t town) noexcept nogil


cdef int32_t nearest(
    const int32_t* tree, const uint8_t* axes, int32_t low, int32_t high,
    const double* point, double* square,
) noexcept nogil
