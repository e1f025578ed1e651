# The header class for other modules; waylog/kafka/protocol/record_format.pxd has the layout.

from libc.stdint cimport int16_t, int32_t, int64_t

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
    cdef readonly bint has_null_key  # set only for uncompressed batches that were validated
    cdef readonly int64_t newest_timestamp  # of the records, if they were walked through

    cdef void read(self, const unsigned char *batch, int64_t position, int64_t size) noexcept
