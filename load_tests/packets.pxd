"""The MQTT 3.1.1 packets that a device of the fleet writes, and the parsing of answers.

The functions named put_ write at `out` or `start`, where PACKET_BYTES_MAX are free, and return the
end.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    PACKET_BYTES_MAX = 1024  # sufficient while the lengths in Names are below 300

ctypedef struct Text:
    const char* start
    Py_ssize_t size

ctypedef struct Names:
    Text topic_head  # devices/<user>/d
    Text id_head  # <run>-
    Text user
    Text password


cdef inline uint64_t mixed(uint64_t value) noexcept nogil:
    """splitmix64: spread the bits of a device's number."""
    value += <uint64_t>0x9E3779B97F4A7C15
    value = (value ^ (value >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    value = (value ^ (value >> 27)) * <uint64_t>0x94D049BB133111EB
    return value ^ (value >> 31)


cdef inline uint8_t* put_bytes(uint8_t* out, const char* text, Py_ssize_t size) noexcept nogil:
    memcpy(out, text, size)
    return out + size


cdef inline uint8_t* put_size(uint8_t* out, Py_ssize_t size) noexcept nogil:
    """Write a size as two bytes, the higher one first."""
    out[0], out[1] = size >> 8, size & 255
    return out + 2


cdef inline uint8_t* put_digits(uint8_t* out, uint64_t value, int width) noexcept nogil:
    """Write `value` in exactly `width` digits."""
    cdef int position = width
    while position > 0:
        position -= 1
        out[position] = 48 + value % 10
        value //= 10
    return out + width


cdef inline uint8_t* put_number(uint8_t* out, uint64_t value) noexcept nogil:
    cdef int width = 1
    cdef uint64_t rest = value // 10
    while rest:
        width += 1
        rest //= 10
    return put_digits(out, value, width)


cdef inline uint8_t* put_degrees(uint8_t* out, uint64_t millionths) noexcept nogil:
    out = put_number(out, millionths // 1_000_000)
    out[0] = 46  # "."
    return put_digits(out + 1, millionths % 1_000_000, 6)


cdef inline uint8_t* put_topic(
    uint8_t* out, const Names* names, uint32_t number, const char* tail, int size
) noexcept nogil:
    out = put_size(out, names.topic_head.size + 8 + size)
    out = put_bytes(out, names.topic_head.start, names.topic_head.size)
    return put_bytes(put_digits(out, number, 8), tail, size)


cdef inline uint8_t* put_connect(
    uint8_t* start, const Names* names, uint32_t number, uint16_t keep_alive_s
) noexcept nogil:
    """Write CONNECT (section 3.1): clean session, user name, and the password if there is one."""
    cdef uint8_t* out = put_bytes(start + 3, b"\x00\x04MQTT\x04", 7)
    cdef bint with_password = names.password.size > 0
    out[0] = 0x02 | 0x80 | (0x40 if with_password else 0)
    out = put_size(out + 1, keep_alive_s)
    out = put_size(out, names.id_head.size + 8)
    out = put_digits(put_bytes(out, names.id_head.start, names.id_head.size), number, 8)
    out = put_bytes(put_size(out, names.user.size), names.user.start, names.user.size)
    if with_password:
        out = put_size(out, names.password.size)
        out = put_bytes(out, names.password.start, names.password.size)
    return with_header(start, 0x10, out)


cdef inline uint8_t* put_subscribe(uint8_t* start, const Names* names, uint32_t number) noexcept nogil:
    """Write SUBSCRIBE (section 3.8) to the device's own address with QoS 0."""
    cdef uint8_t* out = put_topic(put_size(start + 3, 0xFFFF), names, number, b"/address", 8)
    out[0] = 0
    return with_header(start, 0x82, out + 1)


cdef inline uint8_t* put_publish(
    uint8_t* start, const Names* names, uint32_t number, uint32_t sequence, int64_t time_ms, bint again
) noexcept nogil:
    """Write PUBLISH (section 3.3) of a device's fix with QoS 1; `again` sets DUP."""
    cdef uint64_t spread = mixed(number)
    cdef int64_t steps = sequence % 2000
    cdef uint8_t* out
    if steps > 1000:
        steps = 2000 - steps  # there and back, so that devices stay on land
    out = put_topic(start + 3, names, number, b"/position", 9)
    out = put_size(out, 1 + sequence % 65535)  # packet identifier
    out = put_bytes(out, b'{"id":"', 7)
    out = put_bytes(out, names.id_head.start, names.id_head.size)
    out = put_digits(out, number, 8)
    out[0] = 45  # "-"
    out = put_digits(out + 1, sequence, 8)
    out = put_bytes(out, b'","lat":', 8)
    # An area of some 8 by 9 degrees in Central Europe; up to 35 m between two fixes.
    out = put_degrees(
        out, 46_000_000 + spread % 8_000_000 + <int64_t>(spread >> 40 & 511) * steps // 2
    )
    out = put_bytes(out, b',"lon":', 7)
    out = put_degrees(
        out, 6_000_000 + (spread >> 20) % 9_000_000 + <int64_t>(spread >> 50 & 511) * steps // 2
    )
    out = put_bytes(out, b',"time":', 8)
    out = put_number(out, time_ms)
    out = put_bytes(out, b',"accuracy":', 12)
    out = put_number(out, 3 + (spread >> 8) % 30)
    out = put_bytes(out, b',"battery":', 11)
    out = put_number(out, 100 - sequence % 90)
    out[0] = 125  # "}"
    return with_header(start, 0x32 | (again << 3), out + 1)


cdef inline uint8_t* with_header(uint8_t* start, uint8_t first, uint8_t* end) noexcept nogil:
    """Write the fixed header into the three bytes reserved at `start`; return the end.

    A length below 128 would fit into one byte, but version 3.1.1 does not require the shortest
    form.
    """
    cdef Py_ssize_t remaining = end - start - 3
    start[0], start[1], start[2] = first, 0x80 | (remaining & 127), remaining >> 7
    return end


cdef inline Py_ssize_t find_time(const uint8_t* text, Py_ssize_t position, Py_ssize_t size) noexcept nogil:
    """Return where the digits after `"time":` begin; `size` if there are none."""
    cdef const char* name = b'"time":'
    cdef int matched
    while position + 8 <= size:
        matched = 0
        while matched < 7 and text[position + matched] == <uint8_t>name[matched]:
            matched += 1
        if matched == 7:
            return position + 7
        position += 1
    return size


cdef inline int64_t read_time(
    const uint8_t* text, Py_ssize_t position, Py_ssize_t size
) noexcept nogil:
    """Return the number after `"time":`; 0 if there is none."""
    cdef int64_t found = 0
    position = find_time(text, position, size)
    while position < size and 48 <= text[position] <= 57 and found < <int64_t>1 << 50:
        found = 10 * found + text[position] - 48
        position += 1
    return found


cdef inline Py_ssize_t find_body(
    const uint8_t* data, Py_ssize_t position, Py_ssize_t size, Py_ssize_t* length
) noexcept nogil:
    """Return where the body of a packet begins, and set its length.

    It is 0 if the packet is not complete, and -1 if it can be none.
    """
    cdef Py_ssize_t body = position + 1
    cdef int shift = 0
    length[0] = 0
    while body < size:
        length[0] |= <Py_ssize_t>(data[body] & 127) << shift
        shift += 7
        body += 1
        if not data[body - 1] & 128:
            return body if body + length[0] <= size else 0
        if shift > 21:
            return -1
    return 0
