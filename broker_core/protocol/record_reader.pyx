"""The records of batches, read into tuples or passed over."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint64_t

from broker_core.protocol.batch_header cimport (
    BAD_RECORD,
    BAD_RECORD_COUNT,
    BatchHeader,
    refusal,
)
from waylog.kafka.protocol.record_format cimport (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    get_varint,
    skip_field,
)

from broker_core.errors import CorruptMessage
from broker_core.protocol.compression import EXPANDED_BYTES_MAX, decompress
from broker_core.protocol.stored_batches import scan_batches

cdef tuple _NO_HEADERS = ()


cdef object _field(const unsigned char *after, int64_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char *>(after - size), size)


cdef const unsigned char *_read_records(
    BatchHeader header,
    const unsigned char *at,
    const unsigned char *end,
    int32_t count,
    list records,
) except NULL:
    """Append the next `count` records to a list; return where the following ones begin."""
    cdef object record_headers
    cdef int64_t size = 0, timestamp = 0, offset = 0, headers = 0
    cdef int32_t index
    cdef bint append_time = header.attributes & LOG_APPEND_TIME_BIT
    cdef const unsigned char *record_end
    for index in range(count):
        # Nothing has been checked yet: the bytes can be any output of a codec.
        at = get_varint(at, end, &size)
        if at == NULL or size < 1 or size > end - at:
            raise refusal(BAD_RECORD, header.position)
        record_end = at + size
        at = get_varint(at + 1, record_end, &timestamp)
        if at != NULL:
            at = get_varint(at, record_end, &offset)
        if at != NULL:
            at = skip_field(at, record_end, &size)
        if at == NULL:
            raise refusal(BAD_RECORD, header.position)
        key = _field(at, size)
        at = skip_field(at, record_end, &size)
        if at == NULL:
            raise refusal(BAD_RECORD, header.position)
        value = _field(at, size)
        at = get_varint(at, record_end, &headers)
        if at == NULL or headers < 0 or headers > record_end - at:
            raise refusal(BAD_RECORD, header.position)
        # Most records have none; a million lists would keep the garbage collector busy.
        record_headers = _NO_HEADERS if headers == 0 else []
        while headers > 0:
            at = skip_field(at, record_end, &size)
            if at == NULL or size < 0:
                raise refusal(BAD_RECORD, header.position)
            name = (<bytes>_field(at, size)).decode("utf-8", "replace")
            at = skip_field(at, record_end, &size)
            if at == NULL:
                raise refusal(BAD_RECORD, header.position)
            record_headers.append((name, _field(at, size)))
            headers -= 1
        if at != record_end:
            raise refusal(BAD_RECORD, header.position)
        if append_time:
            timestamp = header.max_timestamp
        else:
            timestamp = <int64_t>(<uint64_t>header.base_timestamp + <uint64_t>timestamp)
        records.append(
            (
                <int64_t>(<uint64_t>header.base_offset + <uint64_t>offset),
                timestamp,
                key,
                value,
                record_headers,
            )
        )
    return at


cdef class RecordReader:
    """Reads the records of one batch, some at a time: there can be a million of them.

    Raises InvalidRecord, CorruptMessage, MessageTooLarge, UnsupportedCompressionType.
    """

    cdef bytes _expanded
    cdef BatchHeader _header
    cdef const unsigned char *_at
    cdef const unsigned char *_end
    cdef int32_t _left

    def __init__(self, data, BatchHeader header, *, int64_t max_bytes=EXPANDED_BYTES_MAX):
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if header.position + header.size > view.len:
                raise ValueError("the header belongs to other data")
            # The codecs need a contiguous buffer that begins at the records.
            self._expanded = PyBytes_FromStringAndSize(
                <const char *>view.buf + header.position + HEADER_SIZE, header.size - HEADER_SIZE
            )
        finally:
            PyBuffer_Release(&view)
        if header.attributes & COMPRESSION_MASK:
            self._expanded = decompress(
                header.attributes & COMPRESSION_MASK, self._expanded, max_bytes
            )
        self._header = header
        self._at = <const unsigned char *><char *>self._expanded
        self._end = self._at + len(self._expanded)
        self._left = header.record_count

    def read(self, int32_t count):
        """Return the next records, at most `count`; [] at the end of the batch.

        They are (offset, timestamp in ms, key, value, headers).
        """
        cdef list records = []
        count = min(count, self._left)
        if count > 0:
            self._at = _read_records(self._header, self._at, self._end, count, records)
            self._left -= count
        if self._left <= 0 and self._at != self._end:
            raise refusal(BAD_RECORD_COUNT, self._header.position)
        return records

    def first_at(self, int64_t timestamp_ms, int64_t from_offset):
        """Return (timestamp, offset) of the next record at or after both, None if there is none.

        Keys and values are passed over: that takes some nanoseconds a record.
        """
        cdef int64_t timestamp = 0, offset = 0
        cdef int found
        with nogil:
            found = self._pass_over(timestamp_ms, from_offset, &timestamp, &offset)
        if found < 0:
            raise refusal(BAD_RECORD, self._header.position)
        return (timestamp, offset) if found else None

    cdef int _pass_over(
        self, int64_t timestamp_ms, int64_t from_offset, int64_t *timestamp, int64_t *offset
    ) noexcept nogil:
        """Return 1 at the record, 0 at the end of the batch, -1 at what is none."""
        cdef int64_t size = 0
        cdef const unsigned char *record_end
        while self._left > 0:
            self._at = get_varint(self._at, self._end, &size)
            if self._at == NULL or size < 1 or size > self._end - self._at:
                self._at = self._end
                return -1
            record_end = self._at + size
            self._at = get_varint(self._at + 1, record_end, timestamp)
            if self._at != NULL:
                self._at = get_varint(self._at, record_end, offset)
            if self._at == NULL:
                self._at = self._end
                return -1
            timestamp[0] = <int64_t>(<uint64_t>self._header.base_timestamp + <uint64_t>timestamp[0])
            offset[0] = <int64_t>(<uint64_t>self._header.base_offset + <uint64_t>offset[0])
            self._at = record_end
            self._left -= 1
            if timestamp[0] >= timestamp_ms and offset[0] >= from_offset:
                return 1
        return 0


def read_records(data, BatchHeader header, *, int64_t max_bytes=EXPANDED_BYTES_MAX):
    """Return the records of one batch as (offset, timestamp in ms, key, value, headers).

    Raises InvalidRecord, CorruptMessage, MessageTooLarge, UnsupportedCompressionType.
    """
    cdef RecordReader reader = RecordReader(data, header, max_bytes=max_bytes)
    return reader.read(INT32_MAX)


def iterate_records(data, *, check_crc=True, max_bytes=EXPANDED_BYTES_MAX):
    """Yield (offset, timestamp in ms, key, value, headers) of all records of one or more batches.

    A batch expands to at most `max_bytes`. Raises CorruptMessage, also for an incomplete batch,
    InvalidRecord, MessageTooLarge, UnsupportedCompressionType.
    """
    headers, _, problem = scan_batches(data, check_crc=check_crc)
    for header in headers:
        yield from read_records(data, header, max_bytes=max_bytes)
    if problem is not None:
        raise CorruptMessage(problem)
