"""Last positions of many devices as an array, for the map: each with a number that stays.

The view of fixes puts a position here with each fix, as long as somebody looks at the map by area
(`gateway.viewers.areas`); nobody pays for it otherwise. A tick is a short time, after which those
who look are told what has changed: `begin_tick` says which devices have moved in it.
"""

from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.math cimport M_PI, NAN, llrint, log, sin
from libc.stdint cimport int32_t, int64_t, uint32_t

from sys import intern

from gateway.fixes.record_head cimport RecordHead, read_record

cdef double WORLD = 4294967296.0
cdef double NORTHMOST = 85.05112877980659


cdef inline uint32_t mercator_x(double lon) noexcept nogil:
    # It wraps around: the antimeridian has two longitudes and one place.
    return <uint32_t> (<int64_t> ((lon + 180.0) / 360.0 * WORLD))


cdef inline uint32_t mercator_y(double lat) noexcept nogil:
    cdef double sine, y
    lat = min(max(lat, -NORTHMOST), NORTHMOST)
    sine = sin(lat * M_PI / 180.0)
    y = (0.5 - log((1.0 + sine) / (1.0 - sine)) / (4.0 * M_PI)) * WORLD
    return <uint32_t> min(max(y, 0.0), WORLD - 1.0)


def mercator(double lat, double lon):
    """Return a place in degrees as (x, y), of a world that is 2**32 wide and high.

    Latitudes beyond those of a square map (85.05 degrees) are on its edges.
    """
    return mercator_x(lon), mercator_y(lat)


cdef class LivePositions:
    """Last positions, by number. A number is never used again for another device."""

    def __cinit__(self):
        self.numbers = {}
        self.names = []
        self.owners = []
        self.users = set()

    def __dealloc__(self):
        PyMem_Free(self.rows)
        PyMem_Free(self.dirty)
        PyMem_Free(self.moved)

    def __len__(self):
        return self.alive

    def follow(self, users):
        """Take devices of these users from now on, besides those of others; None for all."""
        if users is None:
            self.users = None
        elif self.users is not None:
            self.users.update(users)

    @property
    def follows_all(self):
        """Tell whether the devices of all users are taken."""
        return self.users is None

    cdef int grow(self) except -1:
        cdef Py_ssize_t capacity = max(1024, 2 * self.capacity)
        rows = PyMem_Realloc(self.rows, capacity * sizeof(Row))
        if rows is NULL:
            raise MemoryError
        self.rows = <Row*> rows
        dirty = PyMem_Realloc(self.dirty, capacity * sizeof(uint32_t))
        if dirty is NULL:
            raise MemoryError
        self.dirty = <uint32_t*> dirty
        moved = PyMem_Realloc(self.moved, capacity * sizeof(uint32_t))
        if moved is NULL:
            raise MemoryError
        self.moved = <uint32_t*> moved
        self.capacity = capacity
        return 0

    cdef Py_ssize_t number_of(self, str device) except -2:
        """Return the number of a device, a new one if it has none; -1 if it is not followed."""
        cdef Row* row
        known = self.numbers.get(device)
        if known is not None:
            return known
        owner = intern(device.partition("/")[0])
        if self.users is not None and owner not in self.users:
            return -1
        if self.count == self.capacity:
            self.grow()
        number = self.count
        row = &self.rows[number]
        row.alive = True
        row.is_dirty = False
        row.tick = 0
        row.time = -(<int64_t> 1 << 62)
        self.numbers[device] = number
        self.names.append(device)
        self.owners.append(owner)
        self.count += 1
        self.alive += 1
        return number

    cdef int mark(self, Py_ssize_t number) noexcept:
        if not self.rows[number].is_dirty:
            self.rows[number].is_dirty = True
            self.dirty[self.dirty_count] = <uint32_t> number
            self.dirty_count += 1
        return 0

    cdef int move(
        self, str device, int64_t time, int64_t received, double lat, double lon,
        double speed, double course, double accuracy
    ) except -1:
        cdef Py_ssize_t number = self.number_of(device)
        cdef Row* row
        if number < 0:
            return 0
        row = &self.rows[number]
        row.time = time
        row.received = received
        row.lat = <int32_t> llrint(lat * 1e7)
        row.lon = <int32_t> llrint(lon * 1e7)
        row.x = mercator_x(lon)
        row.y = mercator_y(lat)
        row.speed = <float> speed
        row.course = <float> course
        row.accuracy = <float> accuracy
        self.mark(number)
        return 0

    def put(
        self, str device, int64_t time, int64_t received, double lat, double lon,
        speed=None, course=None, accuracy=None
    ):
        """Take a position: times in ms, degrees, m/s, m; of a device that is followed.

        The same one again is no change: friends would learn that something has come.
        """
        cdef Row* row
        if not (-90 <= lat <= 90 and -180 <= lon <= 180):
            return
        number = self.numbers.get(device)
        if number is not None:
            row = &self.rows[<Py_ssize_t> number]
            if (
                row.time == time and row.received == received
                and row.lat == llrint(lat * 1e7) and row.lon == llrint(lon * 1e7)
            ):
                return
        self.move(
            device, time, received, lat, lon,
            NAN if speed is None else speed,
            NAN if course is None else course,
            NAN if accuracy is None else accuracy,
        )

    def put_record(self, str device, int64_t live, bytes value):
        """Take the position in a record of topic `location`; `live` is its time, in ms.

        Return False if the record is not in the form that the gateway writes.
        """
        cdef RecordHead head
        if not read_record(value, &head):
            return False
        self.move(
            device, live, head.received, head.lat, head.lon, head.speed, head.course, head.accuracy
        )
        return True

    cpdef copy(self, str device, LivePositions other):
        """Take the position that `other` has of a device, or remove it if there is none."""
        cdef Py_ssize_t number
        cdef Row* row
        known = other.numbers.get(device)
        if known is None:
            self.remove(device)
            return
        number = self.number_of(device)
        if number < 0:
            return
        row = &self.rows[number]
        was_dirty, tick = row.is_dirty, row.tick
        row[0] = other.rows[<Py_ssize_t> known]
        row.is_dirty, row.tick = was_dirty, tick
        self.mark(number)

    cpdef remove(self, str device):
        """Forget a device, if it is known."""
        cdef Py_ssize_t number
        known = self.numbers.pop(device, None)
        if known is None:
            return
        number = known
        self.rows[number].alive = False
        self.rows[number].time = self.rows[number].received = 0
        self.rows[number].lat = self.rows[number].lon = 0
        self.rows[number].x = self.rows[number].y = 0
        self.alive -= 1
        self.mark(number)

    def begin_tick(self):
        """Begin a new tick; return how many devices have changed in the one that ends."""
        cdef Py_ssize_t each
        for each in range(self.moved_count):
            if not self.rows[self.moved[each]].alive:
                # All who look have been told; nothing is kept of a device that was erased.
                self.names[self.moved[each]] = ""
        self.dirty, self.moved = self.moved, self.dirty
        self.moved_count = self.dirty_count
        self.dirty_count = 0
        self.tick += 1
        for each in range(self.moved_count):
            self.rows[self.moved[each]].is_dirty = False
            self.rows[self.moved[each]].tick = self.tick
        return self.moved_count

    def has_moved(self, devices):
        """Tell whether any of these devices has changed in the last tick."""
        for device in devices:
            number = self.numbers.get(device)
            if number is not None and self.rows[<Py_ssize_t> number].tick == self.tick:
                return True
        return False

    def moved_of(self, users):
        """Return the devices that have changed in the last tick, by user, for those of `users`."""
        cdef Py_ssize_t each
        found = {}
        for each in range(self.moved_count):
            user = self.owners[self.moved[each]]
            if user in users:
                found.setdefault(user, []).append(self.names[self.moved[each]])
        return found

    def copy_moved(self, LivePositions other, str user):
        """Copy what has changed of a user's devices in the last tick of `other`."""
        cdef Py_ssize_t each
        user = intern(user)
        for each in range(other.moved_count):
            if other.owners[other.moved[each]] is user:
                self.copy(other.names[other.moved[each]], other)

    def __contains__(self, device):
        return device in self.numbers

    def number(self, str device):
        """Return the number of a device, or None."""
        return self.numbers.get(device)

    def name(self, Py_ssize_t number):
        """Return the device with a number. Raises IndexError."""
        return self.names[number]
