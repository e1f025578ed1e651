from libc.stdint cimport uint8_t, uint32_t


# The part of the buffer that is being read; `position` never exceeds `end`.
cdef struct Reader:
    const uint8_t* position
    const uint8_t* end


cdef int malformed(str what) except -1


cdef inline Py_ssize_t left(Reader* reader) noexcept:
    return reader.end - reader.position


cdef inline int read_byte(Reader* reader) except -1:
    if left(reader) < 1:
        malformed("packet ends too early")
    reader.position += 1
    return reader.position[-1]


cdef inline int read_two_bytes(Reader* reader) except -1:
    if left(reader) < 2:
        malformed("packet ends too early")
    reader.position += 2
    return (reader.position[-2] << 8) | reader.position[-1]


cdef inline long long read_four_bytes(Reader* reader) except -1:
    cdef long long high = read_two_bytes(reader)
    return (high << 16) | read_two_bytes(reader)


cdef inline Py_ssize_t read_length(Reader* reader) except -1:
    """Read the two-byte length of a string or binary data, checked against the packet's end."""
    cdef Py_ssize_t size = read_two_bytes(reader)
    if left(reader) < size:
        malformed("string or binary data is longer than its packet")
    return size


cdef int violation(str what) except -1
cdef int read_variable(Reader* reader) except -1
cdef bytes read_binary(Reader* reader)
cdef str read_string(Reader* reader)
cdef str decode_string(const uint8_t* start, Py_ssize_t size)
cdef int read_packet_id(Reader* reader) except -1
cdef bint is_printable(const uint8_t* start, Py_ssize_t size) noexcept
cdef bint is_sendable(str text) except -1
cdef int broken(str what) except -1
cdef bytes variable(uint32_t value)
cdef bytes binary(bytes value)
