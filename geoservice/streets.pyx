# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The kernel of street-level reverse geocoding: which object is nearest, by Nominatim's rules.

Checksums and numbers are checked before the sections get here (street_check.pyx), so that what they
say is followed without looking. Nothing is changed by a search: threads share an index.
"""

from cpython cimport array as carray
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.math cimport M_PI, cos, floor, isfinite, rint, sqrt
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

import array

from geoservice import street_format as sections

cdef enum:
    OBJECT_WIDTH = 12
    OBJECT_NAMES = 3
    OBJECT_PARENT = 4
    OBJECT_NUMBER = 5
    OBJECT_TAIL = 7
    OBJECT_LON = 8
    OBJECT_LAT = 9
    OBJECT_RANKS = 10

    SHAPE_WIDTH = 8
    SHAPE_OBJECT = 0
    SHAPE_TAIL = 1
    SHAPE_FIRST = 2
    SHAPE_LAYERS = 3
    SHAPE_WEST = 4
    SHAPE_SOUTH = 5
    SHAPE_EAST = 6
    SHAPE_NORTH = 7

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
    HALF_TURN = 1800000000
    QUARTER_TURN = 900000000
    RANK_HOUSE = 30

cdef int32_t RING_END = -2147483648
cdef double FULL_TURN = 3600000000.0

# Nominatim's distances: of anything, and of a house from a street or a point in an outline.
cdef double REACH = 70000.0
cdef double NEAR = 10000.0
cdef double INTERPOLATION_REACH = 60000.0

# Nearer to the poles there are no streets, and cells get too narrow to search many of them.
cdef double COSINE_MIN = 0.087
cdef double METRES = 0.01111950802335329  # per 1e-7 degrees of latitude
cdef double RADIANS = M_PI / 180.0

cdef object EMPTY_INT = array.array("i")
cdef object EMPTY_DOUBLE = array.array("d")


cdef class StreetIndex:
    """Searches over the sections of a street index."""

    def __init__(self, sections_by_name):
        """Take the sections of street_format and the strings, as memoryviews of bytes.

        They must stay mapped as long as this object lives.
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
        """(object, tail, number, metres, lat, lon) of one point; object -1 where nothing is known.

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
        """(object, metres) of the settlement that a point in no area belongs to; -1 without one.

        Of the most special kind that reaches the point, the nearest.
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
        """Arrays of objects, tails, numbers, metres, latitudes and longitudes of many points.

        Raises ValueError when the lengths differ, or something is not a point on earth.
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
            # Rank 4 are countries.
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
        """The nearest shape of these layers that is nearer than the limit."""
        cdef double wide = limit / query.scale
        best.shape = -1
        best.square = limit * limit
        best.extent = 1e300
        self.search_cells(query, query.x, layers, parent, best)
        # What is near on the other side of the date line.
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
        # How far the point is from the sides of its cell.
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
                # Between the first and the last row only the ends belong to the ring.
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
        """Take the house number of this street that is nearest to its nearest point."""
        cdef int32_t street = self.shapes[<int64_t>best.shape * SHAPE_WIDTH + SHAPE_OBJECT]
        cdef int32_t first = self.house_ends[street - 1] if street else 0
        cdef int32_t i, house
        cdef const int32_t* shape
        cdef const int32_t* placed
        cdef double foot_x = best.x, foot_y = best.y, x = query.x
        cdef double nearest = NEAR * NEAR, square, dx, dy
        cdef double limit = (sqrt(best.square) + NEAR) ** 2
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
        """Of what has the point inside: a point in it that says more."""
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
        """A house number counted along a line that is not farther than the limit."""
        cdef Nearest best
        cdef const int32_t* shape
        cdef const int32_t* counted
        cdef int32_t low = 0, high = self.interpolation_count - 1, middle, number
        cdef double position, length, fraction, step
        # Not farther includes the limit itself.
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
        # All pieces of one line lie one behind the other.
        low = best.shape
        while low > 0 and self.shapes[<int64_t>(low - 1) * SHAPE_WIDTH] == counted[0]:
            low -= 1
        high = best.shape
        while self.shapes[<int64_t>(high + 1) * SHAPE_WIDTH] == counted[0]:
            high += 1
        position = along(self, low, high, best.shape, best.x, best.y, &length)
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
                self, low, high,
                length * (number - counted[1]) / <double>(counted[2] - counted[1]),
                &answer.lon, &answer.lat,
            )
        return True

    cdef void find_area(self, const Query* query, Answer* answer) noexcept nogil:
        """The smallest area around a point far from everything, or a settlement near it in it."""
        cdef int64_t column = (<int64_t>query.x + HALF_TURN) >> AREA_CELL_SHIFT
        cdef int64_t row = (<int64_t>query.y + QUARTER_TURN) >> AREA_CELL_SHIFT
        cdef int32_t first, end, i, number, area = -1, rank = 0, node = -1
        cdef const int32_t* placed
        cdef double square, distance = 0.0
        cdef Answer feature
        if not find_cell(self.area_cells, self.area_cell_mask, column, row, &first, &end):
            return
        if query.layers & LAYER_HOUSE:
            # Sorted from small to large.
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
        """The place node in an area (or -1: anywhere) that reaches a point; its distance.

        Only of finer ranks than `rank`: of the finest the nearest.
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
        """A peak, a lake, a railway near a point: the most special, of these the nearest."""
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


cdef inline bint crosses(
    double x1, double y1, double x2, double y2, double x, double y
) noexcept nogil:
    """Does the ray that goes east from a point cross this edge?"""
    if (y1 > y) == (y2 > y):
        return False
    return x < x1 + (x2 - x1) * (y - y1) / (y2 - y1)


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


cdef double shape_distance(
    const int32_t* vertices, int32_t first, int32_t end, bint is_area, double x, double y,
    double scale, double limit, double* nearest_x, double* nearest_y,
) noexcept nogil:
    """Square of the distance to a line or an outline, 0 inside of it; and the nearest point.

    Infinite if that is not below the limit.
    """
    cdef const int32_t* vertex = vertices + 2 * <int64_t>first
    cdef double best = limit, x1, y1, x2, y2, dx, dy, along, square
    cdef bint inside = False
    cdef int32_t i
    nearest_x[0] = x
    nearest_y[0] = y
    if end - first < 1:
        return 1e300
    # The query is the origin of this plane.
    x1 = (vertex[0] - x) * scale
    y1 = vertex[1] - y
    if end - first == 1:
        nearest_x[0] = vertex[0]
        nearest_y[0] = vertex[1]
        return x1 * x1 + y1 * y1
    for i in range(first + 1, end):
        vertex += 2
        if vertex[0] == RING_END:
            # The next ring begins behind the mark.
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


cdef double along(
    StreetIndex index, int32_t low, int32_t high, int32_t chosen, double x, double y,
    double* length,
) noexcept nogil:
    """How far along a line, in degrees on a flat map, a point of its piece `chosen` is."""
    cdef int32_t shape, i, first, end
    cdef double total = 0.0, position = -1.0, best = 1e300, x1, y1, x2, y2, piece, part, gap
    for shape in range(low, high + 1):
        first = index.shapes[<int64_t>shape * SHAPE_WIDTH + SHAPE_FIRST]
        end = index.shapes[<int64_t>(shape + 1) * SHAPE_WIDTH + SHAPE_FIRST]
        for i in range(first, end - 1):
            x1 = index.vertices[2 * <int64_t>i]
            y1 = index.vertices[2 * <int64_t>i + 1]
            x2 = index.vertices[2 * <int64_t>i + 2]
            y2 = index.vertices[2 * <int64_t>i + 3]
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


cdef void point_along(
    StreetIndex index, int32_t low, int32_t high, double distance, double* lon, double* lat
) noexcept nogil:
    cdef int32_t shape, i, first, end
    cdef double x1, y1, x2, y2, piece
    for shape in range(low, high + 1):
        first = index.shapes[<int64_t>shape * SHAPE_WIDTH + SHAPE_FIRST]
        end = index.shapes[<int64_t>(shape + 1) * SHAPE_WIDTH + SHAPE_FIRST]
        for i in range(first, end - 1):
            x1 = index.vertices[2 * <int64_t>i]
            y1 = index.vertices[2 * <int64_t>i + 1]
            x2 = index.vertices[2 * <int64_t>i + 2]
            y2 = index.vertices[2 * <int64_t>i + 3]
            piece = sqrt((x2 - x1) ** 2 + (y2 - y1) ** 2)
            if distance <= piece:
                if piece > 0.0:
                    lon[0] = x1 + (x2 - x1) * distance / piece
                    lat[0] = y1 + (y2 - y1) * distance / piece
                return
            distance -= piece
            lon[0] = x2
            lat[0] = y2


cdef inline double ground_metres(const Query* query, double x, double y) noexcept nogil:
    cdef double dx = x - query.x
    if dx > HALF_TURN:
        dx -= FULL_TURN
    elif dx < -HALF_TURN:
        dx += FULL_TURN
    dx *= query.cosine
    return METRES * sqrt(dx * dx + (y - query.y) ** 2)


cdef inline double reverse_diameter(int32_t rank_search) noexcept nogil:
    """How far a place of this rank reaches; as in importer/ranks.py."""
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


cdef inline void make_query(
    Query* query, double lat, double lon, int32_t layers, int32_t rank_max, bint degrees
) noexcept nogil:
    query.x = lon * 1e7
    query.y = lat * 1e7
    query.cosine = cos(lat * RADIANS)
    query.scale = 1.0 if degrees else max(COSINE_MIN, query.cosine)
    query.layers = layers
    query.rank_max = rank_max


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
        # Comparisons with NaN are false.
        if not (-90.0 <= lat[i] <= 90.0 and -180.0 <= lon[i] <= 180.0):
            try:
                check_point(lat[i], lon[i])
            except ValueError as error:
                raise ValueError(f"point {i}: {error}") from None
    return 0
