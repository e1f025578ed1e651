"""Parses the record batches that a broker sends (version 2; record_batch.pyx has the layout)."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t

from waylog.kafka.protocol.record_format cimport (
    AT_ATTRIBUTES,
    AT_BASE_TIMESTAMP,
    AT_CRC,
    AT_LAST_OFFSET_DELTA,
    AT_LENGTH,
    AT_MAGIC,
    AT_MAX_TIMESTAMP,
    AT_PRODUCER_ID,
    AT_RECORD_COUNT,
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LZ4,
    MAGIC,
    NO_COMPRESSION,
    TRANSACTIONAL_BIT,
    get32,
    get64,
    get_varint,
)

import google_crc32c

from waylog.kafka.protocol.compression import CompressionError, decompress
from waylog.kafka.protocol.requests import MalformedAnswer

cdef const unsigned char* read_varint(
    const unsigned char* at, const unsigned char* end, int64_t* value
) except NULL:
    at = get_varint(at, end, value)
    if at == NULL:
        raise MalformedAnswer("a record is cut short")
    return at


cdef const unsigned char* read_bytes(
    const unsigned char* at, const unsigned char* end, const unsigned char** start, int64_t* size
) except NULL:
    """Read a length (-1 for none) and find that many bytes."""
    at = read_varint(at, end, size)
    if size[0] < -1 or size[0] > end - at:
        raise MalformedAnswer("a record is longer than its batch")
    start[0] = at
    return at + size[0] if size[0] > 0 else at


cdef class FetchedRecord:
    """A record with those methods of confluent_kafka.Message that readers use."""

    def topic(self):
        """Return the name of the record's topic."""
        return self._topic

    def key(self):
        """Return the record's key, None if it has none."""
        return self._key

    def value(self):
        """Return the record's value, None for a tombstone."""
        return self._value

    def set_value(self, bytes value):
        """Replace the value, for example by what was sealed in it."""
        self._value = value

    def partition(self):
        """Return the record's partition."""
        return self._partition

    def offset(self):
        """Return the record's offset."""
        return self._offset

    def timestamp(self):
        """Return the kind (1 set by the producer, 2 by the broker) and ms since 1970."""
        return self._timestamp_kind, self._timestamp


cdef class AbortedTransactions:
    """A filter for records of aborted transactions.

    `listed` has the producer ids and first offsets from a Fetch response.
    """

    def __init__(self, listed):
        self._listed = sorted(listed, key=_first_offset)
        self._open = set()

    cdef bint leaves_out(self, int64_t producer_id, int64_t base_offset, int attributes,
                         const unsigned char* records, Py_ssize_t size) except -1:
        cdef int64_t ignored, key_size
        cdef const unsigned char* end = records + size
        cdef const unsigned char* key
        if not self._listed and not self._open:
            return False
        while self._listed and self._listed[0][1] <= base_offset:
            self._open.add(self._listed.pop(0)[0])
        if attributes & CONTROL_BIT:
            # The second number of a control record's key is its type: 0 is an abort.
            records = read_varint(records, end, &ignored)
            records = read_varint(read_varint(records + 1, end, &ignored), end, &ignored)
            read_bytes(records, end, &key, &key_size)
            if key_size >= 4 and key[2] == 0 and key[3] == 0:
                self._open.discard(producer_id)
            return True
        return attributes & TRANSACTIONAL_BIT and producer_id in self._open


def _first_offset(listed):
    return listed[1]


def read_batches(
    bytes data, str topic, int32_t partition, int64_t position, AbortedTransactions aborted,
    bint any_codec=False,
):
    """Return the records from `position` on, the next position, and whether all batches were read.

    Without `any_codec` parsing stops at a batch in another codec than lz4, in which our own
    producers write: others may take long to decompress. A batch at the end that is not whole is
    ignored. Raises MalformedAnswer.
    """
    cdef const unsigned char* start = <const unsigned char*> PyBytes_AS_STRING(data)
    cdef const unsigned char* end = start + PyBytes_GET_SIZE(data)
    cdef const unsigned char* at
    cdef const unsigned char* last
    cdef int64_t length, base_offset, producer_id, next_offset
    cdef int attributes, codec
    cdef int32_t count
    cdef bytes expanded
    cdef list records = []
    while end - start >= HEADER_SIZE:
        length = <int32_t> get32(start + AT_LENGTH) + <int64_t> 12
        if length < HEADER_SIZE:
            raise MalformedAnswer("a batch has an impossible length")
        if length > end - start:
            break
        if start[AT_MAGIC] != MAGIC:
            raise MalformedAnswer(f"a batch of version {start[AT_MAGIC]}")
        if google_crc32c.value((<const char*> start)[AT_ATTRIBUTES:length]) != get32(start + AT_CRC):
            raise MalformedAnswer("the checksum of a batch is wrong")
        base_offset = get64(start)
        next_offset = base_offset + <int32_t> get32(start + AT_LAST_OFFSET_DELTA) + 1
        attributes = start[AT_ATTRIBUTES + 1]
        count = <int32_t> get32(start + AT_RECORD_COUNT)
        producer_id = get64(start + AT_PRODUCER_ID)
        if next_offset > position:
            at, last = start + HEADER_SIZE, start + length
            if aborted.leaves_out(producer_id, base_offset, attributes, at, last - at) or (
                attributes & CONTROL_BIT
            ):
                pass
            else:
                codec = attributes & COMPRESSION_MASK
                if codec != NO_COMPRESSION:
                    if codec != LZ4 and not any_codec:
                        return records, position, False
                    try:
                        expanded = decompress(codec, (<const char*> at)[:last - at])
                    except CompressionError as error:
                        raise MalformedAnswer(str(error)) from None
                    at = <const unsigned char*> PyBytes_AS_STRING(expanded)
                    last = at + PyBytes_GET_SIZE(expanded)
                add_records(
                    records, at, last, count, topic, partition, base_offset, position,
                    get64(start + AT_BASE_TIMESTAMP),
                    get64(start + AT_MAX_TIMESTAMP) if attributes & LOG_APPEND_TIME_BIT else -1,
                )
            position = next_offset
        start += length
    return records, position, True


cdef int add_records(
    list records, const unsigned char* at, const unsigned char* end, int32_t count,
    str topic, int32_t partition, int64_t base_offset, int64_t position, int64_t base_timestamp,
    int64_t append_time,
) except -1:
    cdef int64_t size, delta, offset_delta, key_size, value_size
    cdef const unsigned char* record_end
    cdef const unsigned char* key
    cdef const unsigned char* value
    cdef FetchedRecord record
    cdef int32_t _
    for _ in range(count):
        at = read_varint(at, end, &size)
        if size < 1 or size > end - at:
            raise MalformedAnswer("a record is longer than its batch")
        record_end = at + size
        at = read_varint(at + 1, record_end, &delta)
        at = read_varint(at, record_end, &offset_delta)
        at = read_bytes(at, record_end, &key, &key_size)
        read_bytes(at, record_end, &value, &value_size)
        at = record_end
        if base_offset + offset_delta < position:
            continue
        record = FetchedRecord.__new__(FetchedRecord)
        record._topic = topic
        record._partition = partition
        record._offset = base_offset + offset_delta
        record._timestamp = base_timestamp + delta if append_time < 0 else append_time
        record._timestamp_kind = 1 if append_time < 0 else 2
        if key_size >= 0:
            record._key = PyBytes_FromStringAndSize(<const char*> key, key_size)
        if value_size >= 0:
            record._value = PyBytes_FromStringAndSize(<const char*> value, value_size)
        records.append(record)
    return 0
