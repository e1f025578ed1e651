# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The lookup kernel: it finds the country of a point and the nearest town in that country.

Countries are stored as a quadtree over the earth. A point's longitude and latitude, in 1e-7 degrees
counted from the south-west corner (-180, -90), are two unsigned numbers u and v. The 54 x 27 roots
are squares with sides of 2**26 (6.7 degrees). Each level below takes one more bit of u and v.

    cells[c] >= 0   the cell is divided: cells[cells[c] + 2 * bit of v + bit of u]
    cells[c] == -1  sea
    cells[c] <= -2  n = -2 - cells[c]; even: wholly in country n / 2; odd: leaf n / 2

A leaf has pieces: the parts of a border's rings inside the cell, closed along the cell's sides. A
point is in a country when a ray from it crosses that country's pieces an odd number of times. The
arithmetic is exact, on integers. A lookup visits a handful of cells and some forty edges anywhere
on earth.

Each country has a k-d tree of its towns. The tree holds unit vectors, so that neither the date line
nor a pole is a special case. A range of the tree splits at its middle element, on the axis of
`axes`.

Borders at this scale are simplified by some hundred metres. A town that they put into another
country (or into the sea) is called a stray there. Points that are nearest to a stray, and at most
STRAY_M from it (NEAR_COAST_M at sea), belong to it: Konstanz stays German although the simplified
border runs north of it.
"""

from array import array

from cpython cimport array as carray
from libc.math cimport M_PI, asin, cos, fabs, isfinite, rint, sin, sqrt, NAN
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef enum:
    ROOT_SHIFT = 26
    ROOT_COLUMNS = 54
    ROOT_ROWS = 27
    ROOTS = ROOT_COLUMNS * ROOT_ROWS
    HALF_TURN = 1800000000
    FULL_TURN = 3600000000
    QUARTER_TURN = 900000000
    TOWN_COLUMNS = 8
    # More than a descent can need: each level pushes at most three cells or one range.
    STACK = 128

cdef double EARTH_RADIUS_M = 6371008.8
cdef double RADIANS = M_PI / 180.0
cdef double UNIT = 1073741824.0  # 2**30
# Twelve nautical miles, the width of a territorial sea: a point at sea that is at most this far
# from a coast belongs to its country.
cdef double NEAR_M = 22224.0
cdef double METRES_PER_STEP = 6371008.8 * M_PI / 180.0 * 1e-7

# Metres on land within which a stray claims points.
cdef double STRAY_LAND_M = 2500.0

NEAR_COAST_M = NEAR_M
STRAY_M = STRAY_LAND_M
EMPTY = array("i"), array("f")


cdef class WorldIndex:
    """Countries and towns over the sections of an index file, used in place.

    Raises ValueError when the sections do not fit together. Whatever a file holds, a lookup reads
    nothing outside of its sections.
    """

    def __init__(
        self,
        const int32_t[::1] cells not None,
        const int32_t[::1] leaves not None,
        const int32_t[::1] pieces not None,
        const int32_t[::1] vertices not None,
        const int32_t[::1] countries not None,
        const int32_t[::1] tree not None,
        const uint8_t[::1] axes not None,
        const int32_t[::1] towns not None,
        const int32_t[::1] stray_ends not None,
        const int32_t[::1] stray_tree not None,
        const uint8_t[::1] stray_axes not None,
        const int32_t[::1] strays not None,
        const int32_t[::1] string_ends not None,
        Py_ssize_t string_bytes,
    ):
        self.cell_count = <int32_t>cells.shape[0]
        self.leaf_count = <int32_t>(leaves.shape[0] - 1)
        self.piece_count = <int32_t>(pieces.shape[0] // 2 - 1)
        self.vertex_count = <int32_t>(vertices.shape[0] // 2)
        self.country_count = <int32_t>(countries.shape[0] // 4)
        self.town_count = <int32_t>axes.shape[0]
        if (
            self.cell_count < ROOTS
            or self.leaf_count < 0
            or self.piece_count < 0
            or self.country_count < 1
            or tree.shape[0] != 3 * <Py_ssize_t>self.town_count
            or towns.shape[0] != TOWN_COLUMNS * <Py_ssize_t>self.town_count
        ):
            raise ValueError("the sizes of the sections do not fit together")
        self.stray_count = <int32_t>stray_axes.shape[0]
        if (
            stray_ends.shape[0] != self.country_count + 2
            or stray_tree.shape[0] != 3 * <Py_ssize_t>self.stray_count
            or strays.shape[0] != self.stray_count
        ):
            raise ValueError("the sizes of the sections of strays do not fit together")
        # An empty section has no first element to take the address of.
        if 0 in (self.leaf_count, self.piece_count, self.town_count, self.stray_count):
            raise ValueError("the index is empty")
        self._buffers = (
            cells, leaves, pieces, vertices, countries, tree, axes, towns,
            stray_ends, stray_tree, stray_axes, strays,
        )
        self.cells = &cells[0]
        self.leaves = &leaves[0]
        self.pieces = &pieces[0]
        self.vertices = &vertices[0]
        self.countries = &countries[0]
        self.tree = &tree[0]
        self.axes = &axes[0]
        self.towns = &towns[0]
        self.stray_ends = &stray_ends[0]
        self.stray_tree = &stray_tree[0]
        self.stray_axes = &stray_axes[0]
        self.strays = &strays[0]
        self._check(string_ends, string_bytes)

    def _check(self, const int32_t[::1] string_ends, Py_ssize_t string_bytes):
        cdef int32_t i, value, child, string_count = <int32_t>string_ends.shape[0]
        if string_count == 0 or string_ends[0] < 0 or string_ends[string_count - 1] != string_bytes:
            raise ValueError("the ends of strings do not fit the pool")
        for i in range(1, string_count):
            if string_ends[i] < string_ends[i - 1]:
                raise ValueError(f"string {i} ends before it starts")
        for i in range(self.cell_count):
            value = self.cells[i]
            # Children come after their parent, so that a descent cannot loop.
            if value >= 0 and (value <= i or value < ROOTS or value > self.cell_count - 4):
                raise ValueError(f"cell {i} points nowhere")
            if value <= -2:
                child = (-2 - value) >> 1
                if child >= (self.leaf_count if (-2 - value) & 1 else self.country_count):
                    raise ValueError(f"cell {i} points nowhere")
        for i in range(self.leaf_count):
            if not 0 <= self.leaves[i] <= self.leaves[i + 1] <= self.piece_count:
                raise ValueError(f"leaf {i} points nowhere")
        for i in range(self.piece_count):
            if not 0 <= self.pieces[2 * i] < self.country_count:
                raise ValueError(f"piece {i} has no country")
            if not 0 <= self.pieces[2 * i + 1] <= self.pieces[2 * i + 3] <= self.vertex_count:
                raise ValueError(f"piece {i} points nowhere")
        for i in range(self.country_count):
            if not 0 <= self.countries[4 * i] < string_count:
                raise ValueError(f"country {i} has no code")
            if not 0 <= self.countries[4 * i + 1] < string_count:
                raise ValueError(f"country {i} has no name")
            if not 0 <= self.countries[4 * i + 2] <= self.countries[4 * i + 3] <= self.town_count:
                raise ValueError(f"country {i} has no towns")
        for i in range(self.town_count):
            if self.axes[i] > 2:
                raise ValueError(f"town {i} has no axis")
            for value in (4, 5, 6):
                child = self.towns[TOWN_COLUMNS * i + value]
                if not -1 <= child < string_count or (value == 4 and child < 0):
                    raise ValueError(f"town {i} has no name")
            if not -1 <= self.towns[TOWN_COLUMNS * i + 7] < self.town_count:
                raise ValueError(f"town {i} is part of nowhere")

        for i in range(self.country_count + 1):
            if not 0 <= self.stray_ends[i] <= self.stray_ends[i + 1] <= self.stray_count:
                raise ValueError(f"the strays of country {i} are nowhere")
        for i in range(self.stray_count):
            if self.stray_axes[i] > 2 or not 0 <= self.strays[i] < self.town_count:
                raise ValueError(f"stray {i} is nowhere")

    def reverse(self, double lat, double lon):
        """Return (town, country, metres) of one point; -1, -1 and NaN for what is not found.

        Raises ValueError when it is not a point on earth.
        """
        cdef Found found
        if not is_point(lat, lon):
            raise ValueError(not_a_point(lat, lon))
        self.find(lat, lon, &found)
        return found.town, found.country, found.distance

    def reverse_batch(self, const double[::1] lat not None, const double[::1] lon not None):
        """Return (towns, countries, metres) of many points: arrays of int32, int32 and float32.

        Raises ValueError when the lengths differ or a point is not on earth.
        """
        cdef Py_ssize_t count = lat.shape[0], i
        cdef carray.array towns, countries, metres
        cdef int32_t* town_at
        cdef int32_t* country_at
        cdef float* metre_at
        cdef Found found
        if lon.shape[0] != count:
            raise ValueError(f"{count} latitudes and {lon.shape[0]} longitudes")
        for i in range(count):
            if not is_point(lat[i], lon[i]):
                raise ValueError(f"point {i}: {not_a_point(lat[i], lon[i])}")
        towns = carray.clone(EMPTY[0], count, False)
        countries = carray.clone(EMPTY[0], count, False)
        metres = carray.clone(EMPTY[1], count, False)
        town_at = <int32_t*>towns.data.as_ints
        country_at = <int32_t*>countries.data.as_ints
        metre_at = metres.data.as_floats
        with nogil:
            for i in range(count):
                self.find(lat[i], lon[i], &found)
                town_at[i] = found.town
                country_at[i] = found.country
                metre_at[i] = found.distance
        return towns, countries, metres

    cdef void find(self, double lat, double lon, Found* found) noexcept nogil:
        cdef double square = 1e300, cosine = cos(lat * RADIANS) * UNIT
        cdef double point[3]
        # Points on the date line belong to its eastern side, the north pole to the last row.
        cdef int64_t u = <int64_t>rint(lon * 1e7) + HALF_TURN
        cdef int64_t v = <int64_t>rint(lat * 1e7) + QUARTER_TURN
        if u >= FULL_TURN:
            u -= FULL_TURN
        found.town = -1
        found.distance = NAN
        found.country = self.country_at(<uint32_t>u, <uint32_t>v)
        if found.country < 0:
            found.country = self.country_near(lat, u, v)
        if found.country < 0 and self.stray_ends[self.country_count] == self.stray_count:
            return
        point[0] = cosine * cos(lon * RADIANS)
        point[1] = cosine * sin(lon * RADIANS)
        point[2] = UNIT * sin(lat * RADIANS)
        if found.country >= 0:
            found.town = nearest(
                self.tree,
                self.axes,
                self.countries[4 * found.country + 2],
                self.countries[4 * found.country + 3],
                point,
                &square,
            )
            self.claim_stray(found.country, point, STRAY_LAND_M, &square, found)
        else:
            self.claim_stray(self.country_count, point, NEAR_M, &square, found)
        if found.town >= 0:
            found.distance = <float>(
                2.0 * EARTH_RADIUS_M * asin(min(1.0, sqrt(square) / (2.0 * UNIT)))
            )

    cdef void claim_stray(
        self, int32_t place, const double* point, double farthest, double* square, Found* found
    ) noexcept nogil:
        """Give the point to a stray of `place` (a country or the sea) that is nearer."""
        cdef int32_t town
        cdef double stray_square = 1e300
        # Chord and arc differ by only a few millimetres at these distances.
        cdef double limit = (farthest / EARTH_RADIUS_M * UNIT) ** 2
        cdef int32_t stray = nearest(
            self.stray_tree,
            self.stray_axes,
            self.stray_ends[place],
            self.stray_ends[place + 1],
            point,
            &stray_square,
        )
        if stray >= 0 and stray_square < square[0] and stray_square <= limit:
            square[0] = stray_square
            found.town = self.strays[stray]
            found.country = self.country_of(found.town)
            # The stray's country may have a town on its own side of the border that is nearer
            # still.
            town = nearest(
                self.tree,
                self.axes,
                self.countries[4 * found.country + 2],
                self.countries[4 * found.country + 3],
                point,
                square,
            )
            if town >= 0:
                found.town = town

    cdef int32_t country_of(self, int32_t town) noexcept nogil:
        cdef int32_t low = 0, high = self.country_count - 1, middle
        # Find the first country whose towns end after this one.
        while low < high:
            middle = (low + high) >> 1
            if self.countries[4 * middle + 3] > town:
                high = middle
            else:
                low = middle + 1
        return low

    cdef int32_t country_at(self, uint32_t u, uint32_t v) noexcept nogil:
        """Return the country whose border encloses the point, or -1."""
        cdef int32_t node = self.cells[(v >> ROOT_SHIFT) * ROOT_COLUMNS + (u >> ROOT_SHIFT)]
        cdef int32_t shift = ROOT_SHIFT
        cdef int32_t leaf, piece, country, i, end
        cdef int64_t x = <int64_t>u - HALF_TURN, y = <int64_t>v - QUARTER_TURN
        cdef int64_t x1, y1, x2, y2, side
        cdef const int32_t* vertex
        cdef bint inside = False
        while node >= 0:
            shift -= 1
            if shift < 0:
                return -1
            node = self.cells[node + 2 * ((v >> shift) & 1) + ((u >> shift) & 1)]
        if node == -1:
            return -1
        node = -2 - node
        leaf = node >> 1
        if not node & 1:
            return leaf
        country = -1
        for piece in range(self.leaves[leaf], self.leaves[leaf + 1]):
            if self.pieces[2 * piece] != country:
                if inside:
                    return country
                country = self.pieces[2 * piece]
            i = self.pieces[2 * piece + 1]
            end = self.pieces[2 * piece + 3]
            if i == end:
                continue
            vertex = self.vertices + 2 * <int64_t>i
            x1 = vertex[0]
            y1 = vertex[1]
            for i in range(i + 1, end):
                vertex += 2
                x2 = vertex[0]
                y2 = vertex[1]
                # Test whether the edge crosses the ray that goes east from the point. The test is
                # half open, so that a ray through a vertex crosses once.
                if (y1 > y) != (y2 > y):
                    side = (x2 - x1) * (y - y1) - (x - x1) * (y2 - y1)
                    if (side > 0) == (y2 > y1) and side != 0:
                        inside = not inside
                x1 = x2
                y1 = y2
        return country if inside else -1

    cdef int32_t country_near(self, double lat, int64_t u, int64_t v) noexcept nogil:
        """Return the country with the nearest coast, at most NEAR_M away, or -1."""
        cdef double best = (NEAR_M / METRES_PER_STEP) ** 2
        cdef double scale = cos(lat * RADIANS)
        cdef int64_t dv = <int64_t>(NEAR_M / METRES_PER_STEP) + 1
        # A degree of longitude is shortest at the edge of the box that is nearer to the pole.
        cdef double narrowest = cos(min(90.0, fabs(lat) + dv * 1e-7) * RADIANS)
        cdef int64_t du = HALF_TURN
        cdef int32_t country = -1
        if narrowest * HALF_TURN > dv:
            du = <int64_t>(dv / narrowest) + 1
        self.search_near(u, v, du, dv, scale, &best, &country)
        if u - du < 0:
            self.search_near(u + FULL_TURN, v, du, dv, scale, &best, &country)
        if u + du >= FULL_TURN:
            self.search_near(u - FULL_TURN, v, du, dv, scale, &best, &country)
        return country

    cdef void search_near(
        self, int64_t u, int64_t v, int64_t du, int64_t dv, double scale,
        double* best, int32_t* country,
    ) noexcept nogil:
        cdef int64_t row, column, size
        cdef int64_t row_first = max(0, (v - dv) >> ROOT_SHIFT)
        cdef int64_t row_last = min(ROOT_ROWS - 1, (v + dv) >> ROOT_SHIFT)
        cdef int64_t column_first = max(0, (u - du) >> ROOT_SHIFT)
        cdef int64_t column_last = min(ROOT_COLUMNS - 1, (u + du) >> ROOT_SHIFT)
        cdef int32_t stack_node[STACK]
        cdef int64_t stack_u[STACK]
        cdef int64_t stack_v[STACK]
        cdef int32_t stack_shift[STACK]
        cdef int32_t depth, node, shift, piece, quarter
        cdef int64_t cell_u, cell_v
        cdef double square
        for row in range(row_first, row_last + 1):
            for column in range(column_first, column_last + 1):
                stack_node[0] = self.cells[row * ROOT_COLUMNS + column]
                stack_u[0] = column << ROOT_SHIFT
                stack_v[0] = row << ROOT_SHIFT
                stack_shift[0] = ROOT_SHIFT
                depth = 1
                while depth:
                    depth -= 1
                    node = stack_node[depth]
                    if node == -1:
                        continue
                    cell_u = stack_u[depth]
                    cell_v = stack_v[depth]
                    shift = stack_shift[depth]
                    square = cell_distance(u, v, cell_u, cell_v, <int64_t>1 << shift, scale)
                    if square >= best[0]:
                        continue
                    if node >= 0:
                        if shift == 0 or depth > STACK - 4:
                            continue
                        shift -= 1
                        size = <int64_t>1 << shift
                        for quarter in range(4):
                            stack_node[depth] = self.cells[node + quarter]
                            stack_u[depth] = cell_u + size * (quarter & 1)
                            stack_v[depth] = cell_v + size * (quarter >> 1)
                            stack_shift[depth] = shift
                            depth += 1
                        continue
                    node = -2 - node
                    if not node & 1:
                        best[0] = square
                        country[0] = node >> 1
                        continue
                    node >>= 1
                    for piece in range(self.leaves[node], self.leaves[node + 1]):
                        square = self.piece_distance(piece, u, v, scale)
                        if square < best[0]:
                            best[0] = square
                            country[0] = self.pieces[2 * piece]

    cdef double piece_distance(
        self, int32_t piece, int64_t u, int64_t v, double scale
    ) noexcept nogil:
        """Return the squared distance to the nearest edge of a piece, in steps of latitude."""
        cdef int32_t i, first = self.pieces[2 * piece + 1], end = self.pieces[2 * piece + 3]
        cdef double x1, y1, x2, y2, dx, dy, along, square, best = 1e300
        cdef const int32_t* vertex
        if first == end:
            return best
        vertex = self.vertices + 2 * <int64_t>first
        # The query point is the origin of this plane.
        x1 = <double>(vertex[0] + <int64_t>HALF_TURN - u) * scale
        y1 = <double>(vertex[1] + <int64_t>QUARTER_TURN - v)
        for i in range(first + 1, end):
            vertex += 2
            x2 = <double>(vertex[0] + <int64_t>HALF_TURN - u) * scale
            y2 = <double>(vertex[1] + <int64_t>QUARTER_TURN - v)
            dx = x2 - x1
            dy = y2 - y1
            square = dx * dx + dy * dy
            along = 0.0
            if square > 0.0:
                along = min(1.0, max(0.0, -(x1 * dx + y1 * dy) / square))
            dx = x1 + along * dx
            dy = y1 + along * dy
            best = min(best, dx * dx + dy * dy)
            x1 = x2
            y1 = y2
        return best


cdef int32_t nearest(
    const int32_t* tree, const uint8_t* axes, int32_t low, int32_t high,
    const double* point, double* square,
) noexcept nogil:
    """Return the nearest point in a range of a k-d tree that is nearer than `square`, or -1.

    Sets `square` to the squared length of the chord to that point.
    """
    cdef int32_t stack_low[STACK]
    cdef int32_t stack_high[STACK]
    cdef double stack_square[STACK]
    cdef int32_t depth = 0, middle, best_town = -1
    cdef double best = square[0], dx, dy, dz, here, plane
    cdef const int32_t* town
    while True:
        while low < high:
            middle = (low + high) >> 1
            town = tree + 3 * <int64_t>middle
            dx = town[0] - point[0]
            dy = town[1] - point[1]
            dz = town[2] - point[2]
            here = dx * dx + dy * dy + dz * dz
            # Among equals the lowest number wins, whatever the order of the search.
            if here < best or (here == best and middle < best_town):
                best = here
                best_town = middle
            plane = point[axes[middle]] - town[axes[middle]]
            stack_square[depth] = plane * plane
            if plane < 0.0:
                stack_low[depth] = middle + 1
                stack_high[depth] = high
                high = middle
            else:
                stack_low[depth] = low
                stack_high[depth] = middle
                low = middle + 1
            # Each level halves the range, so that 32 entries would be enough.
            depth += 1
        while depth:
            depth -= 1
            if stack_square[depth] <= best:
                break
        else:
            square[0] = best
            return best_town
        low = stack_low[depth]
        high = stack_high[depth]


cdef inline bint is_point(double lat, double lon) noexcept nogil:
    # Comparisons with NaN are false, so NaN is rejected too.
    return -90.0 <= lat <= 90.0 and -180.0 <= lon <= 180.0


cdef str not_a_point(double lat, double lon):
    if not isfinite(lat) or not isfinite(lon):
        return "latitude and longitude must be finite numbers"
    if not -90.0 <= lat <= 90.0:
        return "the latitude must be between -90 and 90 degrees"
    return "the longitude must be between -180 and 180 degrees"


cdef inline double cell_distance(
    int64_t u, int64_t v, int64_t cell_u, int64_t cell_v, int64_t size, double scale
) noexcept nogil:
    """Return the squared distance to a cell in steps of latitude, 0 inside the cell."""
    cdef double dx = 0.0, dy = 0.0
    if u < cell_u:
        dx = <double>(cell_u - u) * scale
    elif u > cell_u + size:
        dx = <double>(u - cell_u - size) * scale
    if v < cell_v:
        dy = <double>(cell_v - v)
    elif v > cell_v + size:
        dy = <double>(v - cell_v - size)
    return dx * dx + dy * dy
