"""Geometry of the street kernel: shapes, cells and distances on integer coordinates."""

from libc.math cimport M_PI, cos, sqrt
from libc.stdint cimport int32_t, int64_t, uint64_t

cdef enum:
    SHAPE_WIDTH = 8
    SHAPE_OBJECT = 0
    SHAPE_TAIL = 1
    SHAPE_FIRST = 2
    SHAPE_LAYERS = 3
    SHAPE_WEST = 4
    SHAPE_SOUTH = 5
    SHAPE_EAST = 6
    SHAPE_NORTH = 7

    HALF_TURN = 1800000000
    QUARTER_TURN = 900000000
    # Marks the end of a ring among vertices.
    RING_END = -2147483648

    # Within 5 degrees of the poles there are no streets, and cells are so narrow that a search
    # would visit many. This is the lower limit of the cosine of the latitude, in thousandths.
    COSINE_MIN = 87

# The query point and options. Positions are in 1e-7 degrees; distances are in 1e-7 degrees of
# latitude.
cdef struct Query:
    double x
    double y
    double scale  # a degree of longitude in degrees of latitude; 1 to measure in degrees
    double cosine  # the same, always measured on the ground
    int32_t layers  # bits of street_format.LAYER_*
    int32_t rank_max

cdef struct Answer:
    int32_t object  # -1 if there is none
    int32_t tail
    int32_t number  # interpolated house number, or -1
    double distance  # metres on the ground
    double lon  # nearest point of a line; point on the surface of anything else
    double lat

cdef struct Nearest:
    int32_t shape
    double square
    double x  # the nearest point
    double y
    double extent  # area of the box: of two outlines around a point the smaller one wins


cdef inline void make_query(
    Query* query, double lat, double lon, int32_t layers, int32_t rank_max, bint degrees
) noexcept nogil:
    query.x = lon * 1e7
    query.y = lat * 1e7
    query.cosine = cos(lat * M_PI / 180.0)
    query.scale = 1.0 if degrees else max(COSINE_MIN * 1e-3, query.cosine)
    query.layers = layers
    query.rank_max = rank_max


cdef inline double ground_metres(const Query* query, double x, double y) noexcept nogil:
    cdef double dx = x - query.x
    if dx > HALF_TURN:
        dx -= 2.0 * HALF_TURN
    elif dx < -HALF_TURN:
        dx += 2.0 * HALF_TURN
    dx *= query.cosine
    # A degree of latitude is 111.195 km.
    return 0.01111950802335329 * sqrt(dx * dx + (y - query.y) ** 2)


cdef inline double reverse_diameter(int32_t rank_search) noexcept nogil:
    """Return how far a place of this rank reaches, in 1e-7 degrees; see importer/ranks.py."""
    if rank_search <= 4:
        return 5.0e7
    if rank_search <= 8:
        return 1.8e7
    if rank_search <= 12:
        return 0.6e7
    if rank_search <= 17:
        return 0.16e7
    if rank_search <= 18:
        return 0.08e7
    if rank_search <= 19:
        return 0.04e7
    return 0.02e7


cdef inline bint find_cell(
    const unsigned char* table, int64_t mask, int64_t column, int64_t row,
    int32_t* first, int32_t* end,
) noexcept nogil:
    cdef int64_t key = (row << 32) | column
    cdef int64_t slot = <int64_t>((<uint64_t>key * <uint64_t>0x9E3779B97F4A7C15) >> 32) & mask
    cdef int64_t found
    cdef int64_t tries
    if column < 0 or row < 0:
        return False
    for tries in range(mask + 1):
        found = (<const int64_t*>(table + 16 * slot))[0]
        if found == key:
            first[0] = (<const int32_t*>(table + 16 * slot + 8))[0]
            end[0] = (<const int32_t*>(table + 16 * slot + 12))[0]
            return True
        if found == -1:
            return False
        slot = (slot + 1) & mask
    return False


cdef inline bint crosses(
    double x1, double y1, double x2, double y2, double x, double y
) noexcept nogil:
    """Return whether the ray that goes east from a point crosses this edge."""
    if (y1 > y) == (y2 > y):
        return False
    return x < x1 + (x2 - x1) * (y - y1) / (y2 - y1)


cdef inline double shape_distance(
    const int32_t* vertices, int32_t first, int32_t end, bint is_area, double x, double y,
    double scale, double limit, double* nearest_x, double* nearest_y,
) noexcept nogil:
    """Return the squared distance to a line or an outline, and set the nearest point.

    The distance is 0 inside an outline, and 1e300 if it is not below the limit.
    """
    cdef const int32_t* vertex = vertices + 2 * <int64_t>first
    cdef double best = limit, x1, y1, x2, y2, dx, dy, along, square
    cdef bint inside = False
    cdef int32_t i
    nearest_x[0] = x
    nearest_y[0] = y
    if end - first < 1:
        return 1e300
    # The query point is the origin of this plane.
    x1 = (vertex[0] - x) * scale
    y1 = vertex[1] - y
    if end - first == 1:
        nearest_x[0] = vertex[0]
        nearest_y[0] = vertex[1]
        return x1 * x1 + y1 * y1
    for i in range(first + 1, end):
        vertex += 2
        if vertex[0] == RING_END:
            # The next ring begins after the marker.
            continue
        x2 = (vertex[0] - x) * scale
        y2 = vertex[1] - y
        if (vertex - 2)[0] == RING_END:
            x1 = x2
            y1 = y2
            continue
        dx = x2 - x1
        dy = y2 - y1
        square = dx * dx + dy * dy
        along = 0.0
        if square > 0.0:
            along = min(1.0, max(0.0, -(x1 * dx + y1 * dy) / square))
        if is_area and (y1 > 0.0) != (y2 > 0.0):
            if 0.0 < x1 - dx * y1 / dy:
                inside = not inside
        dx = x1 + along * dx
        dy = y1 + along * dy
        square = dx * dx + dy * dy
        if square < best:
            best = square
            nearest_x[0] = x + dx / scale
            nearest_y[0] = y + dy
        x1 = x2
        y1 = y2
    if inside:
        nearest_x[0] = x
        nearest_y[0] = y
        return 0.0
    return best if best < limit else 1e300


cdef inline double along(
    const int32_t* shapes, const int32_t* vertices, int32_t low, int32_t high, int32_t chosen, double x, double y,
    double* length,
) noexcept nogil:
    """Return the position of a point of piece `chosen` along a line, and set the line's length.

    Both are measured on a flat map, in 1e-7 degrees.
    """
    cdef int32_t shape, i, first, end
    cdef double total = 0.0, position = -1.0, best = 1e300, x1, y1, x2, y2, piece, part, gap
    for shape in range(low, high + 1):
        first = shapes[<int64_t>shape * SHAPE_WIDTH + SHAPE_FIRST]
        end = shapes[<int64_t>(shape + 1) * SHAPE_WIDTH + SHAPE_FIRST]
        for i in range(first, end - 1):
            x1 = vertices[2 * <int64_t>i]
            y1 = vertices[2 * <int64_t>i + 1]
            x2 = vertices[2 * <int64_t>i + 2]
            y2 = vertices[2 * <int64_t>i + 3]
            piece = sqrt((x2 - x1) ** 2 + (y2 - y1) ** 2)
            if shape == chosen and piece > 0.0:
                part = ((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / (piece * piece)
                part = min(1.0, max(0.0, part))
                gap = (x1 + part * (x2 - x1) - x) ** 2 + (y1 + part * (y2 - y1) - y) ** 2
                if gap < best:
                    best = gap
                    position = total + part * piece
            total += piece
    length[0] = total
    return max(0.0, position)


cdef inline void point_along(
    const int32_t* shapes, const int32_t* vertices, int32_t low, int32_t high, double distance, double* lon, double* lat
) noexcept nogil:
    cdef int32_t shape, i, first, end
    cdef double x1, y1, x2, y2, piece
    for shape in range(low, high + 1):
        first = shapes[<int64_t>shape * SHAPE_WIDTH + SHAPE_FIRST]
        end = shapes[<int64_t>(shape + 1) * SHAPE_WIDTH + SHAPE_FIRST]
        for i in range(first, end - 1):
            x1 = vertices[2 * <int64_t>i]
            y1 = vertices[2 * <int64_t>i + 1]
            x2 = vertices[2 * <int64_t>i + 2]
            y2 = vertices[2 * <int64_t>i + 3]
            piece = sqrt((x2 - x1) ** 2 + (y2 - y1) ** 2)
            if distance <= piece:
                if piece > 0.0:
                    lon[0] = x1 + (x2 - x1) * distance / piece
                    lat[0] = y1 + (y2 - y1) * distance / piece
                return
            distance -= piece
            lon[0] = x2
            lat[0] = y2
