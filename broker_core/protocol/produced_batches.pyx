"""Record batches as a producer sends them: checked, then numbered in place."""

from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint32_t, uint64_t

from broker_core.protocol.batch_header cimport (
    BAD_OFFSETS,
    BAD_RECORD,
    BAD_RECORD_COUNT,
    BAD_RECORD_OFFSET,
    FINE,
    BatchHeader,
    check_batch,
    read_header,
    refusal,
)
from broker_core.protocol.crc32c cimport crc32c_extend
from waylog.kafka.protocol.record_format cimport (
    AT_ATTRIBUTES,
    AT_CRC,
    AT_LAST_OFFSET_DELTA,
    AT_LEADER_EPOCH,
    AT_LENGTH,
    AT_MAX_TIMESTAMP,
    AT_PRODUCER_EPOCH,
    AT_PRODUCER_ID,
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LAST_CODEC,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    get16,
    get32,
    get64,
    get_varint,
    put16,
    put32,
    put64,
    skip_field,
)

from broker_core.errors import (
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from broker_core.protocol.compression import EXPANDED_BYTES_MAX, decompress

#: Batches that a producer may send for a partition at a time; Apache Kafka takes one.
BATCHES_MAX = 1_000

#: The timestamp of a record that has none.
cdef int64_t NO_TIMESTAMP = -1


cdef int _walk_records(
    const unsigned char *at,
    const unsigned char *end,
    int32_t count,
    int64_t base_timestamp,
    int64_t *max_timestamp,
    int64_t *min_timestamp,
    bint *has_null_key,
) noexcept nogil:
    """Check all lengths of uncompressed records; find null keys, the newest and oldest timestamp.

    The oldest one is that of the records that have a timestamp.
    """
    cdef int64_t size, timestamp, delta, headers
    cdef const unsigned char *record_end
    cdef int32_t index
    max_timestamp[0] = INT64_MIN
    min_timestamp[0] = INT64_MAX
    has_null_key[0] = False
    for index in range(count):
        at = get_varint(at, end, &size)
        if at == NULL or size < 1 or size > end - at:
            return BAD_RECORD
        record_end = at + size
        at = get_varint(at + 1, record_end, &delta)  # after the attributes, which are unused
        if at == NULL:
            return BAD_RECORD
        # Unsigned, since signed overflow is undefined.
        timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>delta)
        if timestamp > max_timestamp[0]:
            max_timestamp[0] = timestamp
        if timestamp < min_timestamp[0] and timestamp != NO_TIMESTAMP:
            min_timestamp[0] = timestamp
        at = get_varint(at, record_end, &delta)
        if at == NULL:
            return BAD_RECORD
        if delta != index:
            return BAD_RECORD_OFFSET
        at = skip_field(at, record_end, &size)
        if at == NULL:
            return BAD_RECORD
        if size < 0:
            has_null_key[0] = True
        at = skip_field(at, record_end, &size)
        if at == NULL:
            return BAD_RECORD
        at = get_varint(at, record_end, &headers)
        if at == NULL or headers < 0 or headers > record_end - at:
            return BAD_RECORD
        while headers > 0:
            at = skip_field(at, record_end, &size)
            if at == NULL or size < 0:
                return BAD_RECORD
            at = skip_field(at, record_end, &size)
            if at == NULL:
                return BAD_RECORD
            headers -= 1
        if at != record_end:
            return BAD_RECORD
    return FINE if at == end else BAD_RECORD_COUNT


cdef int _check_produced(
    BatchHeader header, const unsigned char *batch, bint from_client
) except -1:
    """Check further requirements for a produced batch; see Kafka's LogValidator.

    The broker's own coordinators write control records, and transactional batches without sequence.
    """
    cdef int problem
    cdef int64_t newest = 0, oldest = 0
    cdef bint has_null_key = False
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecord(
            f"the batch says {header.record_count} records and a last offset delta of "
            f"{header.last_offset_delta}"
        )
    if from_client and header.attributes & CONTROL_BIT:
        raise InvalidRecord("a client must not write control records")
    if header.attributes & LOG_APPEND_TIME_BIT:
        raise InvalidTimestamp("a client must not set the log append time")
    if header.attributes & COMPRESSION_MASK > LAST_CODEC:
        raise UnsupportedCompressionType(f"codec {header.attributes & COMPRESSION_MASK}")
    if header.producer_id >= 0:
        if header.producer_epoch < 0 or (from_client and header.base_sequence < 0):
            raise InvalidRecord(
                f"producer {header.producer_id} sent epoch {header.producer_epoch} and "
                f"sequence {header.base_sequence}"
            )
    elif header.producer_id != -1 or header.attributes & TRANSACTIONAL_BIT:
        raise InvalidRecord("the batch has no producer id where it needs one")
    if header.attributes & COMPRESSION_MASK == 0:
        with nogil:
            problem = _walk_records(
                batch + HEADER_SIZE,
                batch + header.size,
                header.record_count,
                header.base_timestamp,
                &newest,
                &oldest,
                &has_null_key,
            )
        if problem != FINE:
            raise refusal(problem, header.position)
        header.has_null_key = has_null_key
        header.newest_timestamp = newest
        header.oldest_timestamp = oldest
    return 0


def validate_batches(data, *, int64_t max_batch_bytes=INT32_MAX, bint from_client=True):
    """Check batches as a producer sent them and return their headers.

    Uncompressed records are walked through, compressed ones are not opened. Raises CorruptMessage,
    InvalidRecord, InvalidTimestamp, MessageTooLarge, UnsupportedCompressionType.
    """
    cdef Py_buffer view
    cdef const unsigned char *start
    cdef int64_t position = 0, size = 0, available
    cdef int problem
    cdef BatchHeader header
    cdef list headers = []
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        start = <const unsigned char *>view.buf
        while position < view.len:
            available = view.len - position
            if available >= 12 and <int32_t>get32(start + position + AT_LENGTH) > max_batch_bytes - 12:
                raise MessageTooLarge(
                    f"a batch of {<int64_t>get32(start + position + AT_LENGTH) + 12} bytes; "
                    f"{max_batch_bytes} are allowed"
                )
            with nogil:
                problem = check_batch(start + position, available, True, &size)
            # The producer's base offset does not matter: it is about to be replaced.
            if problem == BAD_OFFSETS and <int32_t>get32(start + position + AT_LAST_OFFSET_DELTA) >= 0:
                problem = FINE
            if problem != FINE:
                raise refusal(problem, position)
            header = read_header(start + position, position, size)
            _check_produced(header, start + position, from_client)
            headers.append(header)
            if from_client and len(headers) > BATCHES_MAX:
                raise InvalidRecord(f"there are more than {BATCHES_MAX} batches for a partition")
            position += size
        if not headers:
            raise InvalidRecord("there is no batch")
        return headers
    finally:
        PyBuffer_Release(&view)


def transactional_producer(data):
    """Return (producer id, epoch) of the first batch, None if not transactional; checks nothing."""
    cdef Py_buffer view
    cdef const unsigned char *batch
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        batch = <const unsigned char *>view.buf
        if view.len < HEADER_SIZE or not get16(batch + AT_ATTRIBUTES) & TRANSACTIONAL_BIT:
            return None
        return get64(batch + AT_PRODUCER_ID), get16(batch + AT_PRODUCER_EPOCH)
    finally:
        PyBuffer_Release(&view)


def inspect_compressed(data, BatchHeader header, *, int64_t max_bytes=EXPANDED_BYTES_MAX):
    """Decompress a batch, check its records, and set in its header what they have.

    That is `has_null_key`, `newest_timestamp` and `oldest_timestamp`.

    Raises InvalidRecord, CorruptMessage, MessageTooLarge, UnsupportedCompressionType.
    """
    cdef const unsigned char *start
    cdef int64_t newest = 0, oldest = 0, size
    cdef bint has_null_key = False
    cdef int problem
    cdef bytes expanded = decompress(
        header.attributes & COMPRESSION_MASK,
        bytes(memoryview(data)[header.position + HEADER_SIZE : header.position + header.size]),
        max_bytes,
    )
    start = <const unsigned char *><char *>expanded
    size = len(expanded)
    with nogil:
        problem = _walk_records(
            start,
            start + size,
            header.record_count,
            header.base_timestamp,
            &newest,
            &oldest,
            &has_null_key,
        )
    if problem != FINE:
        raise refusal(problem, header.position)
    header.has_null_key = has_null_key
    header.newest_timestamp = newest
    header.oldest_timestamp = oldest


def assign_offsets(
    data, list headers, int64_t base_offset, int32_t leader_epoch, int64_t log_append_time_ms=-1
):
    """Assign offsets from `base_offset` on, in place, also in the headers; return the next offset.

    The CRC is computed again only if a field that it covers changes: for a log append time, or if
    the producer's max timestamp was not that of its records.
    """
    cdef Py_buffer view
    cdef unsigned char *batch
    cdef BatchHeader header
    PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
    try:
        for header in headers:
            if header.position + header.size > view.len:
                raise ValueError("the headers belong to other data")
            batch = <unsigned char *>view.buf + header.position
            put64(batch, base_offset)
            put32(batch + AT_LEADER_EPOCH, leader_epoch)
            header.base_offset = base_offset
            header.leader_epoch = leader_epoch
            if log_append_time_ms >= 0:
                header.newest_timestamp = log_append_time_ms
                header.attributes |= LOG_APPEND_TIME_BIT
            if header.newest_timestamp != header.max_timestamp or log_append_time_ms >= 0:
                header.max_timestamp = header.newest_timestamp
                put16(batch + AT_ATTRIBUTES, <uint32_t>header.attributes)
                put64(batch + AT_MAX_TIMESTAMP, header.max_timestamp)
                put32(
                    batch + AT_CRC,
                    crc32c_extend(0, batch + AT_ATTRIBUTES, header.size - AT_ATTRIBUTES),
                )
            base_offset += <int64_t>header.last_offset_delta + 1
        return base_offset
    finally:
        PyBuffer_Release(&view)
