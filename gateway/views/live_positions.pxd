from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t


cdef struct Row:
    int64_t time      # of the position, ms
    int64_t received  # ms
    int32_t lat       # 1e-7 degrees
    int32_t lon
    uint32_t x        # Web Mercator, the world is 2**32 wide, from the antimeridian eastwards
    uint32_t y        # from the north southwards
    float speed       # m/s; NaN where it is not known, as those below
    float course      # degrees
    float accuracy    # m
    uint32_t tick     # the last tick in which the device has changed
    uint8_t alive
    uint8_t is_dirty


cdef class LivePositions:
    cdef Row* rows
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t alive
    cdef Py_ssize_t capacity
    cdef uint32_t* dirty         # numbers of devices that have changed since the last tick
    cdef Py_ssize_t dirty_count
    cdef uint32_t* moved         # those of the tick before it, which lenses look at
    cdef readonly Py_ssize_t moved_count
    cdef uint32_t tick
    cdef dict numbers
    cdef list names
    cdef list owners             # the users of the devices
    cdef set users

    cdef int grow(self) except -1
    cdef Py_ssize_t number_of(self, str device) except -2
    cpdef copy(self, str device, LivePositions other)
    cpdef remove(self, str device)
    cdef int mark(self, Py_ssize_t number) noexcept
    cdef int move(
        self, str device, int64_t time, int64_t received, double lat, double lon,
        double speed, double course, double accuracy
    ) except -1
