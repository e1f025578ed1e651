"""What one part of the map shows of many devices, as binary frames (docs/http.md).

Where there are few devices a lens has points, where there are many it has counts by cell: tiles of
the Web Mercator map (`level` is their zoom). Everybody who looks at the same part shares the lens
and its frames. A frame is a change since the frame before it, or whole.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.math cimport M_PI, atan, isnan, llrint, sinh
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from gateway.views.live_positions cimport LivePositions, Row

cdef enum:
    NAMES = 1
    COUNTS = 2
    POINTS = 3
    CHOSEN = 4

cdef enum:
    WHOLE = 1

VERSION = 1
#: A lens changes to points at so many devices, and to counts at a quarter more.
POINTS_FROM = 2_000
#: Cells of one lens; a larger part of the map has larger cells.
CELLS_MAX = 4_096
LEVEL_MAX = 20

cdef int64_t LIVE_MS = 60_000
cdef uint16_t UNKNOWN = 0xFFFF


cdef packed struct Header:
    uint8_t version
    uint8_t kind
    uint8_t flags
    uint8_t level
    uint32_t rows
    uint32_t gone
    uint32_t inside
    uint32_t visible
    uint32_t reserved
    int64_t time


cdef packed struct PointRow:
    uint32_t number
    int32_t lat
    int32_t lon
    uint32_t age
    uint32_t heard
    uint16_t course
    uint16_t speed
    uint16_t accuracy
    uint16_t reserved


cdef packed struct CellRow:
    uint32_t x
    uint32_t y
    uint32_t count
    uint32_t live
    int32_t lat
    int32_t lon


cdef struct Cell:
    uint64_t key
    uint64_t sum_x
    uint64_t sum_y
    uint32_t count
    uint32_t live


cdef inline uint32_t seconds(int64_t now, int64_t then) noexcept nogil:
    if then >= now:
        return 0
    return <uint32_t> min((now - then) / 1000, <int64_t> 0xFFFFFFFF)


cdef inline uint16_t scaled(float value, double factor) noexcept nogil:
    # What is not known, and what no device can have measured.
    if isnan(value) or value < 0:
        return UNKNOWN
    return <uint16_t> llrint(min(<double> value * factor, 65534.0))


cdef inline void write_point(PointRow* out, Row* row, uint32_t number, int64_t now) noexcept nogil:
    out.number = number
    out.lat = row.lat
    out.lon = row.lon
    out.age = seconds(now, row.time)
    out.heard = seconds(now, row.received)
    out.course = scaled(row.course, 100.0)
    out.speed = scaled(row.speed, 100.0)
    out.accuracy = scaled(row.accuracy, 10.0)
    out.reserved = 0


cdef bytes frame(
    int kind, bint whole, int level, const void* rows, Py_ssize_t row_bytes, Py_ssize_t row_count,
    const void* gone, Py_ssize_t gone_bytes, Py_ssize_t gone_count,
    Py_ssize_t inside, Py_ssize_t visible, int64_t now
):
    cdef Header header
    cdef bytes made = PyBytes_FromStringAndSize(
        NULL, sizeof(Header) + row_bytes * row_count + gone_bytes * gone_count
    )
    cdef char* out = PyBytes_AS_STRING(made)
    header.version = 1
    header.kind = kind
    header.flags = WHOLE if whole else 0
    header.level = level
    header.rows = <uint32_t> row_count
    header.gone = <uint32_t> gone_count
    header.inside = <uint32_t> inside
    header.visible = <uint32_t> visible
    header.reserved = 0
    header.time = now
    memcpy(out, &header, sizeof(Header))
    if row_count:
        memcpy(out + sizeof(Header), rows, row_bytes * row_count)
    if gone_count:
        memcpy(out + sizeof(Header) + row_bytes * row_count, gone, gone_bytes * gone_count)
    return made


cdef class LevelCounts:
    """Devices by cell of one level, for everybody with the same rights; made once for all."""

    cdef Cell* cells
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef int32_t* places   # a hash table of indexes into `cells`; -1 where there is none
    cdef uint64_t mask
    cdef readonly int level

    def __dealloc__(self):
        PyMem_Free(self.cells)
        PyMem_Free(self.places)

    def __init__(self, LivePositions positions, int level, int64_t now):
        """Count all devices by cell; `now` in ms. O(devices)."""
        cdef Py_ssize_t number
        cdef Row* row
        cdef Cell* cell
        cdef int shift = 32 - level
        self.level = level
        self._resize(256)
        for number in range(positions.count):
            row = &positions.rows[number]
            if not row.alive:
                continue
            cell = self.cell_of(
                ((<uint64_t> row.x) >> shift) << 32 | ((<uint64_t> row.y) >> shift)
            )
            cell.count += 1
            cell.sum_x += row.x
            cell.sum_y += row.y
            if now - row.received <= LIVE_MS:
                cell.live += 1

    def __len__(self):
        return self.count

    cdef int _resize(self, Py_ssize_t capacity) except -1:
        """Make room for so many cells; the hash table has twice as many places."""
        cdef Py_ssize_t each
        cdef uint64_t at
        cells = PyMem_Realloc(self.cells, capacity * sizeof(Cell))
        if cells is NULL:
            raise MemoryError
        self.cells = <Cell*> cells
        places = PyMem_Realloc(self.places, 2 * capacity * sizeof(int32_t))
        if places is NULL:
            raise MemoryError
        self.places = <int32_t*> places
        self.capacity = capacity
        self.mask = 2 * capacity - 1
        memset(self.places, 0xFF, 2 * capacity * sizeof(int32_t))
        for each in range(self.count):
            at = self.place_of(self.cells[each].key)
            self.places[at] = <int32_t> each
        return 0

    cdef inline uint64_t place_of(self, uint64_t key) noexcept:
        """Return the place of a cell in the hash table, or the free one where it belongs."""
        # Fibonacci hashing: neighbouring cells differ in the low bits of both halves.
        cdef uint64_t at = ((key ^ (key >> 32)) * <uint64_t> 0x9E3779B97F4A7C15) >> 32 & self.mask
        while self.places[at] >= 0 and self.cells[self.places[at]].key != key:
            at = (at + 1) & self.mask
        return at

    cdef Cell* cell_of(self, uint64_t key) except NULL:
        cdef uint64_t at = self.place_of(key)
        cdef Cell* cell
        if self.places[at] >= 0:
            return &self.cells[self.places[at]]
        if self.count == self.capacity:
            self._resize(2 * self.capacity)
            at = self.place_of(key)
        self.places[at] = <int32_t> self.count
        cell = &self.cells[self.count]
        memset(cell, 0, sizeof(Cell))
        cell.key = key
        self.count += 1
        return cell

    cdef Cell* found(self, uint64_t key) noexcept:
        cdef int32_t index = self.places[self.place_of(key)]
        return NULL if index < 0 else &self.cells[index]


cdef bytes cell_row(Cell* cell, int level):
    cdef CellRow row
    # The middle of the devices to a sixteenth of the cell, or each fix would be news.
    cdef int shift = 28 - level
    cdef double x = <double> (((cell.sum_x // cell.count) >> shift << shift) + (1 << shift) // 2)
    cdef double y = <double> (((cell.sum_y // cell.count) >> shift << shift) + (1 << shift) // 2)
    row.x = <uint32_t> (cell.key >> 32)
    row.y = <uint32_t> (cell.key & 0xFFFFFFFF)
    row.count = cell.count
    row.live = cell.live
    row.lat = <int32_t> llrint(atan(sinh(M_PI * (1.0 - 2.0 * y / 4294967296.0))) * 180.0 / M_PI * 1e7)
    row.lon = <int32_t> llrint((x / 4294967296.0 * 360.0 - 180.0) * 1e7)
    return PyBytes_FromStringAndSize(<char*> &row, sizeof(CellRow))


cdef class Lens:
    """A rectangle of cells: `columns` x `lines` of a level, from (x, y) on eastwards and southwards.

    `refresh` is called once in each tick. `version` grows with each frame; `delta` is the frame
    from the version before it, or None if there is only a whole one.
    """

    cdef readonly int level
    cdef readonly Py_ssize_t version
    cdef readonly bytes delta
    cdef readonly Py_ssize_t inside
    cdef readonly bint has_points
    cdef uint32_t x, y, columns, lines
    cdef uint8_t* members        # a bit for each number: it is inside
    cdef Py_ssize_t members_bytes
    cdef Py_ssize_t _points_from
    cdef Py_ssize_t _visible     # devices elsewhere too, as the last frame tells
    cdef dict _sent              # key of a cell: its row
    cdef bytes _whole
    cdef Py_ssize_t _whole_version

    def __cinit__(
        self, int level, int64_t x, int64_t y, int64_t columns, int64_t lines,
        Py_ssize_t points_from=POINTS_FROM
    ):
        if not 0 <= level <= LEVEL_MAX:
            raise ValueError("the level of a lens")
        self.level = level
        self.x, self.y = <uint32_t> x, <uint32_t> y
        self.columns, self.lines = <uint32_t> columns, <uint32_t> lines
        self._sent = {}
        self._points_from = points_from
        self._whole_version = -1

    def __dealloc__(self):
        PyMem_Free(self.members)

    cdef inline bint has(self, Row* row) noexcept:
        cdef uint32_t mask
        if not row.alive:
            return False
        # Differences wrap around, as the world does.
        mask = <uint32_t> ((<uint64_t> 1 << self.level) - 1)
        return (
            ((<uint32_t> (<uint64_t> row.x >> (32 - self.level))) - self.x & mask) < self.columns
            and (<uint32_t> (<uint64_t> row.y >> (32 - self.level))) - self.y < self.lines
        )

    def refresh(self, LivePositions positions, LevelCounts counts, int64_t now):
        """Take what has changed in the last tick. Return whether there is a new frame.

        `counts` are of this level and this tick; None if counts are not made in this tick. O(moved
        devices) for points, O(cells) for counts, and O(devices) at the first call.
        """
        cdef bint is_new
        if self.version == 0:
            self.inside = self._look_at_all(positions)
            self.has_points = self.inside <= self._points_from
            if not self.has_points and counts is None:
                counts = LevelCounts(positions, self.level, now)
            if self.has_points:
                self._visible = positions.alive
                return self._renew()
        if self.has_points:
            is_new = self._refresh_points(positions, counts, now)
        else:
            is_new = counts is not None and self._refresh_counts(positions, counts, now)
        if not is_new and self._visible != positions.alive:
            # Nothing has changed here, but there are more devices elsewhere, or fewer.
            self.delta = frame(
                POINTS if self.has_points else COUNTS, False, self.level,
                NULL, 0, 0, NULL, 0, 0, self.inside, positions.alive, now
            )
            self.version += 1
            is_new = True
        if is_new:
            self._visible = positions.alive
        return is_new

    cdef bint _renew(self):
        """There is a frame that is no change of the last one."""
        self.delta = None
        self.version += 1
        return True

    cdef Py_ssize_t _look_at_all(self, LivePositions positions) except -1:
        """Find who is inside among all devices."""
        cdef Py_ssize_t number, found = 0
        self._reserve(positions)
        memset(self.members, 0, self.members_bytes)
        for number in range(positions.count):
            if self.has(&positions.rows[number]):
                self.members[number >> 3] |= 1 << (number & 7)
                found += 1
        return found

    cdef int _reserve(self, LivePositions positions) except -1:
        cdef Py_ssize_t wanted = (positions.capacity + 7) // 8
        if wanted > self.members_bytes:
            members = PyMem_Realloc(self.members, wanted)
            if members is NULL:
                raise MemoryError
            self.members = <uint8_t*> members
            memset(self.members + self.members_bytes, 0, wanted - self.members_bytes)
            self.members_bytes = wanted
        elif self.members is NULL:
            self.members = <uint8_t*> PyMem_Calloc(1, 1)
        return 0

    cdef bint _refresh_points(
        self, LivePositions positions, LevelCounts counts, int64_t now
    ) except -1:
        cdef Py_ssize_t each, row_count = 0, gone_count = 0
        cdef uint32_t number
        cdef uint8_t bit
        cdef Row* row
        cdef PointRow* rows
        cdef uint32_t* gone
        if not positions.moved_count:
            return False
        self._reserve(positions)
        rows = <PointRow*> PyMem_Malloc(positions.moved_count * sizeof(PointRow))
        gone = <uint32_t*> PyMem_Malloc(positions.moved_count * sizeof(uint32_t))
        try:
            if rows is NULL or gone is NULL:
                raise MemoryError
            for each in range(positions.moved_count):
                number = positions.moved[each]
                row = &positions.rows[number]
                bit = 1 << (number & 7)
                if self.has(row):
                    self.inside += not self.members[number >> 3] & bit
                    self.members[number >> 3] |= bit
                    write_point(&rows[row_count], row, number, now)
                    row_count += 1
                elif self.members[number >> 3] & bit:
                    self.members[number >> 3] &= ~bit
                    self.inside -= 1
                    gone[gone_count] = number
                    gone_count += 1
            if self.inside > self._points_from * 5 // 4:
                self.has_points = False
                self._sent = {}
                if counts is None:
                    counts = LevelCounts(positions, self.level, now)
                return self._refresh_counts(positions, counts, now)
            if not (row_count or gone_count):
                return False
            self.delta = frame(
                POINTS, False, self.level, rows, sizeof(PointRow), row_count,
                gone, sizeof(uint32_t), gone_count, self.inside, positions.alive, now
            )
            self.version += 1
            return True
        finally:
            PyMem_Free(rows)
            PyMem_Free(gone)

    cdef bint _refresh_counts(
        self, LivePositions positions, LevelCounts counts, int64_t now
    ) except -1:
        cdef Py_ssize_t each, total = 0
        cdef uint64_t key
        cdef uint32_t column, line, mask = <uint32_t> ((<uint64_t> 1 << self.level) - 1)
        cdef Cell* cell
        cdef dict sent = self._sent, cells = {}
        cdef list news = []
        if counts.count < <Py_ssize_t> self.columns * <Py_ssize_t> self.lines:
            for each in range(counts.count):
                cell = &counts.cells[each]
                column = (<uint32_t> (cell.key >> 32)) - self.x & mask
                line = (<uint32_t> (cell.key & 0xFFFFFFFF)) - self.y
                if column < self.columns and line < self.lines:
                    total += cell.count
                    cells[cell.key] = cell_row(cell, self.level)
        else:
            for column in range(self.columns):
                for line in range(self.lines):
                    key = (<uint64_t> (self.x + column & mask)) << 32 | (self.y + line)
                    cell = counts.found(key)
                    if cell is not NULL:
                        total += cell.count
                        cells[cell.key] = cell_row(cell, self.level)
        self.inside = total
        if total <= self._points_from and self.version:
            self.inside = self._look_at_all(positions)
            self.has_points = True
            self._sent = {}
            return self._renew()
        first = not sent
        for name, row in cells.items():
            if sent.get(name) != row:
                news.append(row)
        gone = [name for name in sent if name not in cells]
        if not first and not news and not gone:
            return False
        self._sent = cells
        self.version += 1
        if first:
            self.delta = None
            return True
        rows = b"".join(news)
        left = b"".join([_cell_name(name) for name in gone])
        self.delta = frame(
            COUNTS, False, self.level, PyBytes_AS_STRING(rows), sizeof(CellRow), len(news),
            PyBytes_AS_STRING(left), 8, len(gone), total, positions.alive, now
        )
        return True

    def whole(self, LivePositions positions, int64_t now):
        """Return the frame that needs none before it; the same until the version changes."""
        cdef Py_ssize_t number, row_count = 0
        cdef PointRow* rows
        if self._whole_version == self.version:
            return self._whole
        if not self.has_points:
            joined = b"".join(self._sent.values())
            self._whole = frame(
                COUNTS, True, self.level, PyBytes_AS_STRING(joined), sizeof(CellRow),
                len(self._sent), NULL, 0, 0, self.inside, positions.alive, now
            )
        else:
            rows = <PointRow*> PyMem_Malloc(max(1, self.inside) * sizeof(PointRow))
            if rows is NULL:
                raise MemoryError
            for number in range(min(positions.count, 8 * self.members_bytes)):
                if (
                    self.members[number >> 3] >> (number & 7) & 1 and row_count < self.inside
                    and positions.rows[number].alive
                ):
                    write_point(&rows[row_count], &positions.rows[number], number, now)
                    row_count += 1
            self._whole = frame(
                POINTS, True, self.level, rows, sizeof(PointRow), row_count,
                NULL, 0, 0, self.inside, positions.alive, now
            )
            PyMem_Free(rows)
        self._whole_version = self.version
        return self._whole


cdef bytes _cell_name(uint64_t key):
    cdef uint32_t[2] name
    name[0] = <uint32_t> (key >> 32)
    name[1] = <uint32_t> (key & 0xFFFFFFFF)
    return PyBytes_FromStringAndSize(<char*> name, 8)


def chosen_frame(LivePositions positions, devices, int64_t now):
    """Return a frame of the positions of some devices, wherever they are."""
    cdef PointRow row
    rows = []
    for device in devices:
        number = positions.numbers.get(device)
        if number is not None:
            write_point(&row, &positions.rows[<Py_ssize_t> number], number, now)
            rows.append(PyBytes_FromStringAndSize(<char*> &row, sizeof(PointRow)))
    joined = b"".join(rows)
    return frame(
        CHOSEN, True, 0, PyBytes_AS_STRING(joined), sizeof(PointRow), len(rows),
        NULL, 0, 0, len(rows), positions.alive, now
    )


cdef class SentNames:
    """Which names one client has been told: a bit for each number."""

    cdef bytearray _bits
    cdef bint _begun

    def __cinit__(self):
        self._bits = bytearray()

    def frame(self, LivePositions positions, bytes points, int64_t now):
        """Return a frame of the names in a frame of points that the client does not know, or None.

        The first one tells the client to forget all names.
        """
        cdef Header* header = <Header*> PyBytes_AS_STRING(points)
        cdef PointRow* rows = <PointRow*> (PyBytes_AS_STRING(points) + sizeof(Header))
        cdef Py_ssize_t each
        cdef uint32_t number
        cdef uint16_t size
        cdef bytes name
        cdef list names = []
        cdef uint8_t[:] bits
        if header.kind != POINTS and header.kind != CHOSEN:
            return None
        if len(self._bits) * 8 < positions.count:
            self._bits.extend(bytes(positions.capacity // 8 + 1 - len(self._bits)))
        bits = self._bits
        for each in range(header.rows):
            number = rows[each].number
            if bits[number >> 3] >> (number & 7) & 1:
                continue
            bits[number >> 3] |= 1 << (number & 7)
            name = (<str> positions.names[number]).encode("utf-8", "replace")[:0xFFFF]
            size = <uint16_t> len(name)
            names.append(
                PyBytes_FromStringAndSize(<char*> &number, 4)
                + PyBytes_FromStringAndSize(<char*> &size, 2) + name
            )
        if not names and self._begun:
            return None
        first, self._begun = not self._begun, True
        joined = b"".join(names)
        head = frame(
            NAMES, first, 0, NULL, 0, 0, NULL, 0, 0, len(names), positions.alive, now
        )
        # The rows have no fixed size.
        return head[:4] + len(names).to_bytes(4, "little") + head[8:] + joined
