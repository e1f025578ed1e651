"""Record batches as a log has them, one after another: reading headers, searching, cutting."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t

from broker_core.protocol.batch_header cimport (
    BAD_LENGTH,
    FINE,
    check_batch,
    problem_text,
    read_header,
    refusal,
)
from waylog.kafka.protocol.record_format cimport (
    AT_LAST_OFFSET_DELTA,
    AT_LENGTH,
    AT_MAX_TIMESTAMP,
    HEADER_SIZE,
    get32,
    get64,
)


def scan_batches(data, *, check_crc=True, int32_t count_max=INT32_MAX):
    """Read batches of a log, up to the first that is incomplete or damaged, at most `count_max`.

    Returns (headers, bytes they take, problem of the next batch or None at the end of the data).
    """
    cdef Py_buffer view
    cdef int64_t position = 0, size = 0
    cdef int problem = FINE
    cdef bint with_crc = check_crc
    cdef list headers = []
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        while position < view.len and len(headers) < count_max:
            with nogil:
                problem = check_batch(
                    <const unsigned char *>view.buf + position, view.len - position, with_crc, &size
                )
            if problem != FINE:
                break
            headers.append(
                read_header(<const unsigned char *>view.buf + position, position, size)
            )
            position += size
        return headers, position, None if problem == FINE else problem_text(problem)
    finally:
        PyBuffer_Release(&view)


def find_batch(data, int64_t offset, int64_t timestamp_ms=INT64_MIN):
    """Find the first batch that reaches `offset` and has a max timestamp >= `timestamp_ms`.

    Returns (position, size). If the data ends before such a batch, size is 0 and position is that
    of the batch after the last one examined, which can be behind the end of the data. Raises
    CorruptMessage.
    """
    cdef Py_buffer view
    cdef const unsigned char *batch
    cdef int64_t position = 0, size
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        while view.len - position >= HEADER_SIZE:
            batch = <const unsigned char *>view.buf + position
            size = <int64_t><int32_t>get32(batch + AT_LENGTH) + 12
            if size < HEADER_SIZE:
                raise refusal(BAD_LENGTH, position)
            if (
                get64(batch) + <int32_t>get32(batch + AT_LAST_OFFSET_DELTA) >= offset
                and get64(batch + AT_MAX_TIMESTAMP) >= timestamp_ms
            ):
                return position, size
            position += size
        return position, 0
    finally:
        PyBuffer_Release(&view)


def whole_batches(data, int64_t up_to_offset=INT64_MAX):
    """Measure how much of the data is whole batches that end before `up_to_offset`.

    Returns (bytes, offset after the last of them, or -1 if there is none). Raises CorruptMessage.
    """
    cdef Py_buffer view
    cdef const unsigned char *batch
    cdef int64_t position = 0, size, next_offset = -1, following
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        while view.len - position >= HEADER_SIZE:
            batch = <const unsigned char *>view.buf + position
            size = <int64_t><int32_t>get32(batch + AT_LENGTH) + 12
            if size < HEADER_SIZE:
                raise refusal(BAD_LENGTH, position)
            following = get64(batch) + <int32_t>get32(batch + AT_LAST_OFFSET_DELTA) + 1
            if size > view.len - position or following > up_to_offset:
                break
            next_offset = following
            position += size
        return position, next_offset
    finally:
        PyBuffer_Release(&view)
