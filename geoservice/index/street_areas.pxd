# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What is around a point with nothing near: areas, settlements and features of a street index."""

from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t

from geoservice.index.street_geometry cimport (
    HALF_TURN,
    QUARTER_TURN,
    SHAPE_FIRST,
    SHAPE_LAYERS,
    SHAPE_OBJECT,
    SHAPE_SOUTH,
    SHAPE_WEST,
    SHAPE_WIDTH,
    Answer,
    Query,
    crosses,
    find_cell,
    ground_metres,
    reverse_diameter,
    shape_distance,
)
from geoservice.index.street_sections cimport (
    AREA_CELL_SHIFT,
    AREA_WIDTH,
    CELL_SHIFT,
    IS_LINE,
    LAYER_FEATURES,
    LAYER_HOUSE,
    OBJECT_LAT,
    OBJECT_LON,
    OBJECT_RANKS,
    OBJECT_TAIL,
    OBJECT_WIDTH,
    REACH,
    Sections,
)


cdef inline bint area_contains(
    const Sections* index, int32_t area, double x, double y
) noexcept nogil:
    cdef const int32_t* row = index.areas + <int64_t>area * AREA_WIDTH
    cdef int64_t band
    cdef int32_t first, i
    cdef const int32_t* edge
    cdef bint inside = False
    if x < row[3] or x > row[5] or y < row[4] or y > row[6]:
        return False
    band = row[2] + (<int64_t>y - row[4]) // row[7]
    if band >= row[AREA_WIDTH + 2]:
        band = row[AREA_WIDTH + 2] - 1
    first = index.bands[band - 1] if band else 0
    for i in range(first, index.bands[band]):
        edge = index.edges + 4 * <int64_t>i
        if crosses(edge[0], edge[1], edge[2], edge[3], x, y):
            inside = not inside
    return inside


cdef inline double find_settlement(
    const Sections* index, const Query* query, int32_t area, int32_t rank, Answer* answer
) noexcept nogil:
    """Find the place node in an area (-1: anywhere) that reaches a point; return its distance.

    Only nodes of finer ranks than `rank` count. The nearest node of the finest rank wins.
    """
    cdef int64_t column = (<int64_t>query.x + HALF_TURN) >> AREA_CELL_SHIFT
    cdef int64_t row = (<int64_t>query.y + QUARTER_TURN) >> AREA_CELL_SHIFT
    cdef int32_t first, end, i, number, own_rank, best_rank = 0
    cdef const int32_t* placed
    cdef double square, best = 1e300, dx, dy, reach
    answer.object = -1
    if not find_cell(index.area_cells, index.area_cell_mask, column, row, &first, &end):
        return 0.0
    for i in range(first, end):
        number = -1 - index.area_entries[i]
        if number < 0:
            continue
        placed = index.objects + <int64_t>number * OBJECT_WIDTH
        own_rank = placed[OBJECT_RANKS] & 0xFF
        if not rank < own_rank <= query.rank_max:
            continue
        if own_rank < best_rank:
            break
        dx = (placed[OBJECT_LON] - query.x) * query.scale
        dy = placed[OBJECT_LAT] - query.y
        square = dx * dx + dy * dy
        reach = reverse_diameter(own_rank)
        if square >= reach * reach or square >= best:
            continue
        if area < 0 or area_contains(index, area, placed[OBJECT_LON], placed[OBJECT_LAT]):
            answer.object = number
            answer.lon = placed[OBJECT_LON]
            answer.lat = placed[OBJECT_LAT]
            answer.distance = ground_metres(query, answer.lon, answer.lat)
            best_rank = own_rank
            best = square
    return sqrt(best) if answer.object >= 0 else 0.0


cdef inline double find_feature(
    const Sections* index, const Query* query, Answer* answer
) noexcept nogil:
    """Find a peak, a lake or a railway near a point: the finest rank wins, then the nearest."""
    cdef int32_t first, end, i, number, shape_rank, rank = -1, layers
    cdef int64_t column, row, c, r
    cdef int64_t reach = <int64_t>REACH
    cdef const int32_t* shape
    cdef double best = 1e300, square, x, y, dx, dy
    answer.object = -1
    answer.number = -1
    answer.distance = 0.0
    column = (<int64_t>query.x + HALF_TURN) >> AREA_CELL_SHIFT
    row = (<int64_t>query.y + QUARTER_TURN) >> AREA_CELL_SHIFT
    if find_cell(index.area_cells, index.area_cell_mask, column, row, &first, &end):
        for i in range(first, end):
            number = index.area_entries[i]
            if number < 0:
                continue
            layers = index.areas[<int64_t>number * AREA_WIDTH + 1] >> 16
            shape_rank = index.areas[<int64_t>number * AREA_WIDTH + 1] & 0xFF
            if not layers & query.layers or shape_rank > query.rank_max:
                continue
            if area_contains(index, number, query.x, query.y):
                rank = shape_rank
                best = 0.0
                answer.object = index.areas[<int64_t>number * AREA_WIDTH]
                answer.lon = index.objects[<int64_t>answer.object * OBJECT_WIDTH + OBJECT_LON]
                answer.lat = index.objects[<int64_t>answer.object * OBJECT_WIDTH + OBJECT_LAT]
                break
    column = (<int64_t>query.x + HALF_TURN - reach) >> CELL_SHIFT
    row = (<int64_t>query.y + QUARTER_TURN - reach) >> CELL_SHIFT
    for r in range(row, ((<int64_t>query.y + QUARTER_TURN + reach) >> CELL_SHIFT) + 1):
        for c in range(column, ((<int64_t>query.x + HALF_TURN + reach) >> CELL_SHIFT) + 1):
            if not find_cell(index.cells, index.cell_mask, c, r, &first, &end):
                continue
            for i in range(first, end):
                shape = index.shapes + <int64_t>index.entries[i] * SHAPE_WIDTH
                if not shape[SHAPE_LAYERS] & query.layers & LAYER_FEATURES:
                    continue
                shape_rank = (
                    index.objects[<int64_t>shape[SHAPE_OBJECT] * OBJECT_WIDTH + OBJECT_RANKS]
                    & 0xFF
                )
                if shape_rank > query.rank_max or shape_rank < rank:
                    continue
                if shape[SHAPE_LAYERS] & IS_LINE:
                    square = shape_distance(
                        index.vertices, shape[SHAPE_FIRST], shape[SHAPE_WIDTH + SHAPE_FIRST],
                        False, query.x, query.y, query.scale, 1e300, &x, &y,
                    )
                else:
                    x = shape[SHAPE_WEST]
                    y = shape[SHAPE_SOUTH]
                    dx = (x - query.x) * query.scale
                    square = dx * dx + (y - query.y) ** 2
                if max((x - query.x) ** 2, (y - query.y) ** 2) > <double>REACH * REACH:
                    continue
                if shape_rank > rank or square < best:
                    rank = shape_rank
                    best = square
                    answer.object = shape[SHAPE_OBJECT]
                    answer.lon = x
                    answer.lat = y
    if answer.object >= 0:
        answer.tail = index.objects[<int64_t>answer.object * OBJECT_WIDTH + OBJECT_TAIL]
        if best > 0.0:
            answer.distance = ground_metres(query, answer.lon, answer.lat)
    return sqrt(best)


cdef inline void find_area(
    const Sections* index, const Query* query, Answer* answer
) noexcept nogil:
    """Find the smallest area around a point with nothing near, or a settlement inside it."""
    cdef int64_t column = (<int64_t>query.x + HALF_TURN) >> AREA_CELL_SHIFT
    cdef int64_t row = (<int64_t>query.y + QUARTER_TURN) >> AREA_CELL_SHIFT
    cdef int32_t first, end, i, number, area = -1, rank = 0, node = -1
    cdef const int32_t* placed
    cdef double square, distance = 0.0
    cdef Answer feature
    if not find_cell(index.area_cells, index.area_cell_mask, column, row, &first, &end):
        return
    if query.layers & LAYER_HOUSE:
        # Entries are sorted from small to large.
        for i in range(first, end):
            number = index.area_entries[i]
            if number < 0 or index.areas[<int64_t>number * AREA_WIDTH + 1] >> 16:
                continue
            rank = index.areas[<int64_t>number * AREA_WIDTH + 1] & 0xFF
            if rank <= query.rank_max and area_contains(index, number, query.x, query.y):
                area = number
                break
        if area >= 0:
            if rank < query.rank_max:
                distance = find_settlement(index, query, area, rank, answer)
            if answer.object >= 0:
                node = answer.object
            else:
                answer.object = index.areas[<int64_t>area * AREA_WIDTH]
    if query.layers & LAYER_FEATURES:
        square = find_feature(index, query, &feature)
        if feature.object >= 0 and (answer.object < 0 or square < distance):
            answer[0] = feature
            return
    if answer.object >= 0:
        placed = index.objects + <int64_t>answer.object * OBJECT_WIDTH
        answer.tail = placed[OBJECT_TAIL]
        answer.lon = placed[OBJECT_LON]
        answer.lat = placed[OBJECT_LAT]
        if node >= 0:
            answer.distance = ground_metres(query, answer.lon, answer.lat)
