"""Building record batches: of records, or empty ones for offsets that have no record."""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.pystate cimport PyThreadState
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint32_t
from libc.string cimport memcpy

from broker_core.protocol.crc32c cimport crc32c_extend
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
    CONTROL_BIT,
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    put16,
    put32,
    put64,
    put_varint,
    varint_size,
)

from broker_core.protocol.compression import compress

cdef extern from "Python.h":
    PyThreadState *PyEval_SaveThread()
    void PyEval_RestoreThread(PyThreadState *state)

#: Records that are encoded before other threads may run: some tenths of a millisecond.
cdef int RECORDS_BETWEEN_SWITCHES = 500
cdef tuple _NO_HEADERS = ()


cdef void _let_others_run():
    """Let another thread run that waits for the interpreter: a batch may have a million records."""
    PyEval_RestoreThread(PyEval_SaveThread())


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
