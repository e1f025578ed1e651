"""The header of a record batch, version 2, and what can be wrong with a batch.

Layout (big-endian), `org.apache.kafka.common.record.DefaultRecordBatch`:
base offset 8, batch length 4 (of the rest), partition leader epoch 4, magic 1, CRC-32C 4 (of the
rest), attributes 2, last offset delta 4, base timestamp 8, max timestamp 8, producer id 8, producer
epoch 2, base sequence 4, record count 4, then the records, compressed together or not at all.
Base offset and leader epoch are before the CRC, so that a broker can set them in place.
"""

from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t

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
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    get16,
    get32,
    get64,
)

from broker_core.errors import CorruptMessage, InvalidRecord

HEADER_BYTES = HEADER_SIZE

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

cdef str problem_text(int problem):
    """Return what is wrong with a batch, for log lines and errors."""
    return _PROBLEMS[problem]


cdef object refusal(int problem, int64_t position):
    """Return the exception for what is wrong with the batch at this position."""
    text = f"{_PROBLEMS[problem]} (byte {position} of the batches)"
    if problem in (BAD_MAGIC, BAD_RECORD, BAD_RECORD_COUNT, BAD_RECORD_OFFSET):
        return InvalidRecord(text)
    return CorruptMessage(text)


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


cdef BatchHeader read_header(const unsigned char *batch, int64_t position, int64_t size):
    """Read the header of a batch that has been checked; `position` is that in its buffer."""
    cdef BatchHeader header = BatchHeader.__new__(BatchHeader)
    header.position = position
    header.size = size
    header.base_offset = get64(batch)
    header.leader_epoch = <int32_t>get32(batch + AT_LEADER_EPOCH)
    header.attributes = get16(batch + AT_ATTRIBUTES)
    header.last_offset_delta = <int32_t>get32(batch + AT_LAST_OFFSET_DELTA)
    header.base_timestamp = get64(batch + AT_BASE_TIMESTAMP)
    header.max_timestamp = get64(batch + AT_MAX_TIMESTAMP)
    header.producer_id = get64(batch + AT_PRODUCER_ID)
    header.producer_epoch = get16(batch + AT_PRODUCER_EPOCH)
    header.base_sequence = <int32_t>get32(batch + AT_BASE_SEQUENCE)
    header.record_count = <int32_t>get32(batch + AT_RECORD_COUNT)
    header.has_null_key = False
    header.newest_timestamp = header.oldest_timestamp = header.max_timestamp
    return header


cdef class BatchHeader:
    """The header of one batch, and the position of the batch in the buffer it was read from."""

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
