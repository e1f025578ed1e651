"""Reads the fields of packets, never beyond their end, and encodes them (section 1.5)."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t, uint32_t

from gateway.mqtt.packets.packet_numbers cimport (
    MALFORMED_PACKET,
    PROTOCOL_ERROR,
    REMAINING_LENGTH_MAX,
)

from gateway.mqtt.packets.packets import LocalProtocolError, RemoteProtocolError


cdef int malformed(str what) except -1:
    raise RemoteProtocolError(MALFORMED_PACKET, what)


cdef int violation(str what) except -1:
    raise RemoteProtocolError(PROTOCOL_ERROR, what)


cdef int read_variable(Reader* reader) except -1:
    """Read a Variable Byte Integer (section 1.5.5), which must have its shortest form."""
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


cdef bytes read_binary(Reader* reader):
    cdef Py_ssize_t size = read_length(reader)
    reader.position += size
    return PyBytes_FromStringAndSize(<const char*> reader.position - size, size)


cdef bint is_printable(const uint8_t* start, Py_ssize_t size) noexcept:
    """Return whether well-formed UTF-8 has neither control characters nor non-characters.

    Section 1.5.4 leaves this check to the receiver. libmosquitto disconnects when it reads such a
    character, so that a single one in a retained topic would keep all its clients and bridges away.
    """
    cdef const uint8_t* end = start + size
    cdef uint8_t first
    while start < end:
        first = start[0]
        if first < 0x80:
            if first < 0x20 or first == 0x7F:
                return False
            start += 1
        elif first < 0xE0:
            if first == 0xC2 and start[1] < 0xA0:  # U+0080 to U+009F
                return False
            start += 2
        elif first < 0xF0:
            if first == 0xEF and (
                (start[1] == 0xB7 and 0x90 <= start[2] <= 0xAF)  # U+FDD0 to U+FDEF
                or (start[1] == 0xBF and start[2] >= 0xBE)  # U+FFFE, U+FFFF
            ):
                return False
            start += 3
        else:
            if start[1] & 0x0F == 0x0F and start[2] == 0xBF and start[3] >= 0xBE:
                return False
            start += 4
    return True


cdef bint is_sendable(str text) except -1:
    """Return whether a string of any origin is printable and not too long for MQTT."""
    cdef Py_ssize_t size
    cdef const char* start
    try:
        start = PyUnicode_AsUTF8AndSize(text, &size)
    except UnicodeEncodeError:
        return False
    return size <= 0xFFFF and is_printable(<const uint8_t*> start, size)


def string_is_valid(str text):
    """Return whether a string may occur in a packet (section 1.5.4)."""
    return is_sendable(text)


cdef str decode_string(const uint8_t* start, Py_ssize_t size):
    """Decode a string: well-formed UTF-8 without surrogates (section 1.5.4), and printable."""
    cdef str decoded
    try:
        decoded = PyUnicode_DecodeUTF8(<char*> start, size, NULL)
    except UnicodeDecodeError:
        malformed("string is not UTF-8")
    if not is_printable(start, size):
        malformed("string has a control character or a non-character in it")
    return decoded


cdef str read_string(Reader* reader):
    cdef Py_ssize_t size = read_length(reader)
    reader.position += size
    return decode_string(reader.position - size, size)


cdef int read_packet_id(Reader* reader) except -1:
    cdef int packet_id = read_two_bytes(reader)
    if packet_id == 0:
        violation("packet identifier 0")
    return packet_id


cdef int broken(str what) except -1:
    raise LocalProtocolError(PROTOCOL_ERROR, what)


cdef bytes variable(uint32_t value):
    cdef char[4] digits
    cdef int count = 0
    if value > REMAINING_LENGTH_MAX:
        broken("packet is too long")
    while True:
        digits[count] = value & 0x7F
        value >>= 7
        count += 1
        if not value:
            return PyBytes_FromStringAndSize(digits, count)
        digits[count - 1] |= 0x80


cdef bytes binary(bytes value):
    if len(value) > 0xFFFF:
        broken("string or binary data is longer than 65535 bytes")
    return len(value).to_bytes(2, "big") + value
