# cython: boundscheck=False, wraparound=False, cdivision=True
"""One device of the fleet: which of its fixes are acknowledged, and what waits on its connection.

Functions that send return 0, or the errno with which the connection has failed.
"""

from libc.errno cimport EAGAIN, EINTR, ENOMEM, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove, memset
from posix.unistd cimport close

from load_tests.linux cimport MSG_NOSIGNAL, send_

cdef enum:
    # States of a connection.
    DOWN = 0  # until `deadline`
    CONNECTING = 1
    GREETING = 2  # CONNECT was sent
    SUBSCRIBING = 3
    READY = 4
    REFUSED = 5  # permanently: wrong password

ctypedef struct Device:
    int fd
    uint8_t state
    uint32_t due  # number of fixes that are due
    uint32_t next  # first fix that was never sent; floor <= next <= due
    uint32_t floor  # all fixes below it are acknowledged
    uint32_t in_flight  # sent on this connection and not acknowledged
    uint32_t pushed  # 1 + the newest fix whose address was received
    uint32_t words  # size of `acknowledged`
    uint64_t* acknowledged  # one bit per fix
    int64_t deadline  # when to connect again (DOWN), or when to give up waiting (other states)
    int64_t backoff
    uint8_t* input  # incomplete packet
    uint32_t input_size
    uint8_t* output  # data that the socket did not accept yet
    uint32_t output_size


cdef inline bint has_bit_for(Device* device, uint32_t sequence) noexcept nogil:
    """Return whether a fix can be noted as acknowledged; False if there is no memory for that."""
    cdef uint32_t words = 2 * device.words if device.words else 2
    cdef uint64_t* grown
    if sequence // 64 < device.words:
        return True
    grown = <uint64_t*>realloc(device.acknowledged, words * sizeof(uint64_t))
    if grown is NULL:
        return False
    memset(grown + device.words, 0, (words - device.words) * sizeof(uint64_t))
    device.acknowledged, device.words = grown, words
    return True


cdef inline bint is_acknowledged(const Device* device, uint32_t sequence) noexcept nogil:
    return device.acknowledged[sequence // 64] >> (sequence % 64) & 1


cdef inline void note_acknowledged(Device* device, uint32_t sequence) noexcept nogil:
    device.acknowledged[sequence // 64] |= <uint64_t>1 << (sequence % 64)
    while device.floor < device.next and is_acknowledged(device, device.floor):
        device.floor += 1
    if device.in_flight:
        device.in_flight -= 1


cdef inline int send(Device* device, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Send data after what waits; keep what the socket does not accept yet."""
    cdef ssize_t taken = 0
    cdef uint8_t* grown
    if not device.output_size:
        taken = send_(device.fd, data, size, MSG_NOSIGNAL)
        if taken == size:
            return 0
        if taken < 0:
            if errno != EAGAIN and errno != EINTR:
                return errno
            taken = 0
    # Never more than two windows of packets, because new ones wait for acknowledgements.
    grown = <uint8_t*>realloc(device.output, device.output_size + size - taken)
    if grown is NULL:
        return ENOMEM
    device.output = grown
    memcpy(grown + device.output_size, data + taken, size - taken)
    device.output_size += size - taken
    return 0


cdef inline int send_waiting(Device* device) noexcept nogil:
    """Send what waits, as far as the socket accepts it."""
    cdef ssize_t taken = send_(device.fd, device.output, device.output_size, MSG_NOSIGNAL)
    if taken < 0:
        return 0 if errno == EAGAIN or errno == EINTR else errno
    device.output_size -= taken
    if device.output_size:
        memmove(device.output, device.output + taken, device.output_size)
    else:
        free(device.output)
        device.output = NULL
    return 0


cdef inline void keep_input(Device* device, const uint8_t* rest, Py_ssize_t size) noexcept nogil:
    """Keep the beginning of a packet in place of what was kept before."""
    free(device.input)
    device.input = <uint8_t*>malloc(size) if size else NULL
    device.input_size = 0 if device.input is NULL else size
    if device.input is not NULL:
        memcpy(device.input, rest, size)


cdef inline void disconnect(Device* device) noexcept nogil:
    """Close the connection, and discard what waits on it."""
    if device.fd >= 0:
        close(device.fd)
    device.fd = -1
    device.state = DOWN
    device.in_flight = 0
    device.input_size = device.output_size = 0
    free(device.input)
    free(device.output)
    device.input = device.output = NULL
