# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Serialise addresses as JSON directly from the kernel's results, without creating Python objects.

An address consists of a head of at most four members (the object's own name, house number, street,
place) and a tail that many objects share. The index holds the tail as JSON already. The JSON has
the same content as `display_name` and `address` of a `Place`, in the same order.

Of a town all members but the distance stay the same, so that they are serialised once.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.math cimport rint
from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memcpy

from geoservice.index.streets cimport StreetIndex

cdef enum:
    OBJECT_WIDTH = 12
    OBJECT_KIND = 2
    OBJECT_PARENT = 4
    OBJECT_NUMBER = 5
    OBJECT_UNLISTED = 6
    OBJECT_TAIL = 7
    OBJECT_RANKS = 10
    OBJECT_TEXT = 11
    TAIL_WIDTH = 5
    TAIL_TEXT = 3
    TAIL_DISPLAY = 4
    FLAG_IN_TAIL = 4 << 16
    HEAD_MAX = 4
    NUMBER_BYTES = 16
    DISTANCE_KEY_BYTES = 12
    TENTHS_BYTES = 24


cdef struct Text:
    const char* start
    int64_t length


cdef class AddressWriter:
    """A writer of the addresses of one index. Not safe for use by several threads at a time."""

    cdef StreetIndex _streets
    cdef char* _buffer
    cdef int64_t _size
    cdef int64_t _used

    def __cinit__(self, StreetIndex streets not None):
        self._streets = streets
        self._size = 4096
        self._buffer = <char*>PyMem_Malloc(self._size)
        if self._buffer is NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self._buffer)

    def write(
        self, const int32_t[::1] objects not None, const int32_t[::1] tails not None,
        const int32_t[::1] numbers not None, const double[::1] metres not None,
    ):
        """Return display_name, address and distance of each result of `find_batch` as JSON members.

        The result is None where the object is -1. Raises IndexError when the lengths differ, or for
        an object or a tail that the index does not have.
        """
        cdef Py_ssize_t i, count = objects.shape[0]
        cdef list written = []
        if tails.shape[0] != count or numbers.shape[0] != count or metres.shape[0] != count:
            raise IndexError("columns of different lengths")
        for i in range(count):
            if objects[i] < 0:
                written.append(None)
                continue
            if objects[i] >= self._streets.object_count or tails[i] >= self._streets.tail_count:
                raise IndexError(f"there is no object {objects[i]} or address {tails[i]}")
            self.compose(objects[i], tails[i], numbers[i], metres[i])
            written.append(PyBytes_FromStringAndSize(self._buffer, self._used))
        return written

    cdef int compose(self, int32_t number, int32_t tail, int32_t counted, double metres) except -1:
        cdef const int32_t* row = self._streets.sections.objects + <int64_t>number * OBJECT_WIDTH
        cdef const int32_t* parent
        cdef const int32_t* address
        cdef Text keys[HEAD_MAX]
        cdef Text names[HEAD_MAX]
        cdef char digits[NUMBER_BYTES]
        cdef int count = 0
        cdef Text members, display
        if not row[OBJECT_RANKS] & FLAG_IN_TAIL and row[OBJECT_TEXT] >= 0:
            keys[count] = self.string(self._streets.sections.kinds[3 * row[OBJECT_KIND] + 2])
            names[count] = self.string(row[OBJECT_TEXT])
            count += names[count].length > 0
        if counted >= 0:
            keys[count] = literal("house_number", 12)
            names[count].start = digits
            names[count].length = snprintf(digits, NUMBER_BYTES, "%d", <int>counted)
            count += 1
        elif row[OBJECT_NUMBER] >= 0:
            keys[count] = literal("house_number", 12)
            names[count] = self.string(row[OBJECT_NUMBER])
            count += 1
        if row[OBJECT_PARENT] >= 0:
            parent = self._streets.sections.objects + <int64_t>row[OBJECT_PARENT] * OBJECT_WIDTH
            if not parent[OBJECT_RANKS] & FLAG_IN_TAIL and parent[OBJECT_TEXT] >= 0:
                keys[count] = literal("road", 4)
                names[count] = self.string(parent[OBJECT_TEXT])
                count += names[count].length > 0
        if row[OBJECT_UNLISTED] >= 0:
            keys[count] = literal("locality", 8)
            names[count] = self.string(row[OBJECT_UNLISTED])
            count += 1
        if tail < 0:
            tail = row[OBJECT_TAIL]
        address = self._streets.sections.tails + <int64_t>tail * TAIL_WIDTH
        members.start = self._streets.sections.tail_texts + address[TAIL_TEXT]
        members.length = address[TAIL_DISPLAY] - address[TAIL_TEXT]
        display.start = self._streets.sections.tail_texts + address[TAIL_DISPLAY]
        display.length = address[TAIL_WIDTH + TAIL_TEXT] - address[TAIL_DISPLAY]

        self._used = 0
        self.put(literal('"display_name":"', 16))
        self.put_display(names, count, display)
        self.put(literal('","address":{', 13))
        self.put_members(keys, names, count, members)
        self.put(literal('},"distance":', 13))
        self.reserve(64)
        self._used += snprintf(self._buffer + self._used, 64, "%.1f", metres)
        return 0

    cdef Text string(self, int32_t number) noexcept:
        cdef Text text
        cdef int32_t start = self._streets.sections.string_ends[number - 1] if number else 0
        text.start = self._streets.sections.strings + start
        text.length = self._streets.sections.string_ends[number] - start
        return text

    cdef int put_display(self, const Text* names, int count, Text display) except -1:
        """Write the names, then those of the tail, without a name that repeats the one before."""
        cdef int i
        cdef int64_t before = self._used, last
        for i in range(count):
            if i and same(names[i], names[i - 1]):
                continue
            if i:
                self.put(literal(", ", 2))
            before = self._used
            self.put_escaped(names[i])
        if not count:
            return self.put(display)
        if not display.length:
            return 0
        # The tail may begin with the name that was just written.
        last = self._used - before
        if display.length >= last and not memcmp(display.start, self._buffer + before, last) and (
            display.length == last
            or (display.length > last + 1 and not memcmp(display.start + last, b", ", 2))
        ):
            self._used = before
            return self.put(display)
        self.put(literal(", ", 2))
        return self.put(display)

    cdef int put_members(
        self, const Text* keys, const Text* names, int count, Text members
    ) except -1:
        """Write the members of the head, then those of the tail with other keys."""
        cdef int i, j
        cdef bint first = True, known
        cdef int64_t at = 0, begin, key_end
        cdef Text key
        for i in range(count):
            known = False
            for j in range(i):
                known = known or same(keys[j], keys[i])
            if known:
                continue
            self.put(literal('"', 1) if first else literal(',"', 2))
            first = False
            self.put_escaped(keys[i])
            self.put(literal('":"', 3))
            self.put_escaped(names[i])
            self.put(literal('"', 1))
        while at < members.length:
            # Each member is "key":"value", followed by a comma; keys have no escapes.
            begin = at
            key_end = string_end(members, at)
            key.start = members.start + begin + 1
            key.length = key_end - begin - 2
            at = string_end(members, key_end + 1)
            known = False
            for i in range(count):
                known = known or same(keys[i], key)
            if not known:
                if not first:
                    self.put(literal(",", 1))
                first = False
                key.start = members.start + begin
                key.length = at - begin
                self.put(key)
            at += 1
        return 0

    cdef int put(self, Text text) except -1:
        if text.length > 0:
            self.reserve(text.length)
            memcpy(self._buffer + self._used, text.start, text.length)
            self._used += text.length
        return 0

    cdef int put_escaped(self, Text text) except -1:
        cdef int64_t i, clean = 0
        cdef unsigned char c
        cdef Text part
        for i in range(text.length):
            c = <unsigned char>text.start[i]
            if c >= 0x20 and c != 0x22 and c != 0x5C:
                continue
            part.start = text.start + clean
            part.length = i - clean
            self.put(part)
            clean = i + 1
            self.reserve(8)
            self._buffer[self._used] = 0x5C
            self._used += 1
            if c == 0x22 or c == 0x5C:
                self._buffer[self._used] = c
                self._used += 1
            elif c == 0x0A:
                self.put(literal("n", 1))
            elif c == 0x0D:
                self.put(literal("r", 1))
            elif c == 0x09:
                self.put(literal("t", 1))
            elif c == 0x08:
                self.put(literal("b", 1))
            elif c == 0x0C:
                self.put(literal("f", 1))
            else:
                self._used += snprintf(self._buffer + self._used, 7, "u%04x", <int>c)
        part.start = text.start + clean
        part.length = text.length - clean
        return self.put(part)

    cdef int reserve(self, int64_t more) except -1:
        cdef char* larger
        if self._used + more <= self._size:
            return 0
        larger = <char*>PyMem_Realloc(self._buffer, 2 * (self._used + more))
        if larger is NULL:
            raise MemoryError
        self._buffer = larger
        self._size = 2 * (self._used + more)
        return 0


cdef class TownWriter:
    """A writer of answers of the world's layer. Not safe for use by several threads at a time."""

    cdef dict _members
    cdef Py_ssize_t _most

    def __cinit__(self, Py_ssize_t most):
        """Keep the members of up to `most` towns."""
        self._members = {}
        self._most = most

    def keep(self, int32_t town, bytes members not None):
        """Keep what `write` writes for a town before the distance."""
        if len(self._members) >= self._most:
            self._members.clear()
        self._members[town] = members

    def write(
        self, const int32_t[::1] towns not None, const float[::1] metres not None, double farthest,
    ):
        """Return the members of each answer, and the positions of those that are None.

        An answer is None if its town is -1 or farther away than `farthest` metres, at most a million
        kilometres, or if nothing is kept for the town. Raises IndexError when the lengths differ.
        """
        cdef Py_ssize_t i, size, count = towns.shape[0]
        cdef list written = [], missing = []
        cdef char digits[TENTHS_BYTES]
        cdef char* start
        cdef int length
        cdef bytes answer
        if metres.shape[0] != count:
            raise IndexError("columns of different lengths")
        for i in range(count):
            members = None
            if towns[i] >= 0 and 0 <= metres[i] <= min(farthest, 1e9):
                members = self._members.get(towns[i])
            if members is None:
                written.append(None)
                missing.append(i)
                continue
            length = write_tenths(digits, metres[i])
            size = PyBytes_GET_SIZE(members)
            answer = PyBytes_FromStringAndSize(NULL, size + DISTANCE_KEY_BYTES + length)
            start = PyBytes_AS_STRING(answer)
            memcpy(start, PyBytes_AS_STRING(members), size)
            memcpy(start + size, b',"distance":', DISTANCE_KEY_BYTES)
            memcpy(start + size + DISTANCE_KEY_BYTES, digits + TENTHS_BYTES - length, length)
            written.append(answer)
        return written, missing


cdef inline int write_tenths(char* digits, float value) noexcept nogil:
    """Write a number as "%.1f" does to the end of TENTHS_BYTES bytes; return how many it took.

    `printf` takes longer than all the rest of an answer. The tenfold of a float is a double without
    rounding, and ties go to the even digit as they do there.
    """
    cdef int64_t left = <int64_t>rint(<double>value * 10.0)
    cdef int at = TENTHS_BYTES - 1
    digits[at] = 48 + <char>(left % 10)
    digits[at - 1] = 46
    at -= 1
    left //= 10
    while True:
        at -= 1
        digits[at] = 48 + <char>(left % 10)
        left //= 10
        if left == 0:
            return TENTHS_BYTES - at


cdef inline Text literal(const char* start, int64_t length) noexcept:
    cdef Text text
    text.start = start
    text.length = length
    return text


cdef inline bint same(Text one, Text other) noexcept:
    return one.length == other.length and not memcmp(one.start, other.start, one.length)


cdef int64_t string_end(Text text, int64_t at) noexcept:
    """Return the position after the string that begins at `at`, at most the length of the text."""
    at += 1
    while at < text.length:
        if text.start[at] == 0x5C:
            at += 1
        elif text.start[at] == 0x22:
            return at + 1
        at += 1
    return text.length
