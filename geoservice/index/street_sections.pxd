"""The sections of a street index as the kernel reads them; street_format.py describes them."""

from libc.stdint cimport int32_t, int64_t

cdef enum:
    OBJECT_WIDTH = 12
    OBJECT_PARENT = 4
    OBJECT_NUMBER = 5
    OBJECT_TAIL = 7
    OBJECT_LON = 8
    OBJECT_LAT = 9
    OBJECT_RANKS = 10

    LAYER_STREET = 1
    LAYER_PATH = 2
    LAYER_HOUSE = 4
    LAYER_POI = 8
    LAYER_FEATURES = 16 + 32 + 64
    LAYER_INTERPOLATION = 128
    IS_LINE = 256
    IS_AREA = 512

    AREA_WIDTH = 8
    CELL_SHIFT = 15
    AREA_CELL_SHIFT = 18

    # Nominatim's search distance to any object, in 1e-7 degrees.
    REACH = 70000

cdef struct Sections:
    const int32_t* objects
    const int32_t* boxes
    const int32_t* shapes
    const int32_t* vertices
    const unsigned char* cells
    int64_t cell_mask
    const int32_t* entries
    const int32_t* house_ends
    const int32_t* houses
    const int32_t* inside_ends
    const int32_t* inside
    const int32_t* interpolations
    int32_t interpolation_count
    const int32_t* areas
    const int32_t* bands
    const int32_t* edges
    const unsigned char* area_cells
    int64_t area_cell_mask
    const int32_t* area_entries
    const int32_t* kinds
    const int32_t* tails
    const char* tail_texts
    const int32_t* string_ends
    const char* strings
