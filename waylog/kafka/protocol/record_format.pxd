"""Record batches of version 2 as bytes, for clients and brokers: positions, numbers, varints.

record_batch.pyx has the layout. Nothing here needs the GIL or raises.
"""

from libc.stdint cimport int16_t, int64_t, uint32_t, uint64_t

cdef enum:
    AT_LENGTH = 8
    AT_LEADER_EPOCH = 12
    AT_MAGIC = 16
    AT_CRC = 17
    AT_ATTRIBUTES = 21
    AT_LAST_OFFSET_DELTA = 23
    AT_BASE_TIMESTAMP = 27
    AT_MAX_TIMESTAMP = 35
    AT_PRODUCER_ID = 43
    AT_PRODUCER_EPOCH = 51
    AT_BASE_SEQUENCE = 53
    AT_RECORD_COUNT = 57
    HEADER_SIZE = 61

    MAGIC = 2

    COMPRESSION_MASK = 0x07
    NO_COMPRESSION = 0
    LZ4 = 3
    LAST_CODEC = 4
    LOG_APPEND_TIME_BIT = 0x08
    TRANSACTIONAL_BIT = 0x10
    CONTROL_BIT = 0x20
    DELETE_HORIZON_BIT = 0x40


cdef inline int16_t get16(const unsigned char *at) noexcept nogil:
    return <int16_t>((<uint32_t>at[0] << 8) | at[1])


cdef inline uint32_t get32(const unsigned char *at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef inline int64_t get64(const unsigned char *at) noexcept nogil:
    return <int64_t>((<uint64_t>get32(at) << 32) | get32(at + 4))


cdef inline void put16(unsigned char *at, uint32_t value) noexcept nogil:
    at[0] = <unsigned char>(value >> 8)
    at[1] = <unsigned char>value


cdef inline void put32(unsigned char *at, uint32_t value) noexcept nogil:
    at[0] = <unsigned char>(value >> 24)
    at[1] = <unsigned char>(value >> 16)
    at[2] = <unsigned char>(value >> 8)
    at[3] = <unsigned char>value


cdef inline void put64(unsigned char *at, int64_t value) noexcept nogil:
    put32(at, <uint32_t>(<uint64_t>value >> 32))
    put32(at + 4, <uint32_t>value)


cdef inline const unsigned char *get_varint(
    const unsigned char *at, const unsigned char *end, int64_t *value
) noexcept nogil:
    """Read a zigzag varint of at most 64 bits; NULL if it is longer or crosses the end."""
    cdef uint64_t raw = 0
    cdef int shift = 0
    while at < end:
        raw |= <uint64_t>(at[0] & 0x7F) << shift
        if at[0] < 0x80:
            value[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
            return at + 1
        at += 1
        shift += 7
        if shift > 63:
            return NULL
    return NULL


cdef inline const unsigned char *skip_field(
    const unsigned char *at, const unsigned char *end, int64_t *size
) noexcept nogil:
    """Skip a length (-1 = null) and that many bytes; NULL if they cross the end."""
    at = get_varint(at, end, size)
    if at == NULL or size[0] < -1 or size[0] > end - at:
        return NULL
    return at + size[0] if size[0] > 0 else at


cdef inline int varint_size(int64_t value) noexcept nogil:
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


cdef inline unsigned char *put_varint(unsigned char *at, int64_t value) noexcept nogil:
    """Write a zigzag varint, at most ten bytes; return the end."""
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    while raw >= 0x80:
        at[0] = <unsigned char>(raw | 0x80)
        raw >>= 7
        at += 1
    at[0] = <unsigned char>raw
    return at + 1
