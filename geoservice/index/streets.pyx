# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The kernel of street-level reverse geocoding: finds the nearest object by Nominatim's rules.

street_check.pyx has verified all numbers in the sections before, so that the kernel follows them
without bounds checks. A search changes nothing, so that threads can share an index.
"""

from cpython cimport array as carray
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.math cimport floor, isfinite, rint, sqrt
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
    SHAPE_TAIL,
    SHAPE_WEST,
    SHAPE_WIDTH,
    Answer,
    Nearest,
    Query,
    along,
    crosses,
    find_cell,
    ground_metres,
    make_query,
    point_along,
    reverse_diameter,
    shape_distance,
)

import array

from geoservice.index import street_format as sections

cdef enum:
    OBJECT_WIDTH = 12
    OBJECT_NAMES = 3
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

    FLAG_NODE = 1 << 16

    AREA_WIDTH = 8
    CELL_SHIFT = 15
    AREA_CELL_SHIFT = 18
    RANK_HOUSE = 30

cdef double FULL_TURN = 3600000000.0

# Nominatim's search distances, in 1e-7 degrees: to any object, from a street to its house or from
# the query to a point in its outline, and to an interpolation line.
cdef double REACH = 70000.0
cdef double NEAR = 10000.0
cdef double INTERPOLATION_REACH = 60000.0

cdef object EMPTY_INT = array.array("i")
cdef object EMPTY_DOUBLE = array.array("d")


cdef class StreetIndex:
    """A search over the sections of a street index."""

    def __init__(self, sections_by_name):
        """Take the sections of street_format and the strings, as memoryviews of bytes.

        Their memory must stay mapped as long as this object lives.
        """
        self._sections = dict(sections_by_name)
        self.objects = <const int32_t*>self._pointer(sections.OBJECTS, 4 * OBJECT_WIDTH)
        self.object_count = <int32_t>(len(self._sections[sections.OBJECTS]) // (4 * OBJECT_WIDTH))
        self.boxes = <const int32_t*>self._pointer(sections.BOXES, 16)
        self.shapes = <const int32_t*>self._pointer(sections.SHAPES, 4 * SHAPE_WIDTH)
        self.vertices = <const int32_t*>self._pointer(sections.VERTICES, 8)
        self.cells = self._pointer(sections.CELLS, 16)
        self.cell_mask = self._mask(sections.CELLS)
        self.entries = <const int32_t*>self._pointer(sections.ENTRIES, 4)
        self.house_ends = <const int32_t*>self._pointer(sections.HOUSE_ENDS, 4)
        self.houses = <const int32_t*>self._pointer(sections.HOUSES, 4)
        self.inside_ends = <const int32_t*>self._pointer(sections.INSIDE_ENDS, 4)
        self.inside = <const int32_t*>self._pointer(sections.INSIDE, 4)
        self.interpolations = <const int32_t*>self._pointer(sections.INTERPOLATIONS, 16)
        self.interpolation_count = <int32_t>(len(self._sections[sections.INTERPOLATIONS]) // 16)
        self.areas = <const int32_t*>self._pointer(sections.AREAS, 4 * AREA_WIDTH)
        self.bands = <const int32_t*>self._pointer(sections.BANDS, 4)
        self.edges = <const int32_t*>self._pointer(sections.EDGES, 16)
        self.area_cells = self._pointer(sections.AREA_CELLS, 16)
        self.area_cell_mask = self._mask(sections.AREA_CELLS)
        self.area_entries = <const int32_t*>self._pointer(sections.AREA_ENTRIES, 4)
        self.kinds = <const int32_t*>self._pointer(sections.KINDS, 12)
        self.tails = <const int32_t*>self._pointer(sections.TAILS, 20)
        self.tail_count = <int32_t>(len(self._sections[sections.TAILS]) // 20 - 1)
        self.tail_texts = <const char*>self._pointer(sections.TAIL_TEXTS, 1)
        self.string_ends = <const int32_t*>self._pointer("string ends", 4)
        self.strings = <const char*>self._pointer("strings", 1)
        if (
            len(self._sections[sections.HOUSE_ENDS]) != 4 * self.object_count
            or len(self._sections[sections.INSIDE_ENDS]) != 4 * self.object_count
            or len(self._sections[sections.BOXES]) != 16 * self.object_count
        ):
            raise ValueError("the sections of the objects do not belong together")

    cdef const unsigned char* _pointer(self, str name, Py_ssize_t width) except? NULL:
        cdef Py_buffer buffer
        cdef const unsigned char* pointer
        section = self._sections[name]
        if len(section) % width:
            raise ValueError(f"section {name!r} ends within an entry")
        PyObject_GetBuffer(section, &buffer, PyBUF_SIMPLE)
        pointer = <const unsigned char*>buffer.buf
        # The memoryview in `_sections` keeps the mapping alive.
        PyBuffer_Release(&buffer)
        return pointer

    cdef int64_t _mask(self, str name) except -1:
        cdef int64_t size = len(self._sections[name]) // 16
        if size < 1 or size & (size - 1):
            raise ValueError(f"section {name!r} is no hash table")
        return size - 1

    def reverse(self, double lat, double lon, int32_t layers, int32_t rank_max, bint degrees):
        """Return (object, tail, number, metres, lat, lon) of a point; object -1 if none is found.

        Raises ValueError when it is not a point on earth.
        """
        cdef Query query
        cdef Answer answer
        check_point(lat, lon)
        make_query(&query, lat, lon, layers, rank_max, degrees)
        with nogil:
            self.find(&query, &answer)
        return (
            answer.object, answer.tail, answer.number, answer.distance,
            answer.lat * 1e-7, answer.lon * 1e-7,
        )

    def nearest_settlement(self, double lat, double lon, int32_t rank_max, bint degrees):
        """Return (object, metres) of the settlement that reaches a point in no area, or -1.

        It is the nearest settlement of the finest rank that reaches the point.
        """
        cdef Query query
        cdef Answer answer
        check_point(lat, lon)
        make_query(&query, lat, lon, LAYER_HOUSE, rank_max, degrees)
        with nogil:
            self.find_settlement(&query, -1, 4, &answer)
        return answer.object, answer.distance

    def reverse_batch(
        self, const double[::1] lat not None, const double[::1] lon not None,
        int32_t layers, int32_t rank_max, bint degrees,
    ):
        """Return arrays of objects, tails, numbers, metres, latitudes and longitudes of points.

        Raises ValueError when the lengths differ or a point is not on earth.
        """
        cdef Py_ssize_t count = lat.shape[0], i
        cdef carray.array objects, tails, numbers, metres, lats, lons
        cdef Query query
        cdef Answer answer
        check_points(lat, lon)
        objects = carray.clone(EMPTY_INT, count, False)
        tails = carray.clone(EMPTY_INT, count, False)
        numbers = carray.clone(EMPTY_INT, count, False)
        metres = carray.clone(EMPTY_DOUBLE, count, False)
        lats = carray.clone(EMPTY_DOUBLE, count, False)
        lons = carray.clone(EMPTY_DOUBLE, count, False)
        with nogil:
            for i in range(count):
                make_query(&query, lat[i], lon[i], layers, rank_max, degrees)
                self.find(&query, &answer)
                objects.data.as_ints[i] = answer.object
                tails.data.as_ints[i] = answer.tail
                numbers.data.as_ints[i] = answer.number
                metres.data.as_doubles[i] = answer.distance
                lats.data.as_doubles[i] = answer.lat * 1e-7
                lons.data.as_doubles[i] = answer.lon * 1e-7
        return objects, tails, numbers, metres, lats, lons

    cdef void find(self, const Query* query, Answer* answer) noexcept nogil:
        cdef Nearest best
        cdef int32_t layers = 0, street = -1, object_number
        cdef double limit = INTERPOLATION_REACH
        cdef const int32_t* shape
        answer.object = -1
        answer.tail = -1
        answer.number = -1
        answer.distance = 0.0
        answer.lon = query.x
        answer.lat = query.y
        best.shape = -1
        if query.rank_max >= 26:
            if query.layers & LAYER_HOUSE:
                layers = LAYER_STREET
                if query.rank_max > 26:
                    layers |= LAYER_PATH
                if query.rank_max >= RANK_HOUSE:
                    layers |= LAYER_HOUSE
            if query.rank_max >= RANK_HOUSE:
                layers |= query.layers & LAYER_POI
            if layers:
                self.find_nearest(query, layers, REACH, -1, &best)
        if best.shape >= 0:
            shape = self.shapes + <int64_t>best.shape * SHAPE_WIDTH
            limit = sqrt(best.square)
            if shape[SHAPE_LAYERS] & (LAYER_STREET | LAYER_PATH):
                if query.rank_max > 27 and query.layers & LAYER_HOUSE:
                    street = shape[SHAPE_OBJECT]
                    limit = NEAR
                    self.refine_street(query, &best)
                    if self.shapes[<int64_t>best.shape * SHAPE_WIDTH] != street:
                        limit = sqrt(best.square)
            elif best.square == 0.0 and shape[SHAPE_LAYERS] & IS_AREA:
                self.refine_outline(query, &best)
        if (
            self.interpolation_count and query.rank_max > 27 and query.layers & LAYER_HOUSE
            and limit > 0.0 and self.find_interpolation(query, street, limit, answer)
        ):
            return
        if best.shape < 0:
            # Rank 4 is that of countries.
            if query.rank_max >= 4:
                self.find_area(query, answer)
            return
        shape = self.shapes + <int64_t>best.shape * SHAPE_WIDTH
        object_number = shape[SHAPE_OBJECT]
        answer.object = object_number
        answer.tail = shape[SHAPE_TAIL]
        answer.distance = ground_metres(query, best.x, best.y)
        if shape[SHAPE_LAYERS] & IS_LINE:
            answer.lon = best.x
            answer.lat = best.y
        else:
            answer.lon = self.objects[<int64_t>object_number * OBJECT_WIDTH + OBJECT_LON]
            answer.lat = self.objects[<int64_t>object_number * OBJECT_WIDTH + OBJECT_LAT]

    cdef void find_nearest(
        self, const Query* query, int32_t layers, double limit, int32_t parent, Nearest* best
    ) noexcept nogil:
        """Find the nearest shape of these layers that is nearer than the limit."""
        cdef double wide = limit / query.scale
        best.shape = -1
        best.square = limit * limit
        best.extent = 1e300
        self.search_cells(query, query.x, layers, parent, best)
        # Search also on the other side of the date line.
        if query.x - wide < -HALF_TURN:
            self.search_cells(query, query.x + FULL_TURN, layers, parent, best)
        elif query.x + wide > HALF_TURN:
            self.search_cells(query, query.x - FULL_TURN, layers, parent, best)

    cdef void search_cells(
        self, const Query* query, double x, int32_t layers, int32_t parent, Nearest* best
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
                # Rows between the first and the last contribute only their two end cells to the
                # ring.
                step = 1 if j == -ring or j == ring or ring == 0 else 2 * ring
                i = -ring
                while i <= ring:
                    self_try_cell(
                        self, query, x, column + i, row + j, west, south, layers, parent, best
                    )
                    i += step
            ring += 1

    cdef void try_shape(
        self, const Query* query, double x, int32_t number, Nearest* best
    ) noexcept nogil:
        cdef const int32_t* shape = self.shapes + <int64_t>number * SHAPE_WIDTH
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
            placed = self.objects + <int64_t>shape[SHAPE_OBJECT] * OBJECT_WIDTH
            dx = (placed[OBJECT_LON] - x) * query.scale
            dy = placed[OBJECT_LAT] - query.y
            if dx * dx + dy * dy >= REACH * REACH:
                return
            extent = (<double>shape[SHAPE_EAST] - shape[SHAPE_WEST]) * (
                <double>shape[SHAPE_NORTH] - shape[SHAPE_SOUTH]
            )
        square = shape_distance(
            self.vertices, shape[SHAPE_FIRST], shape[SHAPE_WIDTH + SHAPE_FIRST],
            (shape[SHAPE_LAYERS] & IS_AREA) != 0, x, query.y, query.scale, best.square,
            &nearest_x, &nearest_y,
        )
        if square < best.square or (square == 0.0 and best.square == 0.0 and extent < best.extent):
            best.shape = number
            best.square = square
            best.x = nearest_x
            best.y = nearest_y
            best.extent = extent

    cdef void refine_street(self, const Query* query, Nearest* best) noexcept nogil:
        """Replace a street in `best` by its house nearest to the street's point in `best`."""
        cdef int32_t street = self.shapes[<int64_t>best.shape * SHAPE_WIDTH + SHAPE_OBJECT]
        cdef int32_t first = self.house_ends[street - 1] if street else 0
        cdef int32_t i, house
        cdef const int32_t* shape
        cdef const int32_t* placed
        cdef double foot_x = best.x, foot_y = best.y, x = query.x
        cdef double nearest = NEAR * NEAR, square, dx, dy
        cdef double limit = min(REACH, sqrt(best.square) + NEAR) ** 2
        cdef Nearest candidate
        cdef int32_t wanted = query.layers & (LAYER_HOUSE | LAYER_POI)
        # The street may be on the other side of the date line.
        if foot_x - x > HALF_TURN:
            x += FULL_TURN
        elif x - foot_x > HALF_TURN:
            x -= FULL_TURN
        for i in range(first, self.house_ends[street]):
            house = self.houses[i]
            shape = self.shapes + <int64_t>house * SHAPE_WIDTH
            if not shape[SHAPE_LAYERS] & wanted:
                continue
            placed = self.objects + <int64_t>shape[SHAPE_OBJECT] * OBJECT_WIDTH
            dx = (placed[OBJECT_LON] - foot_x) * query.scale
            dy = placed[OBJECT_LAT] - foot_y
            square = dx * dx + dy * dy
            if square >= nearest:
                continue
            candidate.shape = -1
            candidate.square = limit
            candidate.extent = 1e300
            self.try_shape(query, x, house, &candidate)
            if candidate.shape >= 0:
                nearest = square
                best[0] = candidate

    cdef void refine_outline(self, const Query* query, Nearest* best) noexcept nogil:
        """Replace an outline around the query by the nearest point in it that is more specific."""
        cdef int32_t outline = self.shapes[<int64_t>best.shape * SHAPE_WIDTH + SHAPE_OBJECT]
        cdef int32_t first = self.inside_ends[outline - 1] if outline else 0
        cdef int32_t number = self.objects[<int64_t>outline * OBJECT_WIDTH + OBJECT_NUMBER]
        cdef int32_t i
        cdef const int32_t* shape
        cdef double square, nearest = NEAR * NEAR, dx, dy
        cdef int32_t wanted = query.layers & (LAYER_HOUSE | LAYER_POI)
        for i in range(first, self.inside_ends[outline]):
            shape = self.shapes + <int64_t>self.inside[i] * SHAPE_WIDTH
            if not shape[SHAPE_LAYERS] & wanted:
                continue
            if (
                number >= 0
                and self.objects[<int64_t>shape[SHAPE_OBJECT] * OBJECT_WIDTH + OBJECT_NUMBER]
                != number
            ):
                continue
            dx = (shape[SHAPE_WEST] - query.x) * query.scale
            dy = shape[SHAPE_SOUTH] - query.y
            square = dx * dx + dy * dy
            if square < nearest:
                nearest = square
                best.shape = self.inside[i]
                best.square = square
                best.x = shape[SHAPE_WEST]
                best.y = shape[SHAPE_SOUTH]

    cdef bint find_interpolation(
        self, const Query* query, int32_t street, double limit, Answer* answer
    ) noexcept nogil:
        """Find an interpolated house number on a line that is at most `limit` away."""
        cdef Nearest best
        cdef const int32_t* shape
        cdef const int32_t* counted
        cdef int32_t low = 0, high = self.interpolation_count - 1, middle, number
        cdef double position, fraction, step, length = 0.0
        # Widen the limit a little: find_nearest excludes it, but a line at the limit counts.
        self.find_nearest(query, LAYER_INTERPOLATION, limit * 1.0000001, street, &best)
        if best.shape < 0:
            return False
        shape = self.shapes + <int64_t>best.shape * SHAPE_WIDTH
        while low < high:
            middle = (low + high) >> 1
            if self.interpolations[4 * middle] < shape[SHAPE_OBJECT]:
                low = middle + 1
            else:
                high = middle
        counted = self.interpolations + 4 * low
        # All pieces of one line are adjacent.
        low = best.shape
        while low > 0 and self.shapes[<int64_t>(low - 1) * SHAPE_WIDTH] == counted[0]:
            low -= 1
        high = best.shape
        while self.shapes[<int64_t>(high + 1) * SHAPE_WIDTH] == counted[0]:
            high += 1
        position = along(self.shapes, self.vertices, low, high, best.shape, best.x, best.y, &length)
        fraction = position / length if length > 0.0 else 0.0
        step = counted[3]
        number = counted[1]
        if counted[2] != counted[1]:
            number += <int32_t>(
                rint((counted[2] - counted[1]) * fraction / step) * step
            )
        answer.object = counted[0]
        answer.tail = shape[SHAPE_TAIL]
        answer.number = number
        answer.distance = ground_metres(query, best.x, best.y)
        answer.lon = best.x
        answer.lat = best.y
        if counted[2] != counted[1] and length > 0.0:
            point_along(
                self.shapes, self.vertices, low, high,
                length * (number - counted[1]) / <double>(counted[2] - counted[1]),
                &answer.lon, &answer.lat,
            )
        return True

    cdef void find_area(self, const Query* query, Answer* answer) noexcept nogil:
        """Find the smallest area around a point with nothing near, or a settlement inside it."""
        cdef int64_t column = (<int64_t>query.x + HALF_TURN) >> AREA_CELL_SHIFT
        cdef int64_t row = (<int64_t>query.y + QUARTER_TURN) >> AREA_CELL_SHIFT
        cdef int32_t first, end, i, number, area = -1, rank = 0, node = -1
        cdef const int32_t* placed
        cdef double square, distance = 0.0
        cdef Answer feature
        if not find_cell(self.area_cells, self.area_cell_mask, column, row, &first, &end):
            return
        if query.layers & LAYER_HOUSE:
            # Entries are sorted from small to large.
            for i in range(first, end):
                number = self.area_entries[i]
                if number < 0 or self.areas[<int64_t>number * AREA_WIDTH + 1] >> 16:
                    continue
                rank = self.areas[<int64_t>number * AREA_WIDTH + 1] & 0xFF
                if rank <= query.rank_max and self.area_contains(number, query.x, query.y):
                    area = number
                    break
            if area >= 0:
                if rank < query.rank_max:
                    distance = self.find_settlement(query, area, rank, answer)
                if answer.object >= 0:
                    node = answer.object
                else:
                    answer.object = self.areas[<int64_t>area * AREA_WIDTH]
        if query.layers & LAYER_FEATURES:
            square = self.find_feature(query, &feature)
            if feature.object >= 0 and (answer.object < 0 or square < distance):
                answer[0] = feature
                return
        if answer.object >= 0:
            placed = self.objects + <int64_t>answer.object * OBJECT_WIDTH
            answer.tail = placed[OBJECT_TAIL]
            answer.lon = placed[OBJECT_LON]
            answer.lat = placed[OBJECT_LAT]
            if node >= 0:
                answer.distance = ground_metres(query, answer.lon, answer.lat)

    cdef double find_settlement(
        self, const Query* query, int32_t area, int32_t rank, Answer* answer
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
        if not find_cell(self.area_cells, self.area_cell_mask, column, row, &first, &end):
            return 0.0
        for i in range(first, end):
            number = -1 - self.area_entries[i]
            if number < 0:
                continue
            placed = self.objects + <int64_t>number * OBJECT_WIDTH
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
            if area < 0 or self.area_contains(area, placed[OBJECT_LON], placed[OBJECT_LAT]):
                answer.object = number
                answer.lon = placed[OBJECT_LON]
                answer.lat = placed[OBJECT_LAT]
                answer.distance = ground_metres(query, answer.lon, answer.lat)
                best_rank = own_rank
                best = square
        return sqrt(best) if answer.object >= 0 else 0.0

    cdef double find_feature(self, const Query* query, Answer* answer) noexcept nogil:
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
        if find_cell(self.area_cells, self.area_cell_mask, column, row, &first, &end):
            for i in range(first, end):
                number = self.area_entries[i]
                if number < 0:
                    continue
                layers = self.areas[<int64_t>number * AREA_WIDTH + 1] >> 16
                shape_rank = self.areas[<int64_t>number * AREA_WIDTH + 1] & 0xFF
                if not layers & query.layers or shape_rank > query.rank_max:
                    continue
                if self.area_contains(number, query.x, query.y):
                    rank = shape_rank
                    best = 0.0
                    answer.object = self.areas[<int64_t>number * AREA_WIDTH]
                    answer.lon = self.objects[<int64_t>answer.object * OBJECT_WIDTH + OBJECT_LON]
                    answer.lat = self.objects[<int64_t>answer.object * OBJECT_WIDTH + OBJECT_LAT]
                    break
        column = (<int64_t>query.x + HALF_TURN - reach) >> CELL_SHIFT
        row = (<int64_t>query.y + QUARTER_TURN - reach) >> CELL_SHIFT
        for r in range(row, ((<int64_t>query.y + QUARTER_TURN + reach) >> CELL_SHIFT) + 1):
            for c in range(column, ((<int64_t>query.x + HALF_TURN + reach) >> CELL_SHIFT) + 1):
                if not find_cell(self.cells, self.cell_mask, c, r, &first, &end):
                    continue
                for i in range(first, end):
                    shape = self.shapes + <int64_t>self.entries[i] * SHAPE_WIDTH
                    if not shape[SHAPE_LAYERS] & query.layers & LAYER_FEATURES:
                        continue
                    shape_rank = (
                        self.objects[<int64_t>shape[SHAPE_OBJECT] * OBJECT_WIDTH + OBJECT_RANKS]
                        & 0xFF
                    )
                    if shape_rank > query.rank_max or shape_rank < rank:
                        continue
                    if shape[SHAPE_LAYERS] & IS_LINE:
                        square = shape_distance(
                            self.vertices, shape[SHAPE_FIRST], shape[SHAPE_WIDTH + SHAPE_FIRST],
                            False, query.x, query.y, query.scale, 1e300, &x, &y,
                        )
                    else:
                        x = shape[SHAPE_WEST]
                        y = shape[SHAPE_SOUTH]
                        dx = (x - query.x) * query.scale
                        square = dx * dx + (y - query.y) ** 2
                    if (x - query.x) ** 2 > REACH * REACH or (y - query.y) ** 2 > REACH * REACH:
                        continue
                    if shape_rank > rank or square < best:
                        rank = shape_rank
                        best = square
                        answer.object = shape[SHAPE_OBJECT]
                        answer.lon = x
                        answer.lat = y
        if answer.object >= 0:
            answer.tail = self.objects[<int64_t>answer.object * OBJECT_WIDTH + OBJECT_TAIL]
            if best > 0.0:
                answer.distance = ground_metres(query, answer.lon, answer.lat)
        return sqrt(best)

    cdef bint area_contains(self, int32_t area, double x, double y) noexcept nogil:
        cdef const int32_t* row = self.areas + <int64_t>area * AREA_WIDTH
        cdef int64_t band
        cdef int32_t first, i
        cdef const int32_t* edge
        cdef bint inside = False
        if x < row[3] or x > row[5] or y < row[4] or y > row[6]:
            return False
        band = row[2] + (<int64_t>y - row[4]) // row[7]
        if band >= row[AREA_WIDTH + 2]:
            band = row[AREA_WIDTH + 2] - 1
        first = self.bands[band - 1] if band else 0
        for i in range(first, self.bands[band]):
            edge = self.edges + 4 * <int64_t>i
            if crosses(edge[0], edge[1], edge[2], edge[3], x, y):
                inside = not inside
        return inside


cdef inline void self_try_cell(
    StreetIndex index, const Query* query, double x, int64_t column, int64_t row,
    double west, double south, int32_t layers, int32_t parent, Nearest* best,
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
        index.try_shape(query, x, number, best)


cdef int check_point(double lat, double lon) except -1:
    if not isfinite(lat) or not isfinite(lon):
        raise ValueError("latitude and longitude must be finite numbers")
    if not -90.0 <= lat <= 90.0:
        raise ValueError("the latitude must be between -90 and 90 degrees")
    if not -180.0 <= lon <= 180.0:
        raise ValueError("the longitude must be between -180 and 180 degrees")
    return 0


cdef int check_points(const double[::1] lat, const double[::1] lon) except -1:
    cdef Py_ssize_t i
    if lat.shape[0] != lon.shape[0]:
        raise ValueError(f"{lat.shape[0]} latitudes and {lon.shape[0]} longitudes")
    for i in range(lat.shape[0]):
        # Comparisons with NaN are false, so NaN is rejected too.
        if not (-90.0 <= lat[i] <= 90.0 and -180.0 <= lon[i] <= 180.0):
            try:
                check_point(lat[i], lon[i])
            except ValueError as error:
                raise ValueError(f"point {i}: {error}") from None
    return 0
