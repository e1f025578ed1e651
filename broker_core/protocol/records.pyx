"""Record batches, version 2: validation, offsets, search, reading and building.

Layout (big-endian), `org.apache.kafka.common.record.DefaultRecordBatch`:
base offset 8, batch length 4 (of the rest), partition leader epoch 4, magic 1, CRC-32C 4 (of the
rest), attributes 2, last offset delta 4, base timestamp 8, max timestamp 8, producer id 8, producer
epoch 2, base sequence 4, record count 4, then the records, compressed together or not at all.
Base offset and leader epoch are before the CRC, so that a broker can set them in place.
"""

from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.pystate cimport PyThreadState
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from broker_core.protocol.crc32c cimport (
    crc32c_extend,
    crc32c_extend_by_table,
    crc32c_initialise,
)
from waylog.kafka.protocol.record_format cimport (
    AT_ATTRIBUTES,
    AT_BASE_SEQUENCE,
    AT_BASE_TIMESTAMP,
    AT_CRC,
    AT_LAST_OFFSET_DELTA,
    AT_LEADER_EPOCH,
    AT_LENGTH,
    AT_MAGIC,
    AT_MAX_TIMESTAMP,
    AT_PRODUCER_EPOCH,
    AT_PRODUCER_ID,
    AT_RECORD_COUNT,
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
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
    put_varint,
    skip_field,
    varint_size,
)

from broker_core.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from broker_core.protocol.compression import EXPANDED_BYTES_MAX, compress, decompress

crc32c_initialise(True)

HEADER_BYTES = HEADER_SIZE

# Results of the C functions, which would need the GIL to raise.
#: Batches that a producer may send for a partition at a time; Apache Kafka takes one.
BATCHES_MAX = 1_000


cdef enum Problem:
    FINE = 0
    SHORT = 1
    BAD_LENGTH = 2
    BAD_MAGIC = 3
    BAD_CRC = 4
    BAD_OFFSETS = 5
    BAD_RECORD = 6
    BAD_RECORD_COUNT = 7
    BAD_RECORD_OFFSET = 8

cdef dict _PROBLEMS = {
    SHORT: "the batch is cut short",
    BAD_LENGTH: "the batch length is impossible",
    BAD_MAGIC: "the batch is not of version 2",
    BAD_CRC: "the CRC does not match",
    BAD_OFFSETS: "the batch's offsets are impossible",
    BAD_RECORD: "a record's lengths do not fit into its batch",
    BAD_RECORD_COUNT: "the batch has bytes after its last record",
    BAD_RECORD_OFFSET: "the records are not numbered 0, 1, 2, ...",
}


cdef int walk_records(
    const unsigned char *at,
    const unsigned char *end,
    int32_t count,
    int64_t base_timestamp,
    int64_t *max_timestamp,
    bint *has_null_key,
) noexcept nogil:
    """Check all lengths of uncompressed records; find the newest timestamp and null keys."""
    cdef int64_t size, timestamp, delta, headers
    cdef const unsigned char *record_end
    cdef int32_t index
    max_timestamp[0] = INT64_MIN
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


cdef int check_batch(
    const unsigned char *batch, int64_t available, bint check_crc, int64_t *size
) noexcept nogil:
    """Check the fields around the records of a batch, on which recovery and replication rely."""
    cdef int32_t length, last_offset_delta
    cdef int64_t base_offset
    if available < 12:
        return SHORT
    length = <int32_t>get32(batch + AT_LENGTH)
    if length < HEADER_SIZE - 12:
        return BAD_LENGTH
    size[0] = <int64_t>length + 12
    if size[0] > available:
        return SHORT
    if batch[AT_MAGIC] != 2:
        return BAD_MAGIC
    if check_crc and crc32c_extend(0, batch + AT_ATTRIBUTES, size[0] - AT_ATTRIBUTES) != get32(
        batch + AT_CRC
    ):
        return BAD_CRC
    base_offset = get64(batch)
    last_offset_delta = <int32_t>get32(batch + AT_LAST_OFFSET_DELTA)
    if base_offset < 0 or last_offset_delta < 0 or base_offset > INT64_MAX - last_offset_delta - 1:
        return BAD_OFFSETS
    return FINE


cdef class BatchHeader:
    """The header of one batch, and the position of the batch in the buffer it was read from."""

    cdef void read(self, const unsigned char *batch, int64_t position, int64_t size) noexcept:
        self.position = position
        self.size = size
        self.base_offset = get64(batch)
        self.leader_epoch = <int32_t>get32(batch + AT_LEADER_EPOCH)
        self.attributes = get16(batch + AT_ATTRIBUTES)
        self.last_offset_delta = <int32_t>get32(batch + AT_LAST_OFFSET_DELTA)
        self.base_timestamp = get64(batch + AT_BASE_TIMESTAMP)
        self.max_timestamp = get64(batch + AT_MAX_TIMESTAMP)
        self.producer_id = get64(batch + AT_PRODUCER_ID)
        self.producer_epoch = get16(batch + AT_PRODUCER_EPOCH)
        self.base_sequence = <int32_t>get32(batch + AT_BASE_SEQUENCE)
        self.record_count = <int32_t>get32(batch + AT_RECORD_COUNT)
        self.has_null_key = False
        self.newest_timestamp = self.max_timestamp

    @property
    def last_offset(self):
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self):
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self):
        # Sequence numbers continue at 0 after 2^31 - 1.
        return (<int64_t>self.base_sequence + self.last_offset_delta) & INT32_MAX

    @property
    def compression(self):
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self):
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self):
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def delete_horizon_ms(self):
        # KIP-534: compaction stores it in the field of the base timestamp.
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else -1

    @property
    def is_control(self):
        return self.attributes & CONTROL_BIT != 0

    def __repr__(self):
        return (
            f"BatchHeader(base_offset={self.base_offset}, records={self.record_count}, "
            f"size={self.size}, producer_id={self.producer_id}, "
            f"producer_epoch={self.producer_epoch}, base_sequence={self.base_sequence})"
        )


def crc32c(data, value=0, *, by_table=False):
    """Return the CRC-32C of a buffer, continued from `value`.

    `by_table` forces the method for processors without the crc32 instruction.
    """
    cdef Py_buffer view
    cdef uint32_t crc = value
    cdef bint table = by_table
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            if table:
                crc = crc32c_extend_by_table(crc, <const unsigned char *>view.buf, view.len)
            else:
                crc = crc32c_extend(crc, <const unsigned char *>view.buf, view.len)
        return crc
    finally:
        PyBuffer_Release(&view)


cdef object _refuse(int problem, int64_t position):
    text = f"{_PROBLEMS[problem]} (byte {position} of the batches)"
    if problem in (BAD_MAGIC, BAD_RECORD, BAD_RECORD_COUNT, BAD_RECORD_OFFSET):
        return InvalidRecord(text)
    return CorruptMessage(text)


cdef int _check_produced(
    BatchHeader header, const unsigned char *batch, bint from_client
) except -1:
    """Check further requirements for a produced batch; see Kafka's LogValidator.

    The broker's own coordinators write control records, and transactional batches without sequence.
    """
    cdef int problem
    cdef int64_t newest = 0
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
            problem = walk_records(
                batch + HEADER_SIZE,
                batch + header.size,
                header.record_count,
                header.base_timestamp,
                &newest,
                &has_null_key,
            )
        if problem != FINE:
            raise _refuse(problem, header.position)
        header.has_null_key = has_null_key
        header.newest_timestamp = newest
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
                raise _refuse(problem, position)
            header = BatchHeader.__new__(BatchHeader)
            header.read(start + position, position, size)
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
    """Decompress a batch, check its records, and set `has_null_key` in its header.

    Raises InvalidRecord, CorruptMessage, MessageTooLarge, UnsupportedCompressionType.
    """
    cdef const unsigned char *start
    cdef int64_t newest = 0, size
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
        problem = walk_records(
            start,
            start + size,
            header.record_count,
            header.base_timestamp,
            &newest,
            &has_null_key,
        )
    if problem != FINE:
        raise _refuse(problem, header.position)
    header.has_null_key = has_null_key


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


def scan_batches(data, *, check_crc=True, int32_t count_max=INT32_MAX):
    """Read batches of a log, up to the first that is incomplete or damaged, at most `count_max`.

    Returns (headers, bytes they take, problem of the next batch or None at the end of the data).
    """
    cdef Py_buffer view
    cdef int64_t position = 0, size = 0
    cdef int problem = FINE
    cdef bint with_crc = check_crc
    cdef BatchHeader header
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
            header = BatchHeader.__new__(BatchHeader)
            header.read(<const unsigned char *>view.buf + position, position, size)
            headers.append(header)
            position += size
        return headers, position, None if problem == FINE else _PROBLEMS[problem]
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
                raise _refuse(BAD_LENGTH, position)
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
                raise _refuse(BAD_LENGTH, position)
            following = get64(batch) + <int32_t>get32(batch + AT_LAST_OFFSET_DELTA) + 1
            if size > view.len - position or following > up_to_offset:
                break
            next_offset = following
            position += size
        return position, next_offset
    finally:
        PyBuffer_Release(&view)


cdef extern from "Python.h":
    PyThreadState *PyEval_SaveThread()
    void PyEval_RestoreThread(PyThreadState *state)

#: Records that are encoded before other threads may run: some tenths of a millisecond.
cdef int RECORDS_BETWEEN_SWITCHES = 500
cdef tuple _NO_HEADERS = ()


cdef void _let_others_run():
    """Let another thread run that waits for the interpreter: a batch may have a million records."""
    PyEval_RestoreThread(PyEval_SaveThread())


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
            raise _refuse(BAD_RECORD, header.position)
        record_end = at + size
        at = get_varint(at + 1, record_end, &timestamp)
        if at != NULL:
            at = get_varint(at, record_end, &offset)
        if at != NULL:
            at = skip_field(at, record_end, &size)
        if at == NULL:
            raise _refuse(BAD_RECORD, header.position)
        key = _field(at, size)
        at = skip_field(at, record_end, &size)
        if at == NULL:
            raise _refuse(BAD_RECORD, header.position)
        value = _field(at, size)
        at = get_varint(at, record_end, &headers)
        if at == NULL or headers < 0 or headers > record_end - at:
            raise _refuse(BAD_RECORD, header.position)
        # Most records have none; a million lists would keep the garbage collector busy.
        record_headers = _NO_HEADERS if headers == 0 else []
        while headers > 0:
            at = skip_field(at, record_end, &size)
            if at == NULL or size < 0:
                raise _refuse(BAD_RECORD, header.position)
            name = (<bytes>_field(at, size)).decode("utf-8", "replace")
            at = skip_field(at, record_end, &size)
            if at == NULL:
                raise _refuse(BAD_RECORD, header.position)
            record_headers.append((name, _field(at, size)))
            headers -= 1
        if at != record_end:
            raise _refuse(BAD_RECORD, header.position)
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
            raise _refuse(BAD_RECORD_COUNT, self._header.position)
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
            raise _refuse(BAD_RECORD, self._header.position)
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


cdef int64_t _field_size(bytes field) except -1:
    if field is None:
        return 1
    return varint_size(len(field)) + len(field)


cdef unsigned char *_put_field(unsigned char *at, bytes field) noexcept:
    if field is None:
        return put_varint(at, -1)
    at = put_varint(at, len(field))
    memcpy(at, <const char *>field, len(field))
    return at + len(field)


cdef int64_t _record_size(int64_t delta, int64_t index, bytes key, bytes value, headers) except -1:
    cdef int64_t size = 1 + varint_size(delta) + varint_size(index)
    size += _field_size(key) + _field_size(value) + varint_size(len(headers))
    for name, content in headers:
        size += _field_size(name) + _field_size(content)
    return size


cdef bytearray _put_records(list records, list deltas, int64_t base_timestamp, int64_t start):
    """Encode records after `start` unused bytes. `deltas` are the offset deltas."""
    cdef list rows = []
    cdef int64_t total = start, size, delta, index
    cdef Py_ssize_t number
    cdef bytearray data
    cdef unsigned char *at
    for number, ((timestamp, key, value, headers), offset_delta) in enumerate(
        zip(records, deltas), 1
    ):
        if number % RECORDS_BETWEEN_SWITCHES == 0:
            _let_others_run()
        encoded = (
            [(name.encode(), content) for name, content in headers] if headers else _NO_HEADERS
        )
        delta = timestamp - base_timestamp
        size = _record_size(delta, offset_delta, key, value, encoded)
        total += varint_size(size) + size
        rows.append((size, delta, offset_delta, key, value, encoded))
    data = bytearray(total)
    at = <unsigned char *>PyByteArray_AS_STRING(data) + start
    for number, (size, delta, index, key, value, encoded) in enumerate(rows, 1):
        if number % RECORDS_BETWEEN_SWITCHES == 0:
            _let_others_run()
        at = put_varint(at, size)
        at[0] = 0
        at = put_varint(at + 1, delta)
        at = put_varint(at, index)
        at = _put_field(at, key)
        at = _put_field(at, value)
        at = put_varint(at, len(encoded))
        for name, content in encoded:
            at = _put_field(at, name)
            at = _put_field(at, content)
    return data


def build_batch(
    records,
    *,
    int64_t base_offset=0,
    int compression=0,
    int32_t leader_epoch=-1,
    int64_t producer_id=-1,
    int producer_epoch=-1,
    int32_t base_sequence=-1,
    bint is_transactional=False,
    bint is_control=False,
    offset_deltas=None,
    last_offset_delta=None,
    base_timestamp=None,
    int attributes=0,
):
    """Build one batch of (timestamp in ms, key, value, headers) records, ready for `Log.append`.

    Headers are (name, bytes or None) pairs. `offset_deltas` and `last_offset_delta` replace the
    offset deltas 0, 1, 2, ...: batches of a compacted log have gaps. `attributes` are further
    attribute bits. `base_timestamp` replaces the first record's timestamp: compaction stores the
    delete horizon there (KIP-534). Raises ValueError without records, UnsupportedCompressionType.
    """
    cdef list rows = list(records)
    cdef bytearray data
    cdef unsigned char *batch
    cdef int64_t newest
    if not rows:
        raise ValueError("a batch has at least one record")
    if base_timestamp is None:
        base_timestamp = rows[0][0]
    newest = max([row[0] for row in rows])
    deltas = list(range(len(rows))) if offset_deltas is None else list(offset_deltas)
    if len(deltas) != len(rows):
        raise ValueError("every record needs an offset delta")
    if compression == 0:
        data = _put_records(rows, deltas, base_timestamp, HEADER_SIZE)
    else:
        data = bytearray(HEADER_SIZE)
        data += compress(compression, _put_records(rows, deltas, base_timestamp, 0))
    batch = <unsigned char *>PyByteArray_AS_STRING(data)
    attributes |= compression
    if is_transactional:
        attributes |= TRANSACTIONAL_BIT
    if is_control:
        attributes |= CONTROL_BIT
    put64(batch, base_offset)
    put32(batch + AT_LENGTH, len(data) - 12)
    put32(batch + AT_LEADER_EPOCH, <uint32_t>leader_epoch)
    batch[AT_MAGIC] = 2
    put16(batch + AT_ATTRIBUTES, <uint32_t>attributes)
    put32(
        batch + AT_LAST_OFFSET_DELTA,
        <uint32_t>(deltas[-1] if last_offset_delta is None else last_offset_delta),
    )
    put64(batch + AT_BASE_TIMESTAMP, base_timestamp)
    put64(batch + AT_MAX_TIMESTAMP, newest)
    put64(batch + AT_PRODUCER_ID, producer_id)
    put16(batch + AT_PRODUCER_EPOCH, <uint32_t>producer_epoch)
    put32(batch + AT_BASE_SEQUENCE, <uint32_t>base_sequence)
    put32(batch + AT_RECORD_COUNT, len(rows))
    put32(batch + AT_CRC, crc32c_extend(0, batch + AT_ATTRIBUTES, len(data) - AT_ATTRIBUTES))
    return data


def empty_batch(int64_t base_offset, int64_t next_offset):
    """Build a batch without records that takes the reader of a log over offsets without any.

    Apache Kafka's compaction leaves such batches, so all clients know them.
    """
    cdef bytearray data = bytearray(HEADER_SIZE)
    cdef unsigned char *batch = <unsigned char *>PyByteArray_AS_STRING(data)
    if not 0 <= base_offset < next_offset or next_offset - base_offset > INT32_MAX:
        raise ValueError("a batch cannot have these offsets")
    put64(batch, base_offset)
    put32(batch + AT_LENGTH, HEADER_SIZE - 12)
    put32(batch + AT_LEADER_EPOCH, <uint32_t>-1)
    batch[AT_MAGIC] = 2
    put32(batch + AT_LAST_OFFSET_DELTA, <uint32_t>(next_offset - base_offset - 1))
    put64(batch + AT_BASE_TIMESTAMP, -1)
    put64(batch + AT_MAX_TIMESTAMP, -1)
    put64(batch + AT_PRODUCER_ID, -1)
    put16(batch + AT_PRODUCER_EPOCH, <uint32_t>-1)
    put32(batch + AT_BASE_SEQUENCE, <uint32_t>-1)
    put32(batch + AT_CRC, crc32c_extend(0, batch + AT_ATTRIBUTES, len(data) - AT_ATTRIBUTES))
    return bytes(data)
