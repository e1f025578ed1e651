# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The kernel of street-level reverse geocoding: finds the nearest object by Nominatim's rules.

street_check.pyx has verified all numbers in the sections before, so that the kernel follows them
without bounds checks. A search changes nothing, so that threads can share an index.
"""

from cpython cimport array as carray
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.math cimport isfinite, rint, sqrt
from libc.stdint cimport int32_t, int64_t

from geoservice.index.street_areas cimport find_area, find_settlement
from geoservice.index.street_geometry cimport (
    HALF_TURN,
    SHAPE_LAYERS,
    SHAPE_OBJECT,
    SHAPE_SOUTH,
    SHAPE_TAIL,
    SHAPE_WEST,
    SHAPE_WIDTH,
    Answer,
    Nearest,
    Query,
    along,
    ground_metres,
    make_query,
    point_along,
)
from geoservice.index.street_search cimport find_nearest, try_shape
from geoservice.index.street_sections cimport (
    AREA_WIDTH,
    IS_AREA,
    IS_LINE,
    LAYER_HOUSE,
    LAYER_INTERPOLATION,
    LAYER_PATH,
    LAYER_POI,
    LAYER_STREET,
    OBJECT_LAT,
    OBJECT_LON,
    OBJECT_NUMBER,
    OBJECT_WIDTH,
    REACH,
    Sections,
)

import array

from geoservice.index import street_format

cdef enum:
    RANK_HOUSE = 30

cdef double FULL_TURN = 3600000000.0

# Nominatim's search distances, in 1e-7 degrees: from a street to its house or from the query to a
# point in its outline, and to an interpolation line.
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
        self._memory = dict(sections_by_name)
        self.sections.objects = <const int32_t*>self._pointer(
            street_format.OBJECTS, 4 * OBJECT_WIDTH
        )
        self.object_count = <int32_t>(
            len(self._memory[street_format.OBJECTS]) // (4 * OBJECT_WIDTH)
        )
        self.sections.boxes = <const int32_t*>self._pointer(street_format.BOXES, 16)
        self.sections.shapes = <const int32_t*>self._pointer(street_format.SHAPES, 4 * SHAPE_WIDTH)
        self.sections.vertices = <const int32_t*>self._pointer(street_format.VERTICES, 8)
        self.sections.cells = self._pointer(street_format.CELLS, 16)
        self.sections.cell_mask = self._mask(street_format.CELLS)
        self.sections.entries = <const int32_t*>self._pointer(street_format.ENTRIES, 4)
        self.sections.house_ends = <const int32_t*>self._pointer(street_format.HOUSE_ENDS, 4)
        self.sections.houses = <const int32_t*>self._pointer(street_format.HOUSES, 4)
        self.sections.inside_ends = <const int32_t*>self._pointer(street_format.INSIDE_ENDS, 4)
        self.sections.inside = <const int32_t*>self._pointer(street_format.INSIDE, 4)
        self.sections.interpolations = <const int32_t*>self._pointer(
            street_format.INTERPOLATIONS, 16
        )
        self.sections.interpolation_count = <int32_t>(
            len(self._memory[street_format.INTERPOLATIONS]) // 16
        )
        self.sections.areas = <const int32_t*>self._pointer(street_format.AREAS, 4 * AREA_WIDTH)
        self.sections.bands = <const int32_t*>self._pointer(street_format.BANDS, 4)
        self.sections.edges = <const int32_t*>self._pointer(street_format.EDGES, 16)
        self.sections.area_cells = self._pointer(street_format.AREA_CELLS, 16)
        self.sections.area_cell_mask = self._mask(street_format.AREA_CELLS)
        self.sections.area_entries = <const int32_t*>self._pointer(street_format.AREA_ENTRIES, 4)
        self.sections.kinds = <const int32_t*>self._pointer(street_format.KINDS, 12)
        self.sections.tails = <const int32_t*>self._pointer(street_format.TAILS, 20)
        self.tail_count = <int32_t>(len(self._memory[street_format.TAILS]) // 20 - 1)
        self.sections.tail_texts = <const char*>self._pointer(street_format.TAIL_TEXTS, 1)
        self.sections.string_ends = <const int32_t*>self._pointer("string ends", 4)
        self.sections.strings = <const char*>self._pointer("strings", 1)
        if (
            len(self._memory[street_format.HOUSE_ENDS]) != 4 * self.object_count
            or len(self._memory[street_format.INSIDE_ENDS]) != 4 * self.object_count
            or len(self._memory[street_format.BOXES]) != 16 * self.object_count
        ):
            raise ValueError("the sections of the objects do not belong together")

    cdef const unsigned char* _pointer(self, str name, Py_ssize_t width) except? NULL:
        cdef Py_buffer buffer
        cdef const unsigned char* pointer
        section = self._memory[name]
        if len(section) % width:
            raise ValueError(f"section {name!r} ends within an entry")
        PyObject_GetBuffer(section, &buffer, PyBUF_SIMPLE)
        pointer = <const unsigned char*>buffer.buf
        # The memoryview in `_memory` keeps the mapping alive.
        PyBuffer_Release(&buffer)
        return pointer

    cdef int64_t _mask(self, str name) except -1:
        cdef int64_t size = len(self._memory[name]) // 16
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
            find_settlement(&self.sections, &query, -1, 4, &answer)
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
        cdef const Sections* index = &self.sections
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
                find_nearest(index, query, layers, REACH, -1, &best)
        if best.shape >= 0:
            shape = index.shapes + <int64_t>best.shape * SHAPE_WIDTH
            limit = sqrt(best.square)
            if shape[SHAPE_LAYERS] & (LAYER_STREET | LAYER_PATH):
                if query.rank_max > 27 and query.layers & LAYER_HOUSE:
                    street = shape[SHAPE_OBJECT]
                    limit = NEAR
                    self.refine_street(query, &best)
                    if index.shapes[<int64_t>best.shape * SHAPE_WIDTH] != street:
                        limit = sqrt(best.square)
            elif best.square == 0.0 and shape[SHAPE_LAYERS] & IS_AREA:
                self.refine_outline(query, &best)
        if (
            index.interpolation_count and query.rank_max > 27 and query.layers & LAYER_HOUSE
            and limit > 0.0 and self.find_interpolation(query, street, limit, answer)
        ):
            return
        if best.shape < 0:
            # Rank 4 is that of countries.
            if query.rank_max >= 4:
                find_area(index, query, answer)
            return
        shape = index.shapes + <int64_t>best.shape * SHAPE_WIDTH
        object_number = shape[SHAPE_OBJECT]
        answer.object = object_number
        answer.tail = shape[SHAPE_TAIL]
        answer.distance = ground_metres(query, best.x, best.y)
        if shape[SHAPE_LAYERS] & IS_LINE:
            answer.lon = best.x
            answer.lat = best.y
        else:
            answer.lon = index.objects[<int64_t>object_number * OBJECT_WIDTH + OBJECT_LON]
            answer.lat = index.objects[<int64_t>object_number * OBJECT_WIDTH + OBJECT_LAT]

    cdef void refine_street(self, const Query* query, Nearest* best) noexcept nogil:
        """Replace a street in `best` by its house nearest to the street's point in `best`."""
        cdef const Sections* index = &self.sections
        cdef int32_t street = index.shapes[<int64_t>best.shape * SHAPE_WIDTH + SHAPE_OBJECT]
        cdef int32_t first = index.house_ends[street - 1] if street else 0
        cdef int32_t i, house
        cdef const int32_t* shape
        cdef const int32_t* placed
        cdef double foot_x = best.x, foot_y = best.y, x = query.x
        cdef double nearest = NEAR * NEAR, square, dx, dy
        cdef double limit = min(<double>REACH, sqrt(best.square) + NEAR) ** 2
        cdef Nearest candidate
        cdef int32_t wanted = query.layers & (LAYER_HOUSE | LAYER_POI)
        # The street may be on the other side of the date line.
        if foot_x - x > HALF_TURN:
            x += FULL_TURN
        elif x - foot_x > HALF_TURN:
            x -= FULL_TURN
        for i in range(first, index.house_ends[street]):
            house = index.houses[i]
            shape = index.shapes + <int64_t>house * SHAPE_WIDTH
            if not shape[SHAPE_LAYERS] & wanted:
                continue
            placed = index.objects + <int64_t>shape[SHAPE_OBJECT] * OBJECT_WIDTH
            dx = (placed[OBJECT_LON] - foot_x) * query.scale
            dy = placed[OBJECT_LAT] - foot_y
            square = dx * dx + dy * dy
            if square >= nearest:
                continue
            candidate.shape = -1
            candidate.square = limit
            candidate.extent = 1e300
            try_shape(index, query, x, house, &candidate)
            if candidate.shape >= 0:
                nearest = square
                best[0] = candidate

    cdef void refine_outline(self, const Query* query, Nearest* best) noexcept nogil:
        """Replace an outline around the query by the nearest point in it that is more specific."""
        cdef const Sections* index = &self.sections
        cdef int32_t outline = index.shapes[<int64_t>best.shape * SHAPE_WIDTH + SHAPE_OBJECT]
        cdef int32_t first = index.inside_ends[outline - 1] if outline else 0
        cdef int32_t number = index.objects[<int64_t>outline * OBJECT_WIDTH + OBJECT_NUMBER]
        cdef int32_t i
        cdef const int32_t* shape
        cdef double square, nearest = NEAR * NEAR, dx, dy
        cdef int32_t wanted = query.layers & (LAYER_HOUSE | LAYER_POI)
        for i in range(first, index.inside_ends[outline]):
            shape = index.shapes + <int64_t>index.inside[i] * SHAPE_WIDTH
            if not shape[SHAPE_LAYERS] & wanted:
                continue
            if (
                number >= 0
                and index.objects[<int64_t>shape[SHAPE_OBJECT] * OBJECT_WIDTH + OBJECT_NUMBER]
                != number
            ):
                continue
            dx = (shape[SHAPE_WEST] - query.x) * query.scale
            dy = shape[SHAPE_SOUTH] - query.y
            square = dx * dx + dy * dy
            if square < nearest:
                nearest = square
                best.shape = index.inside[i]
                best.square = square
                best.x = shape[SHAPE_WEST]
                best.y = shape[SHAPE_SOUTH]

    cdef bint find_interpolation(
        self, const Query* query, int32_t street, double limit, Answer* answer
    ) noexcept nogil:
        """Find an interpolated house number on a line that is at most `limit` away."""
        cdef const Sections* index = &self.sections
        cdef Nearest best
        cdef const int32_t* shape
        cdef const int32_t* counted
        cdef int32_t low = 0, high = index.interpolation_count - 1, middle, number
        cdef double position, fraction, step, length = 0.0
        # Widen the limit a little: find_nearest excludes it, but a line at the limit counts.
        find_nearest(index, query, LAYER_INTERPOLATION, limit * 1.0000001, street, &best)
        if best.shape < 0:
            return False
        shape = index.shapes + <int64_t>best.shape * SHAPE_WIDTH
        while low < high:
            middle = (low + high) >> 1
            if index.interpolations[4 * middle] < shape[SHAPE_OBJECT]:
                low = middle + 1
            else:
                high = middle
        counted = index.interpolations + 4 * low
        # All pieces of one line are adjacent.
        low = best.shape
        while low > 0 and index.shapes[<int64_t>(low - 1) * SHAPE_WIDTH] == counted[0]:
            low -= 1
        high = best.shape
        while index.shapes[<int64_t>(high + 1) * SHAPE_WIDTH] == counted[0]:
            high += 1
        position = along(
            index.shapes, index.vertices, low, high, best.shape, best.x, best.y, &length
        )
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
                index.shapes, index.vertices, low, high,
                length * (number - counted[1]) / <double>(counted[2] - counted[1]),
                &answer.lon, &answer.lat,
            )
        return True


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
