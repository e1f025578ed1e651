"""Record batches of a producer; see record_batch.pyx."""

from libc.stdint cimport int64_t


cpdef int partition_of(bytes key, int partitions) noexcept


cdef class Delivery:
    cdef int delivered(self, int code) except -1


cdef class RecordBatch:
    cdef unsigned char* _start
    cdef size_t _size
    cdef size_t _capacity
    cdef bytes _sealed           # the records as they are sent, compressed or not
    cdef int _codec
    cdef int64_t _base_timestamp
    cdef int64_t _max_timestamp
    cdef readonly int count
    cdef readonly int64_t created  # time of its first record, ms of the monotonic clock
    cdef readonly list deliveries
    cdef readonly size_t bytes_held
    cdef readonly bint sent
    cdef public bint attempted   # sent, with an unknown outcome

    cdef int add(
        self, int64_t timestamp, bytes key, const char* value, Py_ssize_t value_size,
        bytes headers, object delivery,
    ) except -1
    cdef int reserve(self, size_t more) except -1


cdef class RecordAccumulator:
    cdef dict _topics            # name -> list of Partition, by index
    cdef dict _unplaced          # name -> records of a topic whose partitions are not known yet
    cdef readonly dict waiting   # partitions with batches to send, the longest waiting first
    cdef readonly Py_ssize_t records
    cdef readonly size_t bytes_held
    cdef size_t _bytes_max
    cdef object _on_first
    cdef object _on_unknown_topic
    cdef unsigned int _keyless
    cdef public str refusing
    cdef object _headers          # those of the last record, and below as they are encoded
    cdef bytes _encoded_headers

    cpdef send(self, str topic, bytes value, bytes key, headers, delivery)
    cdef int append(
        self, str topic, const char* value, Py_ssize_t value_size, bytes key, headers, delivery
    ) except -1
    cdef Partition _partition(self, list partitions, bytes key)
    cdef int _place(
        self, Partition partition, int64_t timestamp, bytes key, const char* value,
        Py_ssize_t value_size, bytes headers, object delivery,
    ) except -1


cdef class Partition:
    cdef readonly str topic
    cdef readonly int index
    cdef readonly object batches  # a deque, oldest first
    cdef public int leader
    cdef public bint in_flight
    cdef public int64_t producer_id  # whose sequence numbers its batches have; -1: none yet
    cdef public int producer_epoch
    cdef public int next_sequence
    cdef public double not_before
    cdef RecordBatch _open
