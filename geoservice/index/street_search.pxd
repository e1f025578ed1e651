# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The nearest shape of a street index: cells around a point are searched in rings."""

from libc.math cimport floor
from libc.stdint cimport int32_t, int64_t

from geoservice.index.street_geometry cimport (
    HALF_TURN,
    QUARTER_TURN,
    SHAPE_EAST,
    SHAPE_FIRST,
    SHAPE_LAYERS,
    SHAPE_NORTH,
    SHAPE_OBJECT,
    SHAPE_SOUTH,
    SHAPE_WEST,
    SHAPE_WIDTH,
    Nearest,
    Query,
    find_cell,
    shape_distance,
)
from geoservice.index.street_sections cimport (
    CELL_SHIFT,
    IS_AREA,
    IS_LINE,
    OBJECT_LAT,
    OBJECT_LON,
    OBJECT_PARENT,
    OBJECT_WIDTH,
    REACH,
    Sections,
)


cdef inline void try_shape(
    const Sections* index, const Query* query, double x, int32_t number, Nearest* best
) noexcept nogil:
    cdef const int32_t* shape = index.shapes + <int64_t>number * SHAPE_WIDTH
    cdef double dx = 0.0, dy = 0.0, square, extent
    cdef const int32_t* placed
    cdef double nearest_x, nearest_y
    if x < shape[SHAPE_WEST]:
        dx = (shape[SHAPE_WEST] - x) * query.scale
    elif x > shape[SHAPE_EAST]:
        dx = (x - shape[SHAPE_EAST]) * query.scale
    if query.y < shape[SHAPE_SOUTH]:
        dy = shape[SHAPE_SOUTH] - query.y
    elif query.y > shape[SHAPE_NORTH]:
        dy = query.y - shape[SHAPE_NORTH]
    square = dx * dx + dy * dy
    if square > best.square or (square == best.square and square > 0.0):
        return
    if not shape[SHAPE_LAYERS] & (IS_LINE | IS_AREA):
        if square < best.square:
            best.shape = number
            best.square = square
            best.x = shape[SHAPE_WEST]
            best.y = shape[SHAPE_SOUTH]
            best.extent = 0.0
        return
    extent = 0.0
    if shape[SHAPE_LAYERS] & IS_AREA:
        placed = index.objects + <int64_t>shape[SHAPE_OBJECT] * OBJECT_WIDTH
        dx = (placed[OBJECT_LON] - x) * query.scale
        dy = placed[OBJECT_LAT] - query.y
        if dx * dx + dy * dy >= <double>REACH * REACH:
            return
        extent = (<double>shape[SHAPE_EAST] - shape[SHAPE_WEST]) * (
            <double>shape[SHAPE_NORTH] - shape[SHAPE_SOUTH]
        )
    square = shape_distance(
        index.vertices, shape[SHAPE_FIRST], shape[SHAPE_WIDTH + SHAPE_FIRST],
        (shape[SHAPE_LAYERS] & IS_AREA) != 0, x, query.y, query.scale, best.square,
        &nearest_x, &nearest_y,
    )
    if square < best.square or (square == 0.0 and best.square == 0.0 and extent < best.extent):
        best.shape = number
        best.square = square
        best.x = nearest_x
        best.y = nearest_y
        best.extent = extent


cdef inline void try_cell(
    const Sections* index, const Query* query, double x, int64_t column, int64_t row,
    int32_t layers, int32_t parent, Nearest* best,
) noexcept nogil:
    cdef int32_t first, end, i, number
    cdef const int32_t* shape
    if not find_cell(index.cells, index.cell_mask, column, row, &first, &end):
        return
    for i in range(first, end):
        number = index.entries[i]
        shape = index.shapes + <int64_t>number * SHAPE_WIDTH
        if not shape[SHAPE_LAYERS] & layers:
            continue
        if parent >= 0 and (
            index.objects[<int64_t>shape[SHAPE_OBJECT] * OBJECT_WIDTH + OBJECT_PARENT] != parent
        ):
            continue
        try_shape(index, query, x, number, best)


cdef inline void search_cells(
    const Sections* index, const Query* query, double x, int32_t layers, int32_t parent,
    Nearest* best,
) noexcept nogil:
    cdef int64_t column = <int64_t>floor((x + HALF_TURN) / (1 << CELL_SHIFT))
    cdef int64_t row = <int64_t>floor((query.y + QUARTER_TURN) / (1 << CELL_SHIFT))
    cdef int64_t ring = 0, i, j, step
    cdef double side, west, east, south, north
    cdef double size = <double>(1 << CELL_SHIFT)
    # Distances from the point to the sides of its cell.
    west = x + HALF_TURN - column * size
    south = query.y + QUARTER_TURN - row * size
    east = size - west
    north = size - south
    while True:
        if ring:
            side = (min(west, east) + (ring - 1) * size) * query.scale
            side = min(side, min(south, north) + (ring - 1) * size)
            if side * side >= best.square:
                return
        for j in range(-ring, ring + 1):
            # Rows between the first and the last contribute only their two end cells to the ring.
            step = 1 if j == -ring or j == ring or ring == 0 else 2 * ring
            i = -ring
            while i <= ring:
                try_cell(index, query, x, column + i, row + j, layers, parent, best)
                i += step
        ring += 1


cdef inline void find_nearest(
    const Sections* index, const Query* query, int32_t layers, double limit, int32_t parent,
    Nearest* best,
) noexcept nogil:
    """Find the nearest shape of these layers that is nearer than the limit."""
    cdef double wide = limit / query.scale
    best.shape = -1
    best.square = limit * limit
    best.extent = 1e300
    search_cells(index, query, query.x, layers, parent, best)
    # Search also on the other side of the date line.
    if query.x - wide < -HALF_TURN:
        search_cells(index, query, query.x + 2.0 * HALF_TURN, layers, parent, best)
    elif query.x + wide > HALF_TURN:
        search_cells(index, query, query.x - 2.0 * HALF_TURN, layers, parent, best)
