from libc.stdint cimport int16_t, int32_t, int64_t

# Results of the C functions, which would need the GIL to raise.
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


cdef str problem_text(int problem)
cdef object refusal(int problem, int64_t position)
cdef int check_batch(
    const unsigned char *batch, int64_t available, bint check_crc, int64_t *size
) noexcept nogil


cdef class BatchHeader:
    cdef readonly int64_t position
    cdef readonly int64_t size
    cdef readonly int64_t base_offset
    cdef readonly int32_t leader_epoch
    cdef readonly int16_t attributes
    cdef readonly int32_t last_offset_delta
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t producer_id
    cdef readonly int16_t producer_epoch
    cdef readonly int32_t base_sequence
    cdef readonly int32_t record_count
    # Of the records, if they were walked through; else False and the max timestamp.
    cdef readonly bint has_null_key
    cdef readonly int64_t newest_timestamp
    cdef readonly int64_t oldest_timestamp  # of those that have one; 2**63 - 1 if none has


cdef BatchHeader read_header(const unsigned char *batch, int64_t position, int64_t size)
