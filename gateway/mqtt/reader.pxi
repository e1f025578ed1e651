# Reads the parts of packets, never beyond their end (section 1.5); a part of codec.pyx.


cdef int malformed(str what) except -1:
    raise RemoteProtocolError(MALFORMED_PACKET, what)


cdef int violation(str what) except -1:
    raise RemoteProtocolError(PROTOCOL_ERROR, what)


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


cdef int read_variable(Reader* reader) except -1:
    """A Variable Byte Integer (section 1.5.5), in its shortest form."""
    cdef int value = 0, shift = 0, byte
    while True:
        byte = read_byte(reader)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift > 0:
                malformed("variable byte integer is longer than needed")
            return value
        shift += 7
        if shift > 21:
            malformed("variable byte integer has more than four bytes")


cdef inline Py_ssize_t read_length(Reader* reader) except -1:
    """The two-byte length before a string or binary data, checked against what is there."""
    cdef Py_ssize_t size = read_two_bytes(reader)
    if left(reader) < size:
        malformed("string or binary data is longer than its packet")
    return size


cdef bytes read_binary(Reader* reader):
    cdef Py_ssize_t size = read_length(reader)
    reader.position += size
    return PyBytes_FromStringAndSize(<const char*> reader.position - size, size)


cdef str decode_string(const uint8_t* start, Py_ssize_t size):
    """Section 1.5.4: well-formed UTF-8, no surrogates, no U+0000."""
    if memchr(start, 0, size) != NULL:
        malformed("string has U+0000 in it")
    try:
        return PyUnicode_DecodeUTF8(<char*> start, size, NULL)
    except UnicodeDecodeError:
        malformed("string is not UTF-8")


cdef str read_string(Reader* reader):
    cdef Py_ssize_t size = read_length(reader)
    reader.position += size
    return decode_string(reader.position - size, size)


cdef int read_packet_id(Reader* reader) except -1:
    cdef int packet_id = read_two_bytes(reader)
    if packet_id == 0:
        violation("packet identifier 0")
    return packet_id
